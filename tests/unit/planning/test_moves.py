"""Whether a machine can move: each reason against it, and that nobody's silence counts as a yes."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from anyvisor.planning import findings
from anyvisor.planning.facts import DriverFacts, Narrowing, NodeFacts
from anyvisor.planning.moves import MoveAnswer, Running, Target, VolumeFacts, check_move, claims_of
from anyvisor.planning.planner import Driver
from tests.unit.planning.builders import driver, hypervisor_class, small
from tests.unit.planning.test_predicates import JSON

NAME = "test.example.org"
ALL = ["reset", "restart", "upgrade", "move"]
IDENTITY = dict.fromkeys(("uuid", "mac", "pci", "profile", "firmware-vars", "tpm-state"), ALL)
MOVING: dict[str, Any] = {
    **{name: {} for name in ("move.live", "move.paused", "cpu.model.host", "cpu.model.passthrough", "cpu.model.named")},
    **{name: {} for name in ("device.host", "device.gpu", "device.tpm", "nic.sriov", "fs.virtiofs", "memory.shared")},
    "fs.count": {"max": 4},
}


def able(capabilities: dict[str, Any] | None = None, **more: Any) -> Driver:
    """A driver that moves guests and keeps all that they are known by."""
    return driver({**MOVING, **(capabilities or {})}, **{"identity": IDENTITY, **more})


def node(name: str, *accelerators: str, **more: Any) -> NodeFacts:
    facts = DriverFacts(driver=NAME, accelerators=accelerators or ("kvm",), **more)
    return NodeFacts(name=name, drivers={facts.driver: facts})


NODES = [node("here"), node("there")]
SHARED = VolumeFacts(("ReadWriteMany",))


def spec() -> dict[str, Any]:
    made = small()
    made["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}]
    return made


def machine(**more: Any) -> Running:
    ours = more.pop("driver", able())
    said: dict[str, Any] = {
        "spec": spec(),
        "driver": ours,
        "version": ours.manifest.version,
        "hri_minor": 1,
        "node": "here",
        "accelerator": "kvm",
        "volumes": {"root": SHARED},
    }
    return Running(**{**said, **more})


def to(nodes: Any = NODES, **more: Any) -> Target:
    said: dict[str, Any] = {"hypervisor_class": hypervisor_class(), "driver": able(), "nodes": nodes, **more}
    return Target(**said)


def codes(found: MoveAnswer) -> list[str]:
    return [finding.code for finding in (*found.against_cold, *found.against_live)]


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    made = spec()
    change(made)
    return made


def devices(**more: Any) -> dict[str, Any]:
    return changed(lambda made: made["domain"]["devices"].update(more))


def volume(**source: Any) -> dict[str, Any]:
    return changed(lambda made: made["volumes"].append({"name": "more", **source}))


def cpu(model: str) -> dict[str, Any]:
    return changed(lambda made: made["domain"]["cpu"].update(model=model))


def test_a_machine_that_nothing_holds_moves_while_it_runs():
    for target in (to(), to(node="there")):
        found = check_move(machine(), target)
        assert (found.how, codes(found), found.notes) == ("live", [], ())
        assert found.plan.accepted


MODELS = [node("b", narrowed={"cpu.model.named": Narrowing(values=("EPYC", "Skylake"))})]
THERE = {"node": "there"}


def claim(*modes: str, nodes: tuple[str, ...] | None = None) -> dict[str, VolumeFacts]:
    return {"root": VolumeFacts(modes, nodes)}


@pytest.mark.parametrize(
    ("running", "target", "how", "expected"),
    [
        ({}, {"driver": driver(identity=IDENTITY)}, "cold", ["CAP_NOT_STATED"]),
        ({}, {"driver": able({"move.live": {"state": False, "note": "not yet"}})}, "cold", ["CAP_NO"]),
        ({"paused": True}, {}, "live", []),
        ({"paused": True}, {"driver": able({"move.paused": None})}, "cold", ["CAP_NOT_STATED"]),
        ({"node": ""}, {}, "cold", ["NOT_RUNNING"]),
        ({}, {"node": "here"}, "cold", ["CAP_NOT_STATED"]),
        ({}, {"node": "here", "driver": able({"move.local-handover": {}})}, "live", []),
        ({}, {"node": "nowhere"}, "no", ["NODE_LACKS", "NODE_LACKS"]),
        ({}, {"nodes": []}, "no", ["NODE_LACKS", "NODE_LACKS"]),
        ({}, {"nodes": [node("here")]}, "cold", ["NODE_LACKS"]),
        ({}, {"nodes": [node("here"), NodeFacts("there")], "node": "there"}, "no", ["DRIVER_ABSENT", "NODE_LACKS"]),
        ({}, {"nodes": [node("there", healthy=False)]}, "no", ["DRIVER_UNHEALTHY", "NODE_LACKS"]),
        ({"version": "1.0"}, {}, "cold", ["SKEW"]),
        ({"version": "1.0"}, {"driver": able(skew=[{"from": "1.0", "to": "*", "mode": "live"}])}, "live", []),
        ({"version": "1.0"}, {"driver": able(skew=[{"from": "*", "to": "1.2.3", "mode": "cold"}])}, "cold", ["SKEW"]),
        ({"version": "1.0"}, {"driver": able(skew=[{"from": "1.0", "to": "*", "mode": "local"}])}, "cold", ["SKEW"]),
        ({"hri_minor": 0}, {}, "cold", ["SKEW"]),
        ({"hri_minor": 2}, {}, "cold", ["SKEW"]),
        ({"accelerator": ""}, {}, "cold", ["ACCELERATOR_UNAVAILABLE"]),
        ({}, {"nodes": [node("here"), node("there", "emulation")]}, "cold", ["ACCELERATOR_UNAVAILABLE"]),
        ({"spec": cpu("host-passthrough")}, {}, "cold", ["IDENTITY_WOULD_CHANGE"]),
        ({"spec": cpu("host-model")}, {}, "cold", ["IDENTITY_WOULD_CHANGE"]),
        ({"spec": cpu("host-model"), "accelerator": "emulation"}, {"nodes": [node("b", "emulation")]}, "live", []),
        ({"spec": cpu("host-model"), "cpu_model": "EPYC"}, {"nodes": MODELS}, "live", []),
        ({"spec": cpu("host-model"), "cpu_model": "Turin"}, {"nodes": MODELS}, "cold", ["NODE_LACKS"]),
        ({"spec": cpu("EPYC")}, {"nodes": MODELS}, "live", []),
        ({"spec": cpu("Turin")}, {"nodes": MODELS}, "no", ["NODE_LACKS", "NODE_LACKS"]),
        ({"spec": devices(hostDevices=[{"name": "card", "deviceName": "v.com/x"}])}, {}, "cold", ["DEVICE_OF_NODE"]),
        ({"spec": devices(gpus=[{"name": "card", "deviceName": "v.com/x"}])}, {}, "cold", ["DEVICE_OF_NODE"]),
        ({"spec": devices(filesystems=[{"name": "root", "virtiofs": {}}])}, {}, "cold", ["DEVICE_OF_NODE"]),
        ({"volumes": {}}, {}, "cold", ["VOLUME_UNKNOWN"]),
        ({"volumes": claim("ReadWriteOnce")}, {}, "cold", ["VOLUME_NOT_SHARED"]),
        ({"volumes": claim("ReadWriteMany", nodes=("here",))}, THERE, "no", ["VOLUME_ELSEWHERE"]),
        ({"volumes": claim("ReadWriteMany", nodes=("there",))}, THERE, "live", []),
        ({"spec": volume(emptyDisk={"capacity": "1Gi"})}, {}, "cold", ["VOLUME_NOT_SHARED"]),
        ({"spec": volume(cloudInitNoCloud={"userData": "x"})}, {}, "live", []),
        ({"spec": volume(hostDisk={"path": "/x", "type": "Disk"})}, THERE, "no", ["VOLUME_ELSEWHERE"]),
    ],
)
def test_each_reason(running: dict[str, Any], target: dict[str, Any], how: str, expected: list[str]):
    found = check_move(machine(**running), to(**target))
    assert (found.how, codes(found)) == (how, expected)
    assert set(codes(found)) <= findings.CODES.keys()
    assert all(finding.message and finding.severity == "error" for finding in found.against_live)


def test_disks_that_the_driver_copies_need_not_be_shared():
    copying = able({"move.storage": {}})
    one_at_a_time = {"root": VolumeFacts(("ReadWriteOnce",))}
    assert check_move(machine(driver=copying, volumes=one_at_a_time), to(driver=copying)).how == "live"
    assert check_move(machine(volumes=one_at_a_time), to(driver=copying)).how == "cold"


def test_another_hypervisor_takes_a_machine_by_a_stop_and_says_what_the_guest_notices():
    promises = {"uuid": [*ALL, "driver-change"], "mac": [*ALL, "driver-change"]}
    other = able(driver="other.example.org", identity=promises)
    facts = DriverFacts(driver="other.example.org", accelerators=("kvm",))
    nodes = [NodeFacts("there", {facts.driver: facts})]
    found = check_move(machine(), to(nodes, driver=other))
    assert (found.how, found.against_cold) == ("cold", ())
    assert [finding.code for finding in found.against_live] == ["STATE_FORMAT"]
    assert [finding.want for finding in found.notes] == ["profile, pci"]


def test_an_identity_that_is_not_promised_bars_a_live_move_only_of_machines_that_have_it():
    forgetful = able({"device.tpm.persistent": {}}, identity={**IDENTITY, "tpm-state": ["reset"]})
    assert check_move(machine(), to(driver=forgetful)).how == "live"
    found = check_move(machine(spec=devices(tpm={"persistent": True})), to(driver=forgetful))
    assert ([f.want for f in found.against_live], found.how) == (["tpm-state"], "cold")
    assert [(f.want, f.severity) for f in found.notes] == [("tpm-state", "warn")]


def test_what_the_target_refuses_cannot_go_there_at_all():
    found = check_move(machine(), to(driver=able({"disk.bus": {"values": ["scsi"]}})))
    assert found.how == "no"
    assert [finding.capability for finding in found.against_cold] == ["disk.bus"]


def test_a_default_that_the_target_replaces_takes_a_start():
    asked = machine(spec=changed(lambda made: made["domain"]["machine"].update(type="q35")))
    small_target = able({"machine.profile": {"values": ["microvm"]}})
    found = check_move(replace(asked, defaulted={"domain.machine.type": "the default"}), to(driver=small_target))
    assert (found.how, codes(found)) == ("cold", ["IDENTITY_WOULD_CHANGE"])
    assert [one.field for one in found.plan.substitutions] == ["domain.machine.type"]


def test_claims_are_named_once():
    made = volume(dataVolume={"name": "root"})
    made["volumes"] += [{"name": "e", "ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}}, "odd"]
    assert claims_of(made) == ["root", "base"]


@given(JSON, JSON)
def test_no_machine_makes_it_raise_and_a_bar_is_a_bar(one: Any, two: Any):
    odd = copy.deepcopy(spec())
    odd["volumes"], odd["domain"]["devices"] = one, two
    found = check_move(machine(spec=odd), to())
    assert found == check_move(machine(spec=copy.deepcopy(odd)), to())
    assert (found.how == "no") == bool(found.against_cold)
    assert (found.how == "live") == (not found.against_cold and not found.against_live)
