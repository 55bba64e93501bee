"""Changes of a running VM's template: carried over where possible, else announced as needing a restart."""

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.controller.outcome import Change, Outcome
from anyvisor.controller.settings import Settings
from anyvisor.controller.vm.reconcile import reconcile_vm
from anyvisor.controller.vm.world import VmWorld
from anyvisor.planning.changes import classify
from anyvisor.planning.registry import registry
from tests.unit.planning.builders import driver

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SEEN = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}
CLAIM = {"claimName": "extra", "hotpluggable": True}


def template() -> Json:
    return {
        "domain": {
            "cpu": {"sockets": 1, "cores": 2, "threads": 1, "maxSockets": 4},
            "memory": {"guest": "1Gi", "maxGuest": "4Gi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
            "resources": {"requests": {"memory": "1Gi", "cpu": "200m"}},
            "firmware": {"uuid": "6c0c9f3e-0000-4000-8000-000000000001"},
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "x"}}],
    }


def world(change: Callable[[Json], object], config: Json | None = None, **status: Any) -> VmWorld:
    """A VM that runs, whose template was then changed."""
    then, now = template(), template()
    change(now)
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "a", "uid": "u", "controller": True}
    vm = {
        "metadata": {
            "name": "a",
            "namespace": "d",
            "uid": "u",
            "generation": 2,
            "annotations": SEEN,
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
        },
        "spec": {"runStrategy": "Always", "template": {"spec": now}},
        "status": {},
    }
    vmi = {
        "metadata": {
            "name": "a",
            "namespace": "d",
            "uid": "i",
            "annotations": {"kubevirt.io/vm-generation": "1"},
            "ownerReferences": [owner],
        },
        "spec": copy.deepcopy(then),
        "status": {
            "phase": "Running",
            "virtualMachineRevisionName": "revision-start-vm-u-1",
            "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
            "conditions": [{"type": "LiveMigratable", "status": "True"}],
            **status,
        },
    }
    started = {
        "metadata": {"name": "revision-start-vm-u-1", "namespace": "d", "ownerReferences": [owner]},
        "data": {"spec": {"runStrategy": "Always", "template": {"spec": then}}},
        "revision": 1,
    }
    return VmWorld(
        vm=vm,
        vmi=vmi,
        now=NOW,
        jitter=lambda _: 0,
        revisions={"revision-start-vm-u-1": started},
        settings=Settings(config or {}),
    )


def instance_after(outcome: Outcome) -> Json | None:
    found = [one.after for one in outcome.writes if isinstance(one, Change) and one.resource.kind.endswith("Instance")]
    return found[-1]["spec"] if found else None


def restart_required(outcome: Outcome) -> bool:
    statuses = [one.after["status"] for one in outcome.writes if isinstance(one, Change) and one.status]
    conditions: list[Json] = statuses[-1].get("conditions") or [] if statuses else []
    return any(one["type"] == "RestartRequired" and one["status"] == "True" for one in conditions)


def more_sockets(spec: Json) -> None:
    spec["domain"]["cpu"]["sockets"] = 3


def more_memory(spec: Json) -> None:
    spec["domain"]["memory"]["guest"] = "2Gi"


def select_nodes(spec: Json) -> None:
    spec["nodeSelector"] = {"zone": "b"}


def plug_volume(spec: Json) -> None:
    spec["volumes"].append({"name": "extra", "persistentVolumeClaim": CLAIM})
    spec["domain"]["devices"]["disks"].append({"name": "extra", "disk": {"bus": "scsi"}})


def plug_interface(spec: Json) -> None:
    spec["networks"].append({"name": "blue", "multus": {"networkName": "blue"}})
    spec["domain"]["devices"]["interfaces"].append({"name": "blue", "bridge": {}})


def respell_memory(spec: Json) -> None:
    spec["domain"]["memory"]["guest"] = "1024Mi"


def add_empty_list(spec: Json) -> None:
    spec["tolerations"] = []


Edit = Callable[[Json], object]
LIVE: list[tuple[Edit, Callable[[Json], bool]]] = [
    (more_sockets, lambda spec: spec["domain"]["cpu"]["sockets"] == 3),
    (more_sockets, lambda spec: spec["domain"]["resources"]["requests"]["cpu"] == "600m"),
    (more_memory, lambda spec: spec["domain"]["memory"]["guest"] == "2Gi"),
    (more_memory, lambda spec: spec["domain"]["resources"]["requests"]["memory"] == "2Gi"),
    (select_nodes, lambda spec: spec["nodeSelector"] == {"zone": "b"}),
    (plug_volume, lambda spec: spec["volumes"][-1]["name"] == "extra"),
    (plug_volume, lambda spec: spec["domain"]["devices"]["disks"][-1]["disk"]["bus"] == "scsi"),
    (plug_interface, lambda spec: spec["domain"]["devices"]["interfaces"][-1]["name"] == "blue"),
    (plug_interface, lambda spec: spec["networks"][-1]["name"] == "blue"),
]


@pytest.mark.parametrize(("change", "reads"), LIVE)
def test_live_changes_reach_the_instance(change: Edit, reads: Callable[[Json], bool]) -> None:
    outcome = reconcile_vm(world(change))
    assert not restart_required(outcome)
    spec = instance_after(outcome)
    assert spec is not None
    assert reads(spec)


def bridge(spec: Json) -> None:
    spec["domain"]["devices"]["interfaces"][0] = {"name": "default", "bridge": {}}


def no_console(spec: Json) -> None:
    spec["domain"]["devices"]["autoattachSerialConsole"] = False


RESTART: dict[str, Edit] = {
    "cores": lambda spec: spec["domain"]["cpu"].update(cores=4),
    "above maxSockets": lambda spec: spec["domain"]["cpu"].update(sockets=8),
    "above maxGuest": lambda spec: spec["domain"]["memory"].update(guest="8Gi"),
    "less memory": lambda spec: spec["domain"]["memory"].update(guest="512Mi"),
    "rng": lambda spec: spec["domain"]["devices"].update(rng={}),
    "no console": no_console,
    "binding": bridge,
    "image": lambda spec: spec["volumes"][0]["containerDisk"].update(image="y"),
    "volume gone": lambda spec: spec.update(volumes=[]),
    "hostname": lambda spec: spec.update(hostname="h"),
    "uuid": lambda spec: spec["domain"]["firmware"].update(uuid="6c0c9f3e-0000-4000-8000-000000000002"),
}


@pytest.mark.parametrize("change", RESTART.values(), ids=RESTART.keys())
def test_other_changes_need_a_restart(change: Edit) -> None:
    outcome = reconcile_vm(world(change))
    assert restart_required(outcome)
    assert instance_after(outcome) is None


def effects(change: Edit) -> set[str]:
    """What the planner says of the change, for a driver that can do all that may be done live."""
    stated: dict[str, Any] = {capability.id: {} for capability in registry() if capability.id.startswith("change.")}
    then, now = template(), template()
    change(now)
    return {one.effect for one in classify(then, now, driver(stated).manifest)}


@pytest.mark.parametrize("change", [edit for edit, _ in LIVE])
def test_what_is_carried_is_live_for_the_planner_too(change: Edit) -> None:
    assert effects(change) <= {"LIVE", "MOVE"}


@pytest.mark.parametrize("change", RESTART.values(), ids=RESTART.keys())
def test_what_needs_a_restart_takes_effect_then_for_the_planner_too(change: Edit) -> None:
    assert "NEXT_START" in effects(change)


@pytest.mark.parametrize("change", [respell_memory, add_empty_list])
def test_what_means_the_same_is_no_change(change: Edit) -> None:
    assert not restart_required(reconcile_vm(world(change)))


@pytest.mark.parametrize("change", [more_sockets, more_memory, select_nodes])
def test_staged_rollout_waits_for_the_restart(change: Edit) -> None:
    outcome = reconcile_vm(world(change, {"vmRolloutStrategy": "Stage"}))
    assert restart_required(outcome)
    assert instance_after(outcome) is None


def test_memory_comes_where_the_guest_is_without_a_move() -> None:
    there = {"class": "qemu", "driver": "qemu.anyvisor.io"}
    outcome = reconcile_vm(world(more_memory, conditions=[], hypervisor=there))
    assert not restart_required(outcome)
    assert instance_after(outcome) is not None
    assert restart_required(reconcile_vm(world(more_memory, conditions=[])))


def test_a_second_change_of_memory_waits_for_the_first() -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("LiveMigratable", "HotMemoryChange")]
    outcome = reconcile_vm(world(more_memory, conditions=conditions))
    assert outcome.problem is not None
    assert instance_after(outcome) is None
