"""What a change means while the machine runs."""

import copy
from typing import Any

import pytest
from hypothesis import given

from anyvisor.planning.changes import classify, differences, with_room
from anyvisor.planning.planner import plan
from anyvisor.planning.values import is_map
from tests.unit.planning.builders import driver, hypervisor_class, small
from tests.unit.planning.test_predicates import JSON

LIVE: dict[str, Any] = {
    name: {}
    for name in (
        *("change.cpu", "change.memory", "change.disk.attach", "change.disk.detach"),
        *("change.nic.attach", "change.nic.link", "change.disk.media"),
    )
}


def base() -> dict[str, Any]:
    spec = small()
    spec["terminationGracePeriodSeconds"] = 30
    spec["domain"]["cpu"]["maxSockets"] = 4
    spec["domain"]["memory"]["maxGuest"] = "4Gi"
    spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "one", "hotpluggable": True}})
    spec["volumes"].append({"name": "new", "persistentVolumeClaim": {"claimName": "new", "hotpluggable": True}})
    spec["domain"]["devices"]["disks"].append({"name": "data", "disk": {"bus": "scsi"}})
    return spec


def grow_cpu(spec: dict[str, Any]) -> None:
    spec["domain"]["cpu"]["sockets"] = 2


def shrink_memory(spec: dict[str, Any]) -> None:
    spec["domain"]["memory"]["guest"] = "512Mi"


def grow_memory(spec: dict[str, Any]) -> None:
    spec["domain"]["memory"]["guest"] = "2Gi"


def add_disk(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["disks"].insert(0, {"name": "new", "disk": {"bus": "scsi"}})


def remove_disk(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["disks"].pop(1)


def change_bus(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["disks"][1]["disk"]["bus"] = "virtio"


def change_claim(spec: dict[str, Any]) -> None:
    spec["volumes"][1]["persistentVolumeClaim"]["claimName"] = "two"


def link_down(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["interfaces"][0]["state"] = "down"


def unplug(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["interfaces"][0]["state"] = "absent"


def grace(spec: dict[str, Any]) -> None:
    spec["terminationGracePeriodSeconds"] = 5


def select(spec: dict[str, Any]) -> None:
    spec["nodeSelector"] = {"a": "b"}


def add_fixed_disk(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["disks"].append({"name": "fixed", "disk": {"bus": "scsi"}})


def fixed_image(spec: dict[str, Any]) -> None:
    spec["volumes"][0]["containerDisk"]["image"] = "y"


def beyond(spec: dict[str, Any]) -> None:
    spec["domain"]["cpu"]["sockets"] = 9


def plug_masquerade(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["interfaces"].append({"name": "more", "masquerade": {}})


def plug_bridge(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["interfaces"].append({"name": "more", "bridge": {}})


def want_rng(spec: dict[str, Any]) -> None:
    spec["domain"]["devices"]["rng"] = {}


@pytest.mark.parametrize(
    ("change", "field", "effect", "capability"),
    [
        (grow_cpu, "domain.cpu.sockets", "LIVE", "change.cpu"),
        (grow_memory, "domain.memory.guest", "LIVE", "change.memory"),
        (shrink_memory, "domain.memory.guest", "NEXT_START", ""),
        (add_disk, "domain.devices.disks[new]", "LIVE", "change.disk.attach"),
        (remove_disk, "domain.devices.disks[data]", "LIVE", "change.disk.detach"),
        (change_bus, "domain.devices.disks[data].disk.bus", "NEXT_START", ""),
        (change_claim, "volumes[data].persistentVolumeClaim.claimName", "LIVE", "change.disk.media"),
        (link_down, "domain.devices.interfaces[default].state", "LIVE", "change.nic.link"),
        (unplug, "domain.devices.interfaces[default].state", "NEXT_START", "change.nic.detach"),
        (grace, "terminationGracePeriodSeconds", "NEXT_START", ""),
        (select, "nodeSelector", "MOVE", "move.live"),
        (add_fixed_disk, "domain.devices.disks[fixed]", "NEXT_START", "change.disk.attach"),
        (fixed_image, "volumes[root].containerDisk.image", "NEXT_START", ""),
        (beyond, "domain.cpu.sockets", "NEXT_START", "change.cpu"),
        (plug_masquerade, "domain.devices.interfaces[more]", "NEXT_START", "change.nic.attach"),
        (plug_bridge, "domain.devices.interfaces[more]", "LIVE", "change.nic.attach"),
    ],
)
def test_effects(change: Any, field: str, effect: str, capability: str):
    old, new = base(), base()
    change(new)
    (found,) = classify(old, new, driver(LIVE).manifest)
    assert (found.field, found.effect, found.capability) == (field, effect, capability)


def test_a_machine_grows_into_the_room_that_it_began_with():
    old, new = base(), base()
    for spec in (old, new):
        del spec["domain"]["memory"]["maxGuest"]
    grow_memory(new)
    (found,) = classify(old, new, driver(LIVE).manifest)
    assert (found.effect, found.message.partition(";")[0]) == ("NEXT_START", "the machine began without maxGuest")
    running = {"domain": {"memory": {"maxGuest": "4Gi"}, "cpu": {"maxSockets": 16}}}
    filled = with_room(old, running), with_room(new, running)
    (found,) = classify(*filled, driver(LIVE).manifest)
    assert found.effect == "LIVE"
    assert filled[0]["domain"]["cpu"]["maxSockets"] == 4


def test_what_the_driver_does_only_cold_waits():
    new = base()
    grow_cpu(new)
    (found,) = classify(base(), new, driver({"change.cpu": {"when": "cold"}}).manifest)
    assert (found.effect, found.capability) == ("NEXT_START", "change.cpu")
    (found,) = classify(base(), new, driver().manifest)
    assert found.effect == "NEXT_START"
    assert "does not change it while the guest runs" in found.message


def test_what_the_new_plan_refuses_is_refused():
    new = base()
    want_rng(new)
    new["domain"]["devices"]["disks"][1]["disk"]["bus"] = "sata"
    installed = driver()
    made = plan(new, hypervisor_class(), installed)
    found = {change.field: change for change in classify(base(), new, installed.manifest, made)}
    assert {change.effect for change in found.values()} == {"REFUSED"}
    assert found["domain.devices.rng"].capability == "device.rng"


def test_nothing_changed():
    assert classify(base(), base(), driver().manifest) == ()


def without_null(value: Any) -> Any:
    """What JSON says where null is the same as absent."""
    if is_map(value):
        return {name: without_null(inner) for name, inner in value.items() if inner is not None}
    return value


@given(old=JSON, new=JSON)
def test_every_difference_is_found_and_nothing_else(old: Any, new: Any):
    left, right = {"domain": old}, {"domain": new}
    found = list(differences(left, right))
    assert bool(found) == (without_null(left) != without_null(right))
    assert list(differences(left, copy.deepcopy(left))) == [] or old != old  # NaN differs from itself
    assert all(before != after for _, before, after in found)
