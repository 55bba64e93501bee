"""Placement as tables: what a pod asks for, what the nodes are like, where it goes or why nowhere."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.scheduler.decide import Placement, Reasons, decide
from anyvisor.embedded.scheduler.views import Cluster, Node, Pod, PodSpec, requested

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(name: str = "p", node: str = "", labels: Json | None = None, namespace: str = "ns", **spec: Any) -> Pod:
    document = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"nodeName": node, **spec},
    }
    return msgspec.convert(document, Pod)


def asks(**requests: str) -> Json:
    return {"containers": [{"resources": {"requests": requests}}]}


def node(name: str, labels: Json | None = None, taints: list[Json] | None = None, **more: Any) -> Node:
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "10", **more.pop("allocatable", {})}
    document = {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": taints or [], **more.pop("spec", {})},
        "status": {"allocatable": allocatable, **more},
    }
    return msgspec.convert(document, Node)


def place(one: Pod, nodes: list[Node], pods: list[Pod] | None = None) -> str:
    answer = decide(one, Cluster.of(nodes, pods or []))
    return answer.node if isinstance(answer, Placement) else answer.message


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
IN_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({}, "a"),
        (asks(memory="5Gi"), "0/2 nodes are available: 2 Insufficient memory."),
        (asks(memory="5Gi", cpu="3"), "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."),
        (asks(**{"devices.kubevirt.io/kvm": "1"}), "b"),
        ({"containers": [{"resources": {"limits": {"devices.kubevirt.io/kvm": 1}}}]}, "b"),
        ({"nodeSelector": {"zone": "b"}}, "b"),
        (
            {"nodeSelector": {"zone": "c"}},
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
        ),
        ({"affinity": {"nodeAffinity": {REQUIRED: IN_A}}, **asks(cpu="1")}, "a"),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: IN_A}}, **asks(**{"devices.kubevirt.io/kvm": "1"})},
            "0/2 nodes are available: 1 Insufficient devices.kubevirt.io/kvm, "
            "1 node(s) didn't match Pod's node affinity/selector.",
        ),
        ({"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": IN_A["nodeSelectorTerms"][0]}]}}}, "a"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        PREFERRED: [
                            {
                                "weight": 5,
                                "preference": {
                                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]
                                },
                            }
                        ]
                    }
                }
            },
            "b",
        ),
    ],
)
def test_resources_and_nodes(spec: Json, answer: str) -> None:
    nodes = [node("b", {"zone": "b"}, allocatable={"devices.kubevirt.io/kvm": "110"}), node("a", {"zone": "a"})]
    assert place(pod(**spec), nodes) == answer


@pytest.mark.parametrize(
    ("rule", "labels", "matches"),
    [
        ({"key": "k", "operator": "In", "values": ["1", "2"]}, {"k": "2"}, True),
        ({"key": "k", "operator": "NotIn", "values": ["1"]}, {}, True),
        ({"key": "k", "operator": "Exists"}, {"k": ""}, True),
        ({"key": "k", "operator": "DoesNotExist"}, {"k": ""}, False),
        ({"key": "k", "operator": "Gt", "values": ["9"]}, {"k": "10"}, True),
        ({"key": "k", "operator": "Lt", "values": ["9"]}, {"k": "10"}, False),
        ({"key": "k", "operator": "Gt", "values": ["9"]}, {"k": "x"}, False),
        ({"key": "k", "operator": "Gt"}, {"k": "10"}, False),
        ({"key": "k", "operator": "Like", "values": ["1"]}, {"k": "1"}, False),
    ],
)
def test_node_affinity_operators(rule: Json, labels: Json, matches: bool) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [rule]}]}}}
    assert (place(pod(affinity=affinity), [node("n", labels)]) == "n") is matches


@pytest.mark.parametrize(
    ("tolerations", "placed"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "value": "yes"}], True),
        ([{"key": "gpu", "value": "no"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"value": "yes"}], False),
    ],
)
def test_tolerations(tolerations: list[Json], placed: bool) -> None:
    answer = place(pod(tolerations=tolerations), [node("n", taints=[TAINT])])
    assert answer == ("n" if placed else "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: yes}.")


@pytest.mark.parametrize(
    ("one", "answer"),
    [
        (node("n", spec={"unschedulable": True}), "1 node(s) were unschedulable"),
        (
            node("n", conditions=[{"type": "Ready", "status": "Unknown"}]),
            "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }",
        ),
        (node("n", allocatable={"pods": "0"}), "1 Too many pods"),
    ],
)
def test_nodes_that_take_nothing(one: Node, answer: str) -> None:
    assert place(pod(), [one]) == f"0/1 nodes are available: {answer}."
    assert place(pod(), []) == "0/0 nodes are available: no node is registered."


def test_soft_taints_and_free_room_decide_between_equals() -> None:
    soft = {"key": "k", "value": "v", "effect": "PreferNoSchedule"}
    assert place(pod(), [node("a", taints=[soft]), node("b")]) == "b"
    assert place(pod(), [node("a"), node("b")], [pod("x", "a", **asks(memory="1Gi"))]) == "b"


def near(app: str, key: str = "kubernetes.io/hostname", **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


NO_AFFINITY = "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
NO_ANTI_AFFINITY = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
TEAM_X, TEAM_Y = {"matchLabels": {"team": "x"}}, {"matchLabels": {"team": "y"}}


@pytest.mark.parametrize(
    ("kind", "term", "answer"),
    [
        ("podAffinity", near("web"), "b"),
        ("podAntiAffinity", near("web"), "a"),
        ("podAffinity", near("none"), NO_AFFINITY),
        ("podAntiAffinity", near("web", "zone"), NO_ANTI_AFFINITY),
        ("podAffinity", near("self"), "a"),
        ("podAffinity", near("self", "rack"), NO_AFFINITY),
        ("podAntiAffinity", near("web", namespaces=["other"]), "a"),
        ("podAffinity", near("far", namespaces=["other"]), "b"),
        ("podAffinity", near("far", namespaceSelector={}), "b"),
        ("podAffinity", near("far", namespaceSelector=TEAM_X), "b"),
        ("podAffinity", near("far", namespaceSelector=TEAM_Y), NO_AFFINITY),
    ],
)  # fmt: skip
def test_pod_affinity(kind: str, term: Json, answer: str) -> None:
    cluster = Cluster.of(
        [node("a", {"zone": "z"}), node("b", {"zone": "z"})],
        [pod("w", "b", {"app": "web"}), pod("f", "b", {"app": "far"}, namespace="other")],
    )
    cluster.namespaces = {"other": {"team": "x"}, "ns": {}}
    found = decide(pod("p", "", {"app": "self"}, affinity={kind: {REQUIRED: [term]}}), cluster)
    assert (found.node if isinstance(found, Placement) else found.message) == answer


def test_those_who_are_there_keep_others_out() -> None:
    alone = pod("alone", "a", affinity={"podAntiAffinity": {REQUIRED: [near("p")]}})
    message = "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
    assert place(pod(labels={"app": "p"}), [node("a")], [alone]) == message
    assert place(pod(labels={"app": "q"}), [node("a")], [alone]) == "a"


def test_match_label_keys_narrow_the_term() -> None:
    term = near("p", matchLabelKeys=["rev"])
    affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    there = pod("old", "a", {"app": "p", "rev": "1"})
    assert place(pod(labels={"app": "p", "rev": "2"}, affinity=affinity), [node("a")], [there]) == "a"
    assert "anti-affinity" in place(pod(labels={"app": "p", "rev": "1"}, affinity=affinity), [node("a")], [there])


def test_preferred_pod_terms_weigh() -> None:
    there = [pod("w", "a", {"app": "web"}, **asks(memory="2Gi"))]
    nodes = [node("a"), node("b")]
    together = {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": near("web")}]}}
    apart = {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": near("web")}]}}
    assert place(pod(affinity=together), nodes, there) == "a"
    assert place(pod(affinity=apart), nodes, there) == "b"


def test_topology_spread() -> None:
    rule: Json = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    rule["labelSelector"] = {"matchLabels": {"app": "w"}}
    nodes = [node("a", {"zone": "1"}), node("b", {"zone": "2"}), node("c")]
    there = [pod("w1", "a", {"app": "w"})]
    one = pod(labels={"app": "w"}, topologySpreadConstraints=[rule])
    assert place(one, nodes, there) == "b"
    full = [node("a", {"zone": "1"}), node("b", {"zone": "2"}, taints=[TAINT])]
    answer = place(one, full, there)
    assert "1 node(s) didn't match pod topology spread constraints" in answer


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "100m"}}}] * 2}, 200),
        ({"initContainers": [{"resources": {"requests": {"cpu": "1"}}}], **asks(cpu="200m")}, 1000),
        (
            {
                "initContainers": [
                    {"resources": {"requests": {"cpu": "300m"}}, "restartPolicy": "Always"},
                    {"resources": {"requests": {"cpu": "1"}}},
                ],
                **asks(cpu="200m"),
                "overhead": {"cpu": "50m"},
            },
            1350,
        ),
        (asks(cpu="nonsense"), 0),
    ],
)
def test_what_a_pod_requests(spec: Json, cpu: int) -> None:
    assert requested(msgspec.convert(spec, PodSpec)).get("cpu", 0) == cpu * 10**6


def test_the_ledger_follows_pods_and_nodes_in_any_order() -> None:
    cluster = Cluster()
    heavy = pod("h", "n", **asks(memory="4Gi"))
    cluster.put(heavy, "n")
    cluster.set_node(node("n"))
    light = pod("l", **asks(memory="1Gi"))
    assert isinstance(decide(light, cluster), Reasons)
    cluster.drop_node("n")
    cluster.set_node(node("n"))
    assert isinstance(decide(light, cluster), Reasons)
    assert cluster.take(heavy.key)
    assert decide(light, cluster) == Placement("n")
    assert cluster.nodes["n"].used["memory"] == 0


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(1, 3))
def test_no_node_is_ever_given_more_than_it_has(sizes: list[int], count: int) -> None:
    cluster = Cluster.of([node(f"n{number}") for number in range(count)])
    for number, size in enumerate(sizes):
        one = pod(f"p{number}", **asks(memory=f"{size}Gi"))
        answer = decide(one, cluster)
        room = max(4 - state.used.get("memory", 0) / 2**30 / 10**9 for state in cluster.nodes.values())
        assert isinstance(answer, Placement) is (size <= room)
        if isinstance(answer, Placement):
            cluster.put(one, answer.node)
    for state in cluster.nodes.values():
        assert state.used.get("memory", 0) <= state.allocatable["memory"]
