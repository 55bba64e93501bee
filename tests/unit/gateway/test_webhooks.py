"""AdmissionReviews: defaults as a patch, all reasons in one refusal, our own components by their accounts."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import jsonpatch
import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.gateway import webhooks
from anyvisor.gateway.webhooks import Components, ReviewError, changes
from anyvisor.hri.packages import load
from anyvisor.planning.facts import NodeFacts

Json = dict[str, Any]
OURS = Components()


class World:
    """One class of one driver."""

    def __init__(self) -> None:
        manifest = load("fake").manifest
        self.objects: dict[str, list[Json]] = {
            "HypervisorDriver": [{"metadata": {"name": manifest["driver"]}, "spec": {"manifest": manifest}}],
            "HypervisorClass": [
                {"metadata": {"name": "fake"}, "spec": {"driver": manifest["driver"], "default": True}}
            ],
        }

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return next((one for one in self.objects.get(kind, ()) if one["metadata"]["name"] == name), None)

    def list(self, kind: str, namespace: str = "") -> Sequence[Json]:
        return self.objects.get(kind, ())

    def config(self) -> ClusterConfig:
        return ClusterConfig.of()

    def nodes(self) -> tuple[NodeFacts, ...]:
        return ()


def review(obj: Json, operation: str = "CREATE", user: str = "nina", **more: Any) -> bytes:
    request = {
        "uid": "u",
        "kind": {"group": "kubevirt.io", "version": "v1", "kind": obj["kind"]},
        "operation": operation,
        "namespace": "default",
        "name": obj["metadata"]["name"],
        "userInfo": {"username": user},
        "object": obj,
        **more,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def vm(**domain: Any) -> Json:
    spec = {"domain": {"memory": {"guest": "64Mi"}, "devices": {}, **domain}}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": spec}},
    }


def response(answer: webhooks.Answer) -> Json:
    return json.loads(answer.body)["response"]


def test_defaults_come_as_a_patch_that_makes_the_object() -> None:
    said = response(webhooks.mutate(review(vm()), World(), OURS))
    assert said["allowed"]
    assert said["uid"] == "u"
    patched = jsonpatch.apply_patch(vm(), json.loads(base64.b64decode(said["patch"])))
    assert patched["spec"]["template"]["spec"]["domain"]["machine"]["type"]


def test_what_no_driver_can_run_is_refused_at_the_first_turn() -> None:
    said = response(webhooks.mutate(review(vm(cpu={"cores": 4000})), World(), OURS))
    assert not said["allowed"]
    assert said["status"]["details"]["causes"]


def test_every_reason_stands_in_one_refusal() -> None:
    disks = [{"name": name, "disk": {"bus": "virtio"}} for name in "ab"]
    said = response(webhooks.validate(review(vm(devices={"disks": disks})), World(), OURS))
    assert (said["allowed"], said["status"]["code"], said["status"]["reason"]) == (False, 422, "Invalid")
    fields = [cause["field"] for cause in said["status"]["details"]["causes"]]
    assert any("disks[0]" in field for field in fields)
    assert any("disks[1]" in field for field in fields)


def test_the_validating_turn_changes_nothing() -> None:
    said = response(webhooks.validate(review(vm()), World(), OURS))
    assert said["allowed"]
    assert "patch" not in said


def test_other_kinds_and_subresources_pass() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}}
    assert response(webhooks.validate(review(pod), World(), OURS)) == {"uid": "u", "allowed": True}
    scaled = review(vm(), subResource="scale")
    assert response(webhooks.validate(scaled, World(), OURS))["allowed"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u"}}']
)
def test_what_is_no_review_is_no_question(body: bytes) -> None:
    with pytest.raises(ReviewError):
        webhooks.validate(body, World(), OURS)


@pytest.mark.parametrize(
    ("account", "name"),
    [
        ("system:serviceaccount:anyvisor:anyvisor-controller", "system:anyvisor:controller"),
        ("system:serviceaccount:anyvisor:anyvisor-agent", "system:anyvisor:agent:n1"),
        ("system:serviceaccount:other:anyvisor-controller", "system:serviceaccount:other:anyvisor-controller"),
        ("anyvisor-controller", "anyvisor-controller"),
        ("nina", "nina"),
    ],
)
def test_components_are_known_by_their_accounts(account: str, name: str) -> None:
    info = {"username": account, "extra": {"authentication.kubernetes.io/node-name": ["n1"]}}
    assert OURS.user(info).name == name


def test_a_patch_escapes_names_and_removes_what_is_gone() -> None:
    before = {"a/b": 1, "gone": 2, "same": 3}
    after = {"a/b": 4, "same": 3, "new~": 5}
    assert jsonpatch.apply_patch(before, changes(before, after)) == after
