"""MachineReview: verdicts and counter-offers, from the manifests of the drivers that are here."""

from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.gateway.answers import Refused, message_of
from anyvisor.gateway.review import Offered, parse_review, review
from anyvisor.hri.packages import load
from anyvisor.planning.facts import node_facts

Json = dict[str, Any]
DOMAIN_OF_FOUR: Json = {"cpu": {"sockets": 4}, "memory": {"guest": "64Mi"}, "devices": {}}
PATH = "/apis/reviews.anyvisor.io/v1alpha1/namespaces/default/machinereviews"


@pytest.fixture(scope="module")
def manifest() -> Json:
    return dict(load("qemu").manifest)


def offered(manifest: Json, **capabilities: Any) -> Offered:
    """Two classes: `full` as the manifest says, `small` without some of its capabilities."""
    small = {**manifest, "driver": "small", "capabilities": {**manifest["capabilities"], **capabilities}}
    drivers = [
        {"metadata": {"name": manifest["driver"]}, "spec": {"manifest": manifest}},
        {"metadata": {"name": "small"}, "spec": {"manifest": small}},
    ]
    classes = [
        {"metadata": {"name": "full"}, "spec": {"driver": manifest["driver"]}},
        {"metadata": {"name": "small"}, "spec": {"driver": "small", "default": True}},
    ]
    stated = [{"driver": name, "healthy": True, "accelerators": ["kvm"]} for name in (manifest["driver"], "small")]
    nodes = [node_facts({"metadata": {"name": "n"}, "status": {"drivers": stated}})]
    return Offered(classes, drivers, nodes, ClusterConfig.of())


def machine(kind: str = "VirtualMachineInstance", **spec: Any) -> Json:
    wanted = {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}, **spec}
    return {"kind": kind, "spec": wanted if kind == "VirtualMachineInstance" else {"template": {"spec": wanted}}}


def judged(body: Json, what: Offered) -> Json:
    found = review(body, "default", what)
    assert found.status == 201
    assert isinstance(found.body, dict)
    return found.body["status"]


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance"])
def test_a_plain_machine_runs_on_the_default_class(manifest: Json, kind: str) -> None:
    status = judged({"spec": {"machine": machine(kind)}}, offered(manifest))
    assert (status["class"], status["verdict"], status["offers"]) == ("small", "SATISFIED", [])
    assert [each["class"] for each in status["classes"]] == ["full", "small"]
    assert all(each["memoryBytes"] > 64 * 2**20 for each in status["classes"])


def test_a_refusal_says_why_and_what_would_work(manifest: Json) -> None:
    what = offered(manifest, **{"cpu.count": {"state": "yes", "max": 2}})
    status = judged({"spec": {"machine": machine(domain=DOMAIN_OF_FOUR)}}, what)
    verdicts = {each["class"]: each["verdict"] for each in status["classes"]}
    assert verdicts == {"full": "SATISFIED", "small": "REFUSED"}
    assert status["verdict"] == "REFUSED"
    small = next(each for each in status["classes"] if each["class"] == "small")
    refusals = [one for one in small["findings"] if one["severity"] == "error"]
    assert [(one["code"], one["have"], one["want"]) for one in refusals] == [("LIMIT_EXCEEDED", "2", "4")]
    full = next(each for each in status["classes"] if each["class"] == "full")
    first = status["offers"][0]
    assert (first["class"], first["cost"]) == ("full", "invisible" if full["substitutions"] else "none")
    assert first["message"].startswith("set hypervisor: full; ")
    assert first["patch"] == [{"op": "add", "path": "/hypervisor", "value": "full"}]


def test_auto_takes_the_first_class_that_accepts(manifest: Json) -> None:
    what = offered(manifest, **{"cpu.count": {"state": "yes", "max": 2}})
    status = judged({"spec": {"machine": machine(domain=DOMAIN_OF_FOUR, hypervisor="auto")}}, what)
    assert (status["class"], status["verdict"]) == ("full", "SATISFIED")


def test_only_the_classes_that_are_asked_for_are_judged(manifest: Json) -> None:
    body = {"spec": {"machine": machine(), "classes": ["full", "unheard", "full"]}}
    status = judged(body, offered(manifest))
    assert [(each["class"], each["verdict"]) for each in status["classes"]] == [
        ("full", "SATISFIED"),
        ("unheard", "REFUSED"),
    ]
    assert status["classes"][1]["findings"][0]["code"] == "ClassNotFound"


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({}, 400, "spec.machine must hold"),
        ({"kind": "Pod"}, 400, "not a Pod"),
        ({"spec": {"machine": {"kind": "Pod"}}}, 400, "spec.machine.kind is 'Pod'"),
        ({"spec": {"machine": machine(), "classes": [str(n) for n in range(99)]}}, 400, "at most 64"),
        ({"spec": {"machine": machine(domain={"cpu": {"cores": -1}, "devices": {}})}}, 422, "refused on any"),
    ],
)
def test_reviews_that_cannot_be_answered(manifest: Json, body: Json, status: int, says: str) -> None:
    with pytest.raises(Refused) as caught:
        review(body, "default", offered(manifest))
    assert caught.value.decision.status == status
    assert says in message_of(caught.value.decision)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", PATH, 405), ("POST", f"{PATH}/name", 404), ("POST", PATH.replace("v1alpha1", "v1"), 404)],
)
def test_a_review_is_only_created(method: str, path: str, status: int) -> None:
    with pytest.raises(Refused) as caught:
        parse_review(method, path, b"")
    assert caught.value.decision.status == status
    assert parse_review("POST", PATH, b"{}").namespace == "default"
