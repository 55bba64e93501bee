"""Counter-offers: each would be accepted, the cheapest first, as a patch that can be applied."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings

from anyvisor.planning.judge import Policy
from anyvisor.planning.planner import plan
from anyvisor.planning.review import COSTS, Offer, Option, Question, counter_offers
from tests.unit.planning.builders import driver, hypervisor_class, small
from tests.unit.planning.test_planner import PIECES, STATEMENTS


def named(name: str, capabilities: dict[str, Any] | None = None, **more: Any) -> Option:
    entry = hypervisor_class()
    entry["metadata"]["name"] = name
    return Option(entry, driver(capabilities, **more))


def offers(spec: dict[str, Any], *options: Option, asked: str = "std", **more: Any) -> list[Offer]:
    return counter_offers(Question(spec, {}, **more), options, asked)


def applied(spec: dict[str, Any], offer: Offer) -> dict[str, Any]:
    changed = jsonpatch.apply_patch(spec, list(offer.patch))
    assert changed.pop("hypervisor", offer.hypervisor) == offer.hypervisor
    return changed


def with_devices(**devices: Any) -> dict[str, Any]:
    spec = small()
    spec["domain"]["devices"] |= devices
    return spec


def test_another_class_where_nothing_changes_comes_first():
    spec = with_devices(rng={})
    found = offers(spec, named("std"), named("big", {"device.rng": {}}, overhead={"fixed": "260Mi"}))
    assert [(o.hypervisor, o.cost) for o in found] == [("big", "none"), ("std", "visible")]
    assert found[0].message.startswith("set hypervisor: big; nothing changes for the guest; +")
    assert found[0].message.endswith("MiB of memory")
    assert found[0].patch == ({"op": "add", "path": "/hypervisor", "value": "big"},)


@pytest.mark.parametrize(
    ("devices", "cost", "patch"),
    [
        ({"rng": {}}, "visible", {"op": "remove", "path": "/domain/devices/rng"}),
        (
            {"autoattachGraphicsDevice": True},
            "feature",
            {"op": "replace", "path": "/domain/devices/autoattachGraphicsDevice", "value": False},
        ),
        (
            {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "b", "disk": {"bus": "sata"}}]},
            "visible",
            {"op": "replace", "path": "/domain/devices/disks/1/disk/bus", "value": "virtio"},
        ),
        (
            {"disks": [{"name": "root", "disk": {"bus": "virtio"}, "cache": "none"}]},
            "invisible",
            {"op": "remove", "path": "/domain/devices/disks/0/cache"},
        ),
        ({"gpus": [{"name": "a", "deviceName": "x/y"}]}, "feature", {"op": "remove", "path": "/domain/devices/gpus"}),
    ],
)
def test_a_change_of_the_machine_on_the_same_class(devices: dict[str, Any], cost: str, patch: dict[str, Any]):
    spec = with_devices(**devices)
    (offer,) = offers(spec, named("std"))
    assert (offer.cost, offer.hypervisor) == (cost, "std")
    assert offer.patch[-1] == patch
    assert offer.changes[0].field in offer.message


def test_several_lacks_are_remedied_together_and_no_more_than_needed():
    spec = with_devices(rng={}, sound={"name": "s", "model": "ich9"}, autoattachGraphicsDevice=True)
    (offer,) = offers(spec, named("std"))
    assert {change.field for change in offer.changes} == {
        "domain.devices.rng",
        "domain.devices.sound",
        "domain.devices.autoattachGraphicsDevice",
    }
    assert offer.cost == "feature"


def test_a_remedy_that_raises_a_new_need_is_followed():
    spec = small(firmware={"bootloader": {"bios": {}}})
    (offer,) = offers(spec, named("std", {"boot.bios": None, "boot.uefi": {}}))
    assert applied(spec, offer)["domain"]["firmware"]["bootloader"] == {"efi": {"secureBoot": False}}
    assert offer.plan is not None
    assert "boot.uefi" in offer.plan.confirmed


def test_nothing_is_offered_where_nothing_helps():
    assert offers(small(memory={"guest": "9Ti"}), named("std")) == []


def test_what_an_admin_can_do_comes_last():
    from anyvisor.planning.facts import DriverFacts, NodeFacts

    nodes = [NodeFacts("n", {"test.example.org": DriverFacts("test.example.org", accelerators=("emulation",))})]
    strict = hypervisor_class(policy={"allowEmulation": False})
    found = counter_offers(Question(small(), {}, nodes), [Option(strict, driver()), named("loose")], "std")
    assert [o.cost for o in found] == ["none", "admin", "admin"]
    assert "allowEmulation" in found[-1].message


def test_policy_and_defaults_are_those_of_the_question():
    spec = with_devices(rng={})
    experimental = named("lab", {"device.rng": {"level": "experimental"}})
    assert [o.hypervisor for o in offers(spec, named("std"), experimental) if o.cost == "none"] == []
    found = offers(spec, named("std"), experimental, policy=Policy(allow_experimental=True))
    assert [o.hypervisor for o in found if o.cost == "none"] == ["lab"]


@settings(deadline=None, max_examples=60)
@given(domain=PIECES, one=STATEMENTS, two=STATEMENTS)
def test_an_offer_that_is_applied_is_accepted(domain: dict[str, Any], one: dict[str, Any], two: dict[str, Any]):
    spec = {"domain": domain}
    options = [named("std", one), named("other", two)]
    found = offers(spec, *options)
    assert [COSTS.index(offer.cost) for offer in found] == sorted(COSTS.index(offer.cost) for offer in found)
    for offer in found:
        option = next(o for o in options if o.hypervisor_class["metadata"]["name"] == offer.hypervisor)
        assert plan(applied(spec, offer), option.hypervisor_class, option.driver).accepted
