"""The rest of the real kubectl: what people do with files, editors, proxies and other tools around the plain verbs."""

import json
import stat
import urllib.request
from pathlib import Path

import pytest

from tests.contract.apiserver.conftest import Json, Kubectl, Server
from tests.contract.apiserver.test_kubectl import MACHINE, Watching

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{set: s}}}}\ndata: {{a: b}}\n"


@pytest.fixture
def machine(kubectl: Kubectl, namespace: str) -> str:
    """The namespace of a machine `m1`."""
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    return namespace


def test_every_output_form(kubectl: Kubectl, machine: str, tmp_path: Path):
    template = tmp_path / "form"
    template.write_text("{.spec.mode}")
    forms = {
        "name": "machine.test.anyvisor.io/m1",
        "jsonpath={.spec.cores}": "2",
        f"jsonpath-file={template}": "slow",
        "go-template={{.spec.cores}}": "2",
        "custom-columns=WHO:.metadata.name,CORES:.spec.cores": "WHO   CORES\nm1    2",
    }
    for form, text in forms.items():
        assert kubectl("get", "-n", machine, "mc", "m1", "-o", form).strip() == text, form
    assert json.loads(kubectl("get", "-n", machine, "mc", "-o", "json"))["kind"] == "List"
    assert kubectl("get", "-n", machine, "mc", "m1", "-o", "yaml").startswith("apiVersion: test.anyvisor.io/v1\n")
    assert kubectl("get", "-n", machine, "mc", "-o", "wide", "--show-labels").split()[-1] == "app=a"
    assert "managedFields" in kubectl("get", "-n", machine, "mc", "-o", "json", "--show-managed-fields")
    assert kubectl("get", "-n", machine, "mc", "--no-headers", "--sort-by=.metadata.name").split()[0] == "m1"
    assert "machine.test.anyvisor.io/m1" in kubectl("get", "-n", machine, "all", "-o", "name")
    assert kubectl("get", "--raw", f"/apis/test.anyvisor.io/v1/namespaces/{machine}/machines/m1").startswith("{")


def test_replace(kubectl: Kubectl, machine: str):
    obj = kubectl.json("get", "-n", machine, "mc", "m1")
    obj["spec"]["cores"] = 5
    kubectl("replace", "-n", machine, "-f", "-", stdin=json.dumps(obj))
    assert kubectl.json("get", "-n", machine, "mc", "m1")["spec"]["cores"] == 5
    kubectl("replace", "--force", "-n", machine, "-f", "-", stdin=MACHINE)
    again = kubectl.json("get", "-n", machine, "mc", "m1")
    assert again["spec"]["cores"] == 2
    assert again["metadata"]["uid"] != obj["metadata"]["uid"]


def editor(path: Path, command: str) -> Path:
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_edit_saves_what_the_editor_wrote(server: Server, kubectl: Kubectl, machine: str, tmp_path: Path):
    person = server.kubectl()
    person.env["KUBE_EDITOR"] = str(editor(tmp_path / "ed", "sed -i 's/cores: 2/cores: 6/' \"$1\""))
    assert "edited" in person("edit", "-n", machine, "mc", "m1")
    assert kubectl.json("get", "-n", machine, "mc", "m1")["spec"]["cores"] == 6
    person.env["KUBE_EDITOR"] = str(editor(tmp_path / "bad", "sed -i 's/cores: 6$/cores: 600/' \"$1\""))
    refused = person.fails("edit", "-n", machine, "mc", "m1")
    assert 'machines.test.anyvisor.io "m1" is invalid' in refused
    person.env["KUBE_EDITOR"] = str(
        editor(tmp_path / "status", "sed -i 's/^spec:/status: {phase: Up}\\nspec:/' \"$1\"")
    )
    person("edit", "-n", machine, "mc", "m1", "--subresource=status")
    assert kubectl.json("get", "-n", machine, "mc", "m1")["status"] == {"phase": "Up"}


def test_apply_prune_deletes_what_the_set_no_longer_holds(kubectl: Kubectl, namespace: str):
    both = CONFIG_MAP.format(name="one") + "---\n" + CONFIG_MAP.format(name="two")
    apply = ("apply", "-n", namespace, "-l", "set=s", "--prune", "--prune-allowlist=core/v1/ConfigMap", "-f", "-")
    kubectl(*apply, stdin=both)
    assert "configmap/two pruned" in kubectl(*apply, stdin=CONFIG_MAP.format(name="one"))
    assert kubectl("get", "-n", namespace, "cm", "-l", "set=s", "-o", "name") == "configmap/one\n"


def test_apply_sets_prune_by_their_parent(server: Server, kubectl: Kubectl, namespace: str):
    person = server.kubectl()
    person.env["KUBECTL_APPLYSET"] = "true"
    both = CONFIG_MAP.format(name="one") + "---\n" + CONFIG_MAP.format(name="two")
    apply = ("apply", "--server-side", "-n", namespace, "--prune", "--applyset=parts", "-f", "-")
    person(*apply, stdin=both)
    assert "configmap/two pruned" in person(*apply, stdin=CONFIG_MAP.format(name="one"))
    assert kubectl("get", "-n", namespace, "cm", "-l", "set=s", "-o", "name") == "configmap/one\n"


def test_last_applied_is_kept_for_people(kubectl: Kubectl, namespace: str):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE)
    assert "cores: 2" in kubectl("apply", "view-last-applied", "-n", namespace, "mc/m1")


def test_client_side_ownership_moves_to_server_side_apply(kubectl: Kubectl, namespace: str):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=MACHINE.replace(", args: [x]", ""))
    obj = kubectl.json("get", "-n", namespace, "mc", "m1", "--show-managed-fields")
    assert "args" not in obj["spec"]
    owners = {(entry["manager"], entry["operation"]) for entry in obj["metadata"]["managedFields"]}
    assert ("kubectl", "Apply") in owners
    assert ("kubectl-client-side-apply", "Update") not in owners


def test_kustomize(kubectl: Kubectl, namespace: str, tmp_path: Path):
    (tmp_path / "machine.yaml").write_text(MACHINE)
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: {namespace}\nnamePrefix: big-\nresources: [machine.yaml]\n"
        "configMapGenerator: [{name: settings, literals: [a=b]}]\n"
        'patches: [{target: {kind: Machine}, patch: \'[{"op": "replace", "path": "/spec/cores", "value": 8}]\'}]\n'
    )
    kubectl("apply", "-k", str(tmp_path))
    assert kubectl.json("get", "-n", namespace, "mc", "big-m1")["spec"]["cores"] == 8
    assert "configmap/big-settings-" in kubectl("get", "-n", namespace, "cm", "-o", "name")
    kubectl("delete", "-k", str(tmp_path))
    assert not kubectl("get", "-n", namespace, "mc", "-o", "name")


def test_proxy(kubectl: Kubectl, machine: str):
    with Watching(kubectl, "proxy", "--port=0") as process:
        assert process.stdout is not None
        address = process.stdout.readline().rsplit(" ", 1)[1].strip()
        path = f"/apis/test.anyvisor.io/v1/namespaces/{machine}/machines/m1"
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            assert json.load(answer)["spec"]["cores"] == 2


def test_delete_by_label_by_file_and_all(kubectl: Kubectl, namespace: str):
    objects = "---\n".join(CONFIG_MAP.format(name=f"c{i}") for i in range(4))
    kubectl("create", "-n", namespace, "-f", "-", stdin=objects)
    kubectl("delete", "-n", namespace, "-f", "-", stdin=CONFIG_MAP.format(name="c0"))
    kubectl("label", "-n", namespace, "cm", "c1", "set=other", "--overwrite")
    kubectl("delete", "-n", namespace, "cm", "-l", "set=other")
    assert set(kubectl("get", "-n", namespace, "cm", "-l", "set", "-o", "name").split()) == {
        "configmap/c2",
        "configmap/c3",
    }
    kubectl("delete", "-n", namespace, "mc", "--all")
    kubectl("delete", "-n", namespace, "cm", "--all")
    assert not kubectl("get", "-n", namespace, "cm", "-l", "set", "-o", "name")
    assert "NotFound" in kubectl.fails("delete", "-n", namespace, "cm", "c2")
    kubectl("delete", "-n", namespace, "cm", "c2", "--ignore-not-found")


def test_wait_for_creation(kubectl: Kubectl, namespace: str):
    with Watching(kubectl, "wait", "-n", namespace, "cm/late", "--for=create", "--timeout=20s") as process:
        kubectl("create", "-n", namespace, "-f", "-", stdin=CONFIG_MAP.format(name="late"))
        assert process.wait(20) == 0


def test_top_says_that_there_are_no_metrics(kubectl: Kubectl):
    for what in ("nodes", "pods"):
        assert "Metrics API not available" in kubectl.fails("top", what)


def test_auth_reconcile_and_can_i(server: Server, kubectl: Kubectl, namespace: str):
    rules: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": namespace},
        "rules": [{"apiGroups": ["test.anyvisor.io"], "resources": ["machines", "machines/status"], "verbs": ["get"]}],
    }
    kubectl("auth", "reconcile", "-f", "-", stdin=json.dumps(rules))
    kubectl("create", "-n", namespace, "rolebinding", "rb", "--role=r", "--user=may")
    may = server.kubectl("may", ())
    for question, answer in (
        (("get", "machines.test.anyvisor.io"), "yes"),
        (("get", "mc", "--subresource=status"), "yes"),
        (("get", "mc/m1"), "yes"),
        (("delete", "mc"), "no"),
        (("get", "/metrics"), "no"),
    ):
        done = may.run("auth", "can-i", *question, "-n", namespace, check=False)
        assert done.stdout.strip().splitlines()[-1].startswith(answer), question
    assert kubectl("auth", "can-i", "get", "mc", "-n", namespace, "--as=may").strip() == "yes"


def test_tokens_say_for_how_long_and_for_whom(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "serviceaccount", "bot")
    request = json.loads(
        kubectl("create", "token", "bot", "-n", namespace, "--duration=20m", "--audience=vault", "-o", "json")
    )
    assert request["kind"] == "TokenRequest"
    assert request["spec"]["audiences"] == ["vault"]
    assert "10 minutes" in kubectl.fails("create", "token", "bot", "-n", namespace, "--duration=5m")


def test_cluster_info_and_health(kubectl: Kubectl):
    assert "is running at" in kubectl("cluster-info")
    for path in ("/readyz", "/livez", "/healthz"):
        assert kubectl("get", "--raw", path) == "ok"
        assert "check passed" in kubectl("get", "--raw", f"{path}?verbose")
    assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics")


def test_explain_in_both_forms(kubectl: Kubectl):
    text = kubectl("explain", "mc", "--recursive")
    assert "FIELDS:" in text
    assert "conditions" in text
    assert "apiextensions.k8s.io" in kubectl("explain", "crd.spec.versions")


def test_api_resources_in_every_form(kubectl: Kubectl):
    wide = kubectl("api-resources", "--api-group=test.anyvisor.io", "-o", "wide").splitlines()[1].split()
    assert wide[:4] == ["machines", "mc", "test.anyvisor.io/v1", "true"]
    assert "deletecollection" in wide[5]
    assert wide[6] == "all"
    assert "machines" not in kubectl("api-resources", "--namespaced=false", "-o", "name")
    assert "machines.test.anyvisor.io" in kubectl("api-resources", "--categories=all", "-o", "name")
