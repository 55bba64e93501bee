"""The product on the official API server, without nodes: definitions, admission, aggregation, rights."""

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api.objects import create, fresh, make, vm
from tests.cluster.installation import NAMESPACE, Installation, documents
from tests.cluster.kit.control_plane import ControlPlane

Json = dict[str, Any]
ROOT = Path(__file__).parents[3]
VERSION = "/apis/subresources.kubevirt.io/v1/version"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default"


def test_every_definition_is_structural_and_accepted_without_a_warning(plane: ControlPlane) -> None:
    definitions = [one for one in documents() if one["kind"] == "CustomResourceDefinition"]
    said = plane.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"), check=False)
    assert "Warning" not in said
    names = [f"crd/{definition['metadata']['name']}" for definition in definitions]
    plane.kubectl("wait", "--for=condition=Established", *names, "--timeout=120s", seconds=150)
    found: list[Json] = json.loads(plane.kubectl("get", *names, "-o", "json"))["items"]
    assert len(found) == len(definitions)
    for one in found:
        bad = [condition for condition in one["status"]["conditions"] if condition["type"] == "NonStructuralSchema"]
        assert not bad, one["metadata"]["name"]


def test_the_manifest_is_taken_as_it_is(plane: ControlPlane) -> None:
    said = plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f",
        str(ROOT / "deploy" / "anyvisor-install.yaml"), check=False,
    )  # fmt: skip
    wrong = [line for line in said.splitlines() if "serverside-applied" not in line and f'"{NAMESPACE}"' not in line]
    assert wrong == []


def test_an_object_gets_its_defaults_and_the_planners_word(installed: Installation) -> None:
    plane, plain = installed.plane, fresh("plain")
    assert "created" in create(plane, vm(plain))
    stored = plane.get("vm", plain)
    assert stored["spec"]["template"]["spec"]["domain"]["machine"]["type"]
    said = create(plane, vm("greedy", cpu={"cores": 1024, "sockets": 4}))
    assert "1024" in said or "cpu" in said
    assert not plane.get("vm", "greedy")


def test_all_causes_come_in_one_answer(installed: Installation) -> None:
    disks = [{"name": name, "disk": {"bus": "virtio"}} for name in "ab"]
    said = create(installed.plane, vm("wrong", devices={"disks": disks}))
    assert "disks[0]" in said
    assert "disks[1]" in said


def test_a_dry_run_is_answered_and_keeps_nothing(installed: Installation) -> None:
    said = create(installed.plane, vm("dry"), "--dry-run=server", "-o", "json")
    assert json.loads(said)["spec"]["template"]["spec"]["domain"]["machine"]["type"]
    assert not installed.plane.get("vm", "dry")


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_examples_pass_strictly(installed: Installation, example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text()):
        if document["kind"] == "NetworkAttachmentDefinition":  # of whoever brings secondary networks to the cluster
            continue
        said = create(installed.plane, document, "--dry-run=server", "--validate=strict")
        assert "created" in said, said


def test_subresources_are_answered_through_the_aggregation(installed: Installation) -> None:
    plane, name = installed.plane, fresh("switched")
    version = json.loads(plane.kubectl("get", "--raw", VERSION))
    assert "anyvisor" in version["gitVersion"]
    make(plane, vm(name))
    plane.kubectl("replace", "--raw", f"{SUBRESOURCES}/virtualmachines/{name}/start", "-f", "-", stdin="{}")
    assert plane.get("vm", name)["spec"]["runStrategy"] == "Always"
    review = {
        "apiVersion": "reviews.anyvisor.io/v1alpha1",
        "kind": "MachineReview",
        "metadata": {"generateName": "r"},
        "spec": {"machine": {"kind": "VirtualMachine", "spec": vm("x")["spec"]}},
    }
    path = "/apis/reviews.anyvisor.io/v1alpha1/namespaces/default/machinereviews"
    answer = json.loads(plane.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["verdict"] == "SATISFIED"


def test_rights_are_asked_for_on_behalf_of_the_user(installed: Installation) -> None:
    plane, name = installed.plane, fresh("guarded")
    make(plane, vm(name))
    path = f"{SUBRESOURCES}/virtualmachines/{name}/start"
    for role, user in (("view", "nina"), ("edit", "otto")):
        plane.kubectl("create", "rolebinding", f"{name}-{role}", f"--clusterrole={role}", f"--user={user}")
    refused = plane.kubectl("replace", "--raw", path, "-f", "-", "--as=nina", stdin="{}", check=False)
    assert "forbidden" in refused.lower()

    def started() -> bool:
        plane.kubectl("replace", "--raw", path, "-f", "-", "--as=otto", stdin="{}", check=False)
        return plane.get("vm", name)["spec"]["runStrategy"] == "Always"

    # Roles of users are aggregated by a controller, a moment after they were made.
    plane.wait("gateway", started)


def test_nobody_speaks_for_others_past_the_proxy(installed: Installation) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asked = urllib.request.Request(
        f"https://127.0.0.1:{installed.port}{SUBRESOURCES}/virtualmachines/plain/expand-spec",
        headers={"X-Remote-User": "admin", "X-Remote-Group": "system:masters"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, context=context, timeout=60)
    assert refused.value.code == 401
    refused.value.close()


def test_renewed_certificates_are_used_without_a_restart(installed: Installation) -> None:
    plane = installed.plane
    before = plane.get("secret", "anyvisor-certificates", NAMESPACE)["data"]
    plane.kubectl(
        "patch", "secret", "anyvisor-certificates", "-n", NAMESPACE, "--type=json",
        "-p", '[{"op":"remove","path":"/data/authority.key"}]',
    )  # fmt: skip

    def renewed() -> bool:
        data = plane.get("secret", "anyvisor-certificates", NAMESPACE)["data"]
        return "authority.key" in data and data["gateway.crt"] != before["gateway.crt"]

    plane.wait("gateway", renewed)
    plane.wait("gateway", lambda: "created" in create(plane, vm("later"), "--dry-run=server"))
    # The aggregation trusts the new authority a moment after the webhooks do.
    plane.wait("gateway", lambda: bool(json.loads(plane.kubectl("get", "--raw", VERSION))))
    assert plane.processes.alive("gateway")
