"""What an installation tells of its components."""

from typing import Any

import pytest

from anyvisor.cluster import installer
from anyvisor.cluster.installer import Row

Json = dict[str, Any]


def deployment(generation: int = 2, **status: int) -> Json:
    return {"metadata": {"name": "d", "generation": generation}, "spec": {"replicas": 2}, "status": status}


def daemon_set(generation: int = 2, **status: int) -> Json:
    return {"metadata": {"name": "d", "generation": generation}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("kind", "obj", "row"),
    [
        ("Deployment", deployment(), (0, 2)),
        ("Deployment", deployment(observedGeneration=1, readyReplicas=2, updatedReplicas=2), (0, 2)),
        ("Deployment", deployment(observedGeneration=2, readyReplicas=2, updatedReplicas=1), (1, 2)),
        ("Deployment", deployment(observedGeneration=2, readyReplicas=2, updatedReplicas=2), (2, 2)),
        ("DaemonSet", daemon_set(), (0, 1)),
        ("DaemonSet", daemon_set(observedGeneration=2, desiredNumberScheduled=0), (0, 0)),
        (
            "DaemonSet",
            daemon_set(observedGeneration=2, desiredNumberScheduled=3, numberReady=3, updatedNumberScheduled=1),
            (1, 3),
        ),
    ],
)
def test_only_what_runs_in_the_version_that_was_applied_is_ready(kind: str, obj: Json, row: tuple[int, int]) -> None:
    assert installer._row(kind, obj) == Row(kind, "d", *row)


def test_components_are_upgraded_in_an_order_that_holds_all_of_them() -> None:
    apps = [installer._app(one) for one in installer.manifest() if one["kind"] in ("Deployment", "DaemonSet")]
    ranks = {app: [rank for rank, part in enumerate(installer._ORDER) if part in app] for app in apps}
    assert all(len(found) == 1 for found in ranks.values())
    assert ranks["anyvisor-gateway"] < ranks["anyvisor-controller"] < ranks["anyvisor-driver"] < ranks["anyvisor-agent"]


@pytest.mark.parametrize(
    ("strategy", "allowed"),
    [
        ({}, 3),
        ({"rollingUpdate": {"maxUnavailable": 2}}, 4),
        ({"rollingUpdate": {"maxUnavailable": "10%"}}, 4),
    ],
)
def test_nodes_that_do_not_answer_do_not_hold_the_others_back(strategy: Json, allowed: int) -> None:
    workload: Json = {"kind": "DaemonSet", "spec": {"updateStrategy": strategy, "template": {}}}
    made = installer.around(workload, 2, 15)
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == allowed
    assert made["spec"]["template"] == {}
    other: Json = {"kind": "Deployment", "spec": {}}
    assert installer.around(other, 2, 15) == other


def pod(owner: str, node: str, *, bound: bool = True) -> Json:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec: Json = {"affinity": {"nodeAffinity": required}}
    if bound:
        spec["nodeName"] = node
    return {"metadata": {"ownerReferences": [{"name": owner}]}, "spec": spec}


def test_only_a_daemon_sets_pods_on_silent_nodes_are_not_waited_for() -> None:
    pods = [pod("d", "a"), pod("d", "b"), pod("d", "c", bound=False), pod("other", "e")]
    assert installer.away(Row("DaemonSet", "d", 1, 3), pods, ["b", "c", "e"]) == {"b", "c"}
    assert installer.away(Row("DaemonSet", "d", 1, 3), pods, []) == set()
    assert installer.away(Row("Deployment", "d", 1, 3), pods, ["b"]) == set()
