"""MachineReview: verdicts and counter-offers, from the manifests of the drivers that are here."""

from dataclasses import replace
from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.gateway import moves
from anyvisor.gateway.answers import Refused, message_of
from anyvisor.gateway.review import Offered, parse_review, review
from anyvisor.hri.packages import load
from anyvisor.planning.facts import node_facts
from anyvisor.planning.manifest import digest
from anyvisor.planning.moves import VolumeFacts

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


def running(**status: Any) -> Json:
    """An instance of class full, with a claim, as its object tells."""
    obj = machine(volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}])
    obj["spec"]["domain"]["devices"] = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    hypervisor = {"class": "full", "hriMinor": 1, "accelerator": "kvm"}
    return {**obj, "status": {"nodeName": "n", "hypervisor": hypervisor, **status}}


def moved(manifest: Json, to: Json, machine: Json | None = None) -> Json:
    what = replace(offered(manifest), volumes={"root": VolumeFacts(("ReadWriteOnce",))})
    return judged({"spec": {"machine": machine or running(), "moveTo": to}}, what)["move"]


def test_a_move_is_answered_with_what_bars_it(manifest: Json) -> None:
    found = moved(manifest, {"class": "small"})
    assert (found["class"], found["node"], found["how"]) == ("small", "", "cold")
    bars = {finding["code"]: finding["bars"] for finding in found["findings"]}
    assert bars == {"STATE_FORMAT": "live", "IDENTITY_WOULD_CHANGE": "nothing"}
    within = {finding["code"]: finding["bars"] for finding in moved(manifest, {"node": "n"})["findings"]}
    assert within["CAP_NOT_STATED"] == "live"
    assert "VOLUME_NOT_SHARED" not in within  # the volume stays where it is


def test_a_move_to_a_node_stays_in_the_class(manifest: Json) -> None:
    found = moved(manifest, {"node": "elsewhere"})
    assert (found["class"], found["node"], found["how"]) == ("full", "elsewhere", "no")
    assert found["findings"][0]["code"] == "NODE_LACKS"
    assert found["findings"][0]["bars"] == "cold"


def test_a_move_to_a_class_that_is_not_there(manifest: Json) -> None:
    found = moved(manifest, {"class": "unheard"})
    assert (found["how"], found["findings"][0]["code"]) == ("no", "ClassNotFound")


def test_a_vm_that_does_not_run_moves_by_its_start(manifest: Json) -> None:
    found = moved(manifest, {"class": "small"}, machine("VirtualMachine", hypervisor="full"))
    assert found["how"] == "cold"
    assert "NOT_RUNNING" in [finding["code"] for finding in found["findings"]]


def test_no_move_is_answered_that_nobody_asked_for(manifest: Json) -> None:
    assert "move" not in judged({"spec": {"machine": running()}}, offered(manifest))


def test_facts_of_claims_that_a_move_needs() -> None:
    body: Json = {"spec": {"machine": running(), "moveTo": {"node": "n"}}}
    assert moves.claims(body) == ["root"]
    assert moves.claims({"spec": {"machine": running()}}) == []
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1", "n2"]}
    bound = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}}
    claim: Json = {"spec": {"accessModes": ["ReadWriteOnce"]}}
    assert moves.volume_facts(claim, bound) == VolumeFacts(("ReadWriteOnce",), ("n1", "n2"))
    assert moves.volume_facts(claim, {"spec": {}}) == moves.volume_facts(claim, None)


def test_what_is_proven_and_what_is_only_claimed(manifest: Json) -> None:
    package = load("qemu")
    bare = judged({"spec": {"machine": machine()}}, offered(manifest))["classes"]
    assert all(each["claimed"] == each["confirmed"] for each in bare)
    proof = {
        "suite": {"name": "anyvisor-conform"},
        "manifest_digest": digest(dict(package.manifest)),
        "results": [{"id": "claims.honoured", "outcome": "passed"}, {"id": "run.boot", "outcome": "passed"}],
    }
    what = offered(manifest)
    proven = [{**what.drivers[0], "spec": {"manifest": manifest, "evidence": [proof]}}, what.drivers[1]]
    full, small = judged({"spec": {"machine": machine()}}, replace(what, drivers=proven))["classes"]
    assert set(full["claimed"]) < set(full["confirmed"])
    assert small["claimed"] == small["confirmed"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"spec": {"machine": machine(), "moveTo": {}}}, 400, "spec.moveTo names a class, a node, or both"),
        ({"spec": {"machine": machine(), "moveTo": "n"}}, 400, "spec.moveTo names a class"),
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
