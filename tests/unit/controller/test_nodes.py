"""Instances and pods on nodes that do not answer."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anyvisor.controller.nodes import NodeState, answers, reconcile_node, until_unresponsive
from anyvisor.controller.outcome import Change, Delete

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def ago(**distance: float) -> str:
    return (NOW - timedelta(**distance)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(*, heartbeat: str = "", ready: str = "", tainted: bool = False) -> Json:
    marks = {"kubevirt.io/heartbeat": heartbeat} if heartbeat else {}
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": ready}] if ready else []
    taints = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}] if tainted else []
    return {
        "metadata": {"name": "n", "annotations": marks},
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }


def lease(renewed: str) -> Json:
    return {"metadata": {"name": "n"}, "spec": {"renewTime": renewed}}


def vmi(phase: str = "Running") -> Json:
    return {
        "metadata": {"name": "v", "namespace": "d", "uid": "vmi"},
        "status": {"phase": phase, "nodeName": "n"},
    }


def pod(phase: str = "Running", *, deleted: str = "", grace: int = 60) -> Json:
    metadata: Json = {"name": "p", "namespace": "d", "uid": "pod"}
    if deleted:
        metadata |= {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}
    return {"metadata": metadata, "status": {"phase": phase}}


SILENT = NodeState("n", node(), lease(ago(minutes=6)))
ALIVE = NodeState("n", node(), lease(ago(seconds=20)))
GONE = NodeState("n", None)
OUT_OF_SERVICE = NodeState("n", node(tainted=True), lease(ago(seconds=20)))


@pytest.mark.parametrize(
    ("state", "answering"),
    [
        (ALIVE, True),
        (SILENT, False),
        (GONE, False),
        (NodeState("n", node()), True),
        (NodeState("n", node(ready=ago(minutes=6))), False),
        (NodeState("n", node(heartbeat=ago(minutes=6)), lease(ago(seconds=1))), False),
        (NodeState("n", node(heartbeat="garbage"), lease(ago(seconds=1))), True),
    ],
)
def test_who_answers(state: NodeState, *, answering: bool) -> None:
    assert answers(state, NOW) is answering


def test_the_next_look_is_when_the_heartbeat_would_be_overdue() -> None:
    assert until_unresponsive(ALIVE, NOW) == 5 * 60 - 20 + 1
    assert until_unresponsive(SILENT, NOW) is None
    assert until_unresponsive(NodeState("n", node()), NOW) is None


@pytest.mark.parametrize("state", [SILENT, GONE])
@pytest.mark.parametrize("phase", ["Scheduled", "Running"])
def test_an_instance_without_a_running_pod_is_lost_with_its_node(state: NodeState, phase: str) -> None:
    outcome = reconcile_node(state, [vmi(phase)], {"vmi": [pod("Failed")]}, NOW, force=False)
    (write,) = outcome.writes
    assert isinstance(write, Change)
    assert (write.after["status"]["phase"], write.after["status"]["reason"]) == ("Failed", "NodeUnresponsive")
    assert [event.reason for event in outcome.events] == ["NodeUnresponsive"]


@pytest.mark.parametrize(
    ("state", "phase", "pods"),
    [(ALIVE, "Running", []), (SILENT, "Running", [pod()]), (SILENT, "Succeeded", []), (SILENT, "Scheduling", [])],
)
def test_an_instance_that_may_still_run_or_was_never_there_is_not_lost(
    state: NodeState, phase: str, pods: list[Json]
) -> None:
    assert reconcile_node(state, [vmi(phase)], {"vmi": pods}, NOW, force=False).writes == ()


@pytest.mark.parametrize(
    ("state", "force", "ends"),
    [(GONE, False, True), (OUT_OF_SERVICE, False, True), (SILENT, True, True), (SILENT, False, False)],
)
def test_a_pod_that_nobody_can_end_is_deleted_without_grace(state: NodeState, *, force: bool, ends: bool) -> None:
    deleted = ago(minutes=2)
    outcome = reconcile_node(state, [], {"vmi": [pod(deleted=deleted)]}, NOW, force=force)
    assert [write.grace for write in outcome.writes if isinstance(write, Delete)] == ([0] if ends else [])


def test_a_node_that_comes_back_at_once_may_end_its_pods_itself() -> None:
    asked = NOW - timedelta(seconds=10)
    deleted = (asked + timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
    outcome = reconcile_node(GONE, [], {"vmi": [pod(deleted=deleted)]}, NOW, force=False)
    assert (outcome.writes, outcome.requeue_after) == ((), 21)


def test_pods_on_a_node_out_of_service_go_unasked_and_others_do_not() -> None:
    assert len(reconcile_node(OUT_OF_SERVICE, [], {"vmi": [pod()]}, NOW, force=False).writes) == 1
    assert reconcile_node(GONE, [], {"vmi": [pod()]}, NOW, force=False).writes == ()
