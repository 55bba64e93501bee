"""An instance through its life, pass by pass, where recordings do not reach: refusals, at most one pod, endings."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.controller.launch import Launch, Refusal
from anyvisor.controller.outcome import Change, Create, Delete, Outcome
from anyvisor.controller.vmi.reconcile import reconcile_vmi
from anyvisor.controller.vmi.world import VmiWorld

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SEEN = {"kubevirt.io/latest-observed-api-version": "v1", "kubevirt.io/storage-observed-api-version": "v1"}
FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"


def launch(_: Json) -> Launch | Refusal:
    return Launch(image="i", overhead_bytes=1 << 20)


def refuse(_: Json) -> Launch | Refusal:
    return Refusal("ClassNotFound", "There is no hypervisor class 'x'.")


def never(_: Json) -> Launch | Refusal:
    raise AssertionError("planned without need")


def vmi(phase: str = "", *, deleted: bool = False, **status: Any) -> Json:
    metadata: Json = {"name": "a", "namespace": "d", "uid": "i", "annotations": SEEN, "finalizers": [FINALIZER]}
    if deleted:
        metadata["deletionTimestamp"] = "2026-06-01T11:59:00Z"
    spec: Json = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def pod(phase: str = "Running", *, deleted: bool = False, uid: str = "p", node: str = "n") -> Json:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "a", "uid": "i"}
    metadata: Json = {
        "name": f"virt-launcher-a-{uid}",
        "namespace": "d",
        "uid": uid,
        "creationTimestamp": "2026-06-01T11:00:00Z",
        "ownerReferences": [{**owner, "controller": True}],
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-06-01T11:59:00Z"
    state: Json = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [{"name": "compute", "image": "i"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "compute", "ready": True, "state": state}]},
    }


def run(obj: Json, *pods: Json, plan: Callable[[Json], Launch | Refusal] = never) -> Outcome:
    return reconcile_vmi(VmiWorld(vmi=obj, now=NOW, plan=plan, pods=pods))


def pods_made(outcome: Outcome) -> int:
    return sum(isinstance(one, Create) for one in outcome.writes)


def deleted(outcome: Outcome) -> list[str]:
    return [one.object["metadata"]["uid"] for one in outcome.writes if isinstance(one, Delete)]


def after(outcome: Outcome) -> Json:
    changes = [one for one in outcome.writes if isinstance(one, Change) and "Instance" in one.resource.kind]
    return changes[-1].after


def synchronized(obj: Json) -> Json:
    found: list[Json] = [one for one in obj["status"]["conditions"] if one["type"] == "Synchronized"]
    return found[0] if found else {}


def test_a_refusal_is_a_condition_and_an_event_and_waits_for_a_change() -> None:
    outcome = run(vmi(), plan=refuse)
    assert pods_made(outcome) == 0
    said = synchronized(after(outcome))
    assert (said["status"], said["reason"]) == ("False", "ClassNotFound")
    assert said["message"] == "There is no hypervisor class 'x'."
    assert [(event.type, event.reason) for event in outcome.events] == [("Warning", "ClassNotFound")]
    assert outcome.problem is None
    again = run(after(outcome), plan=refuse)
    assert again.events == ()
    assert again.writes == ()


def test_a_refusal_is_over_when_the_plan_is_accepted() -> None:
    outcome = run(after(run(vmi(), plan=refuse)), plan=launch)
    assert pods_made(outcome) == 1
    assert synchronized(after(outcome)) == {}


@pytest.mark.parametrize("found", [pod("Pending"), pod(), pod(deleted=True), pod("Failed"), pod("Succeeded")])
@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"])
def test_there_is_no_second_pod_while_one_is_there(phase: str, found: Json) -> None:
    assert pods_made(run(vmi(phase, nodeName="n"), found)) == 0


@pytest.mark.parametrize("phase", ["Scheduling", "Scheduled", "Running", "Succeeded", "Failed"])
def test_an_instance_whose_pod_is_gone_never_gets_another(phase: str) -> None:
    outcome = run(vmi(phase, nodeName="n"))
    assert pods_made(outcome) == 0
    assert after(outcome)["status"]["phase"] == ("Succeeded" if phase == "Succeeded" else "Failed")


@pytest.mark.parametrize("phase", ["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"])
def test_deletion_ends_in_every_phase(phase: str) -> None:
    obj, found = vmi(phase, deleted=True, nodeName="n"), [pod()]
    asked = run(obj, *found)
    assert deleted(asked) == ["p"]
    for _ in range(4):
        outcome = run(obj)
        assert pods_made(outcome) == 0
        if not outcome.writes:
            break
        obj = after(outcome)
    assert FINALIZER not in obj["metadata"]["finalizers"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_finalizer_stays_while_a_pod_is_left(phase: str) -> None:
    obj = vmi(phase, deleted=True, nodeName="n", activePods={"p": "n"})
    assert after(run(obj, pod(deleted=True)))["metadata"]["finalizers"] == [FINALIZER]


def test_active_pods_are_those_that_exist() -> None:
    outcome = run(vmi("Scheduling"), pod(uid="p"), pod("Failed", uid="q"))
    assert after(outcome)["status"]["activePods"] == {"p": "n", "q": "n"}


def test_the_hand_over_names_node_and_plan() -> None:
    obj = after(run(vmi("Scheduling"), pod()))
    assert (obj["status"]["phase"], obj["status"]["nodeName"]) == ("Scheduled", "n")
    assert obj["metadata"]["labels"]["kubevirt.io/nodeName"] == "n"


def test_pods_of_others_do_not_count() -> None:
    foreign = pod()
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other"
    outcome = run(vmi(), foreign, plan=launch)
    assert pods_made(outcome) == 1
    assert deleted(outcome) == []
