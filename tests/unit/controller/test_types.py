"""VMs with an instance type and a preference, and what a VM keeps of the instance that it started."""

from datetime import UTC, datetime
from typing import Any

from anyvisor.controller.outcome import Change, Create, Outcome
from anyvisor.controller.vm.reconcile import reconcile_vm
from anyvisor.controller.vm.world import VmWorld

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SEEN = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}
PREFERENCE = {"metadata": {"name": "p", "uid": "q", "generation": 1}}
TYPE = {"metadata": {"name": "t", "uid": "t", "generation": 1}, "spec": {"cpu": {"guest": 4}}}


def one_pass(domain: Json, strategy: str = "Always", types: Json | None = None, vmi: Json | None = None) -> Outcome:
    known = types or {}
    metadata: Json = {"name": "a", "namespace": "d", "uid": "u", "generation": 1, "annotations": SEEN}
    metadata["finalizers"] = ["kubevirt.io/virtualMachineControllerFinalize"]
    references = {field: {"name": one["metadata"]["name"]} for field, one in known.items() if one}
    spec = {"runStrategy": strategy, "template": {"spec": {"domain": domain}}, **references}
    vm = {"metadata": metadata, "spec": spec, "status": {}}
    return reconcile_vm(VmWorld(vm=vm, vmi=vmi, now=NOW, jitter=lambda _: 0, types=known))


def created(outcome: Outcome) -> list[Json]:
    return [one.object for one in outcome.writes if isinstance(one, Create) and one.resource.kind[-8:] == "Instance"]


def specs(outcome: Outcome) -> list[Json]:
    return [one.after["spec"] for one in outcome.writes if isinstance(one, Change) and not one.status]


def test_a_vm_keeps_the_uuid_of_its_guest() -> None:
    (first,) = created(one_pass({"devices": {}}))
    uuid = first["spec"]["domain"]["firmware"]["uuid"]
    (kept,) = specs(one_pass({"devices": {}}, "Halted"))
    assert kept["template"]["spec"]["domain"]["firmware"]["uuid"] == uuid
    assert specs(one_pass({"devices": {}, "firmware": {"uuid": uuid}}, "Halted")) == []


def test_what_template_and_instance_type_both_say_is_refused_whatever_the_vm_is_to_do() -> None:
    for strategy in ("Always", "Halted"):
        outcome = one_pass({"devices": {}, "cpu": {"cores": 2}}, strategy, {"instancetype": TYPE})
        assert created(outcome) == []
        assert outcome.problem is not None
        assert "spec.template.spec.domain.cpu.cores" in outcome.problem.message
        assert [event.reason for event in outcome.events] == ["FailedCreate"]


def test_too_small_a_guest_hinders_only_the_start() -> None:
    large = {"preference": {**PREFERENCE, "spec": {"requirements": {"cpu": {"guest": 8}}}}}
    outcome = one_pass({"devices": {}}, "Always", large)
    assert created(outcome) == []
    assert outcome.problem is not None
    assert "requires 8 vCPU" in outcome.problem.message
    assert one_pass({"devices": {}}, "Halted", large).problem is None


def test_a_missing_instance_type_is_a_condition_without_an_event() -> None:
    outcome = one_pass({"devices": {}}, "Halted", {"instancetype": None, "preference": {**PREFERENCE, "spec": {}}})
    assert outcome.problem is None
    metadata: Json = {"name": "a", "namespace": "d", "uid": "u", "annotations": SEEN}
    spec: Json = {"runStrategy": "Halted", "template": {"spec": {}}, "instancetype": {"name": "gone"}}
    vm: Json = {"metadata": metadata, "spec": spec}
    missing = reconcile_vm(VmWorld(vm=vm, vmi=None, now=NOW, jitter=lambda _: 0))
    assert missing.problem is not None
    assert missing.problem.reason == "FailedFindInstancetype"
    assert missing.events == ()


def test_a_preference_shapes_what_the_start_adds() -> None:
    devices = {"preferredAutoattachInputDevice": True, "preferredInputType": "tablet", "preferredInputBus": "virtio"}
    (vmi,) = created(one_pass({"devices": {}}, "Always", {"preference": {**PREFERENCE, "spec": {"devices": devices}}}))
    assert vmi["spec"]["domain"]["devices"]["inputs"] == [{"name": "default-0", "type": "tablet", "bus": "virtio"}]


def test_cores_are_spread_by_the_ratio_of_earlier_versions() -> None:
    wishes = {"cpu": {"preferredCPUTopology": "preferSpread"}, "preferSpreadSocketToCoreRatio": 4}
    types = {"instancetype": TYPE, "preference": {**PREFERENCE, "spec": wishes}}
    (vmi,) = created(one_pass({"devices": {}}, "Always", types))
    assert {**vmi["spec"]["domain"]["cpu"]} == {"sockets": 1, "cores": 4, "threads": 1}


def test_only_a_virtio_disk_gets_a_thread_by_preference() -> None:
    disks = [{"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "disk": {"bus": "sata"}}]
    preference = {**PREFERENCE, "spec": {"devices": {"preferredDiskDedicatedIoThread": True}}}
    (vmi,) = created(one_pass({"devices": {"disks": disks}}, "Always", {"preference": preference}))
    assert [disk.get("dedicatedIOThread") for disk in vmi["spec"]["domain"]["devices"]["disks"]] == [True, None]
