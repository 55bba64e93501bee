"""The real kubectl against the server, over TLS with a client certificate."""

import json
import subprocess
import time

import pytest

from tests.contract.apiserver.conftest import Json, Kubectl, Server

MACHINE = """
apiVersion: test.anyvisor.io/v1
kind: Machine
metadata: {name: m1, labels: {app: a}}
spec: {cores: 2, disks: [{name: root, size: 1}], args: [x]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p1}
spec: {containers: [{name: c, image: "x:1"}]}
"""


def test_version_and_discovery(kubectl: Kubectl):
    assert "Server Version: v1." in kubectl("version")
    names = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "machines.test.anyvisor.io", "events.events.k8s.io", "leases.coordination.k8s.io"} <= set(names)
    assert "test.anyvisor.io/v1" in kubectl("api-versions").split()


def test_apply_reapply_and_output_forms(kubectl: Kubectl, namespace: str):
    assert kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE) == "machine.test.anyvisor.io/m1 created\n"
    assert kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE) == "machine.test.anyvisor.io/m1 unchanged\n"
    obj = kubectl.json("get", "-n", namespace, "mc", "m1")
    assert obj["spec"]["mode"] == "slow"
    assert obj["spec"]["replicas"] == 1
    assert obj["metadata"]["generation"] == 1
    header, row = kubectl("get", "-n", namespace, "machines").splitlines()
    assert header.split() == ["NAME", "PHASE", "READY", "AGE"]
    assert row.split()[0] == "m1"
    assert kubectl("get", "-n", namespace, "mc", "-o", "name") == "machine.test.anyvisor.io/m1\n"
    assert "cores: 2" in kubectl("get", "-n", namespace, "mc", "m1", "-o", "yaml")
    assert kubectl("get", "-n", namespace, "mc", "m1", "-o", "jsonpath={.spec.cores}") == "2"
    assert "Cores:" in kubectl("describe", "-n", namespace, "mc", "m1")


def test_apply_removes_what_the_manifest_no_longer_says(kubectl: Kubectl, namespace: str):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("apply", "-n", namespace, "-f", "-", stdin=MACHINE.replace(", args: [x]", ""))
    assert "args" not in kubectl.json("get", "-n", namespace, "mc", "m1")["spec"]


@pytest.mark.parametrize(
    ("kind", "patch", "cores"),
    [
        ("merge", {"spec": {"cores": 3}}, 3),
        ("json", [{"op": "replace", "path": "/spec/cores", "value": 4}], 4),
    ],
)
def test_patches(kubectl: Kubectl, namespace: str, kind: str, patch: object, cores: int):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("patch", "-n", namespace, "mc", "m1", f"--type={kind}", "-p", json.dumps(patch))
    obj = kubectl.json("get", "-n", namespace, "mc", "m1")
    assert obj["spec"]["cores"] == cores
    assert obj["metadata"]["generation"] == 2


def test_strategic_patch_merges_containers_by_name(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=POD)
    patch = {"spec": {"containers": [{"name": "c", "image": "y:2"}]}, "metadata": {"labels": {"a": "b"}}}
    kubectl("patch", "-n", namespace, "pod", "p1", "-p", json.dumps(patch))
    pod = kubectl.json("get", "-n", namespace, "pod", "p1")
    assert [(c["name"], c["image"]) for c in pod["spec"]["containers"]] == [("c", "y:2")]
    assert pod["metadata"]["labels"] == {"a": "b"}
    error = kubectl.fails("patch", "-n", namespace, "mc", "m1", "--type=strategic", "-p", "{}")
    assert "NotFound" in error or "not found" in error


def test_validation_names_every_field(kubectl: Kubectl, namespace: str):
    bad = MACHINE.replace("cores: 2", "cores: 99, mode: warp")
    error = kubectl.fails("create", "-n", namespace, "-f", "-", stdin=bad)
    assert "spec.cores" in error
    assert 'Unsupported value: "warp": supported values: "fast", "slow"' in error
    assert "unknown field" in kubectl.fails(
        "create", "-n", namespace, "-f", "-", stdin=MACHINE.replace("cores: 2", "cores: 2, bores: 3")
    )
    warned = kubectl.run(
        "create", "--validate=warn", "-n", namespace, "-f", "-", stdin=MACHINE.replace("cores: 2", "cores: 2, bores: 3")
    )
    assert 'unknown field "spec.bores"' in warned.stderr


def test_status_is_apart_from_spec(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    patch = json.dumps({"spec": {"cores": 9}, "status": {"phase": "Running"}})
    kubectl("patch", "-n", namespace, "mc", "m1", "--subresource=status", "--type=merge", "-p", patch)
    obj = kubectl.json("get", "-n", namespace, "mc", "m1")
    assert (obj["spec"]["cores"], obj["status"]["phase"], obj["metadata"]["generation"]) == (2, "Running", 1)
    kubectl("patch", "-n", namespace, "mc", "m1", "--type=merge", "-p", json.dumps({"status": {"phase": "Lost"}}))
    assert kubectl("get", "-n", namespace, "mc", "m1", "-o", "jsonpath={.status.phase}") == "Running"


def test_scale(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("scale", "-n", namespace, "mc", "m1", "--replicas=5")
    assert kubectl("get", "-n", namespace, "mc", "m1", "-o", "jsonpath={.spec.replicas}") == "5"


def test_server_side_apply_conflicts_and_force(kubectl: Kubectl, namespace: str):
    one = ("apply", "-n", namespace, "--server-side", "--field-manager=one", "-f", "-")
    two = ("apply", "-n", namespace, "--server-side", "--field-manager=two", "-f", "-")
    kubectl(*one, stdin=MACHINE)
    error = kubectl.fails(*two, stdin=MACHINE.replace("cores: 2", "cores: 4"))
    assert 'conflict with "one": .spec.cores' in error
    kubectl(*two, "--force-conflicts", stdin=MACHINE.replace("cores: 2", "cores: 4"))
    obj = kubectl.json("get", "-n", namespace, "mc", "m1", "--show-managed-fields")
    owners = {entry["manager"]: entry["fieldsV1"]["f:spec"] for entry in obj["metadata"]["managedFields"]}
    assert "f:cores" in owners["two"]
    assert "f:cores" not in owners["one"]
    kubectl(*two, stdin=MACHINE.replace("args: [x]", "tags: [t]").replace("cores: 2", "cores: 4"))
    spec = kubectl.json("get", "-n", namespace, "mc", "m1")["spec"]
    assert spec["args"] == ["x"], "the other manager still owns it"
    assert spec["tags"] == ["t"]


def test_labels_annotations_and_selectors(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("label", "-n", namespace, "mc", "m1", "tier=front")
    kubectl("annotate", "-n", namespace, "mc", "m1", "note=a b")
    for selector, found in (
        ("app=a", True),
        ("app in (a,b),tier", True),
        ("app!=a", False),
        ("!tier", False),
        ("tier notin (back)", True),
    ):
        assert bool(kubectl("get", "-n", namespace, "mc", "-l", selector, "-o", "name")) is found, selector
    assert kubectl("get", "-n", namespace, "mc", "--field-selector", "metadata.name=m1", "-o", "name")
    assert not kubectl("get", "-n", namespace, "mc", "--field-selector", "metadata.name!=m1", "-o", "name")
    assert "field label not supported" in kubectl.fails("get", "-n", namespace, "mc", "--field-selector", "spec.x=1")


def test_optimistic_lock(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    old = kubectl("get", "-n", namespace, "mc", "m1", "-o", "json")
    kubectl("label", "-n", namespace, "mc", "m1", "x=y")
    error = kubectl.fails("replace", "-n", namespace, "-f", "-", stdin=old)
    assert "the object has been modified; please apply your changes to the latest version and try again" in error


def test_dry_run_and_diff_change_nothing(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=MACHINE)
    kubectl.fails("get", "-n", namespace, "mc", "m1")
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    done = kubectl.run("diff", "-n", namespace, "-f", "-", stdin=MACHINE.replace("cores: 2", "cores: 8"), check=False)
    assert done.returncode == 1
    assert "+  cores: 8" in done.stdout
    assert kubectl("get", "-n", namespace, "mc", "m1", "-o", "jsonpath={.spec.cores}") == "2"


class Watching:
    """A kubectl that runs until the block ends."""

    def __init__(self, kubectl: Kubectl, *args: str) -> None:
        self._process = kubectl.start(*args)

    def __enter__(self) -> subprocess.Popen[str]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_watch_prints_changes(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    with Watching(kubectl, "get", "-n", namespace, "mc", "-w", "--output-watch-events") as process:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["EVENT", "NAME", "PHASE", "READY", "AGE"]
        assert process.stdout.readline().split()[:2] == ["ADDED", "m1"]
        kubectl("label", "-n", namespace, "mc", "m1", "x=y")
        assert process.stdout.readline().split()[:2] == ["MODIFIED", "m1"]
        kubectl("delete", "-n", namespace, "mc", "m1")
        assert process.stdout.readline().split()[:2] == ["DELETED", "m1"]


def test_wait_for_condition_jsonpath_and_delete(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    with Watching(kubectl, "wait", "-n", namespace, "mc/m1", "--for=condition=Ready", "--timeout=20s") as process:
        patch = json.dumps({"status": {"phase": "Up", "conditions": [{"type": "Ready", "status": "True"}]}})
        kubectl("patch", "-n", namespace, "mc", "m1", "--subresource=status", "--type=merge", "-p", patch)
        assert process.wait(20) == 0
    kubectl("wait", "-n", namespace, "mc/m1", "--for=jsonpath={.status.phase}=Up", "--timeout=5s")
    with Watching(kubectl, "wait", "-n", namespace, "mc/m1", "--for=delete", "--timeout=20s") as process:
        kubectl("delete", "-n", namespace, "mc", "m1", "--wait=false")
        assert process.wait(20) == 0


def bind(kubectl: Kubectl, namespace: str, pod: str, node: str) -> None:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/binding"
    kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))


def test_pods_bind_log_and_end_gracefully(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=POD)
    bind(kubectl, namespace, "p1", "n1")
    assert kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName=n1", "-o", "name") == "pod/p1\n"
    assert "log of p1" in kubectl("logs", "-n", namespace, "p1")
    kubectl("delete", "-n", namespace, "pod", "p1", "--wait=false", "--grace-period=7")
    pod = kubectl.json("get", "-n", namespace, "pod", "p1")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7
    assert "Terminating" in kubectl("get", "-n", namespace, "pods")
    kubectl("delete", "-n", namespace, "pod", "p1", "--force", "--grace-period=0")
    kubectl.fails("get", "-n", namespace, "pod", "p1")


def owned(name: str, owner: Json, *, block: bool = False) -> str:
    reference: Json = {
        "apiVersion": "test.anyvisor.io/v1",
        "kind": "Machine",
        "name": "m1",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }
    metadata: Json = {"name": name, "ownerReferences": [reference]}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


@pytest.mark.parametrize(("cascade", "survives"), [("background", False), ("foreground", False), ("orphan", True)])
def test_cascades(kubectl: Kubectl, namespace: str, cascade: str, survives: bool):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    owner = kubectl.json("get", "-n", namespace, "mc", "m1")
    kubectl("create", "-n", namespace, "-f", "-", stdin=owned("child", owner, block=True))
    kubectl("delete", "-n", namespace, "mc", "m1", f"--cascade={cascade}")
    if survives:
        child = kubectl.json("get", "-n", namespace, "cm", "child")
        assert "ownerReferences" not in child["metadata"]
    else:
        kubectl("wait", "-n", namespace, "cm/child", "--for=delete", "--timeout=10s")


def test_finalizers_hold_an_object(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "-f", "-", stdin=MACHINE)
    kubectl("patch", "-n", namespace, "mc", "m1", "--type=merge", "-p", '{"metadata":{"finalizers":["x.io/hold"]}}')
    kubectl("delete", "-n", namespace, "mc", "m1", "--wait=false")
    assert kubectl.json("get", "-n", namespace, "mc", "m1")["metadata"]["deletionTimestamp"]
    kubectl("patch", "-n", namespace, "mc", "m1", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    kubectl.fails("get", "-n", namespace, "mc", "m1")


def test_namespace_ends_with_all_its_objects(kubectl: Kubectl):
    kubectl("create", "namespace", "ending")
    kubectl("create", "-n", "ending", "-f", "-", stdin=MACHINE)
    kubectl("create", "-n", "ending", "cm", "c", "--from-literal=a=b")
    kubectl("delete", "namespace", "ending", "--timeout=20s")
    kubectl.fails("get", "namespace", "ending")
    assert not kubectl("get", "mc", "-A", "-o", "name")


def test_protobuf_bodies_of_built_in_kinds(kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "configmap", "c", "--from-literal=a=b")
    assert kubectl.json("get", "-n", namespace, "cm", "c")["data"] == {"a": "b"}
    kubectl("create", "-n", namespace, "secret", "generic", "s", "--from-literal=a=b")
    assert kubectl.json("get", "-n", namespace, "secret", "s")["data"] == {"a": "Yg=="}
    kubectl("create", "-n", namespace, "serviceaccount", "bob")
    kubectl("create", "-n", namespace, "role", "r", "--verb=get,list", "--resource=pods", "--resource-name=x")
    role = kubectl.json("get", "-n", namespace, "role", "r")
    assert role["rules"] == [
        {"apiGroups": [""], "resourceNames": ["x"], "resources": ["pods"], "verbs": ["get", "list"]}
    ]
    kubectl("create", "-n", namespace, "quota", "q", "--hard=pods=3")
    assert kubectl.json("get", "-n", namespace, "quota", "q")["spec"]["hard"] == {"pods": "3"}


def test_who_may_do_what(server: Server, kubectl: Kubectl, namespace: str):
    jane = server.kubectl("jane", ("devs",))
    assert "jane" in jane("auth", "whoami")
    error = jane.fails("get", "-n", namespace, "pods")
    assert 'User "jane" cannot list resource "pods" in API group ""' in error
    kubectl("create", "-n", namespace, "rolebinding", "viewers", "--clusterrole=view", "--group=devs")
    assert jane("get", "-n", namespace, "pods", "-o", "name") == ""
    assert jane("auth", "can-i", "list", "pods", "-n", namespace).strip() == "yes"
    assert jane.run("auth", "can-i", "create", "pods", "-n", namespace, check=False).stdout.strip() == "no"
    jane.fails("get", "-n", namespace, "secrets")
    assert "get" in jane("auth", "can-i", "--list", "-n", namespace)


def test_impersonation(server: Server, kubectl: Kubectl, namespace: str):
    assert "sue" in kubectl("auth", "whoami", "--as=sue", "--as-group=ops")
    assert "ops" in kubectl("auth", "whoami", "--as=sue", "--as-group=ops")
    assert "cannot list" in kubectl.fails("get", "-n", namespace, "pods", "--as=sue")
    jane = server.kubectl("jane", ("devs",))
    assert 'cannot impersonate resource "users"' in jane.fails("get", "-n", namespace, "pods", "--as=kubernetes-admin")


def test_nobody_grants_more_than_they_have(server: Server, kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "rolebinding", "admins", "--clusterrole=admin", "--user=ann")
    ann = server.kubectl("ann", ())
    ann("create", "-n", namespace, "role", "small", "--verb=get", "--resource=configmaps")
    error = ann.fails("create", "-n", namespace, "role", "large", "--verb=get", "--resource=nodes")
    assert "attempting to grant RBAC permissions not currently held" in error
    ann.fails("create", "-n", namespace, "rolebinding", "large", "--clusterrole=cluster-admin", "--user=ann")
    ann("create", "-n", namespace, "rolebinding", "viewers", "--clusterrole=view", "--user=bob")


def test_roles_add_up_by_their_labels(server: Server, kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "rolebinding", "v", "--clusterrole=view", "--user=tom")
    tom = server.kubectl("tom", ())
    tom.fails("get", "-n", namespace, "machines")
    kubectl("create", "clusterrole", "machines-view", "--verb=get,list", "--resource=machines.test.anyvisor.io")
    kubectl("label", "clusterrole", "machines-view", "rbac.authorization.k8s.io/aggregate-to-view=true")
    tom("get", "-n", namespace, "machines")


def test_service_account_tokens_live_as_long_as_the_account(server: Server, kubectl: Kubectl, namespace: str):
    kubectl("create", "-n", namespace, "serviceaccount", "bot")
    token = kubectl("create", "-n", namespace, "token", "bot").strip()
    bot = server.kubectl_with_token(token)
    assert f"system:serviceaccount:{namespace}:bot" in bot("auth", "whoami")
    bot.fails("get", "-n", namespace, "cm")
    kubectl("create", "-n", namespace, "rolebinding", "bot", "--clusterrole=edit", f"--serviceaccount={namespace}:bot")
    bot("create", "-n", namespace, "cm", "mine")
    kubectl("delete", "-n", namespace, "serviceaccount", "bot")
    assert "Unauthorized" in bot.fails("get", "-n", namespace, "cm") or "logged in" in bot.fails("get", "cm")


def test_explain_for_custom_and_built_in_kinds(kubectl: Kubectl):
    assert "Number of cores." in kubectl("explain", "machine.spec.cores")
    assert "disks" in kubectl("explain", "machine", "--recursive")
    assert "containers" in kubectl("explain", "pod.spec")


def test_events_in_both_groups_are_one(kubectl: Kubectl, namespace: str):
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1"},
        "involvedObject": {"kind": "Machine", "namespace": namespace, "name": "m1"},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(event))
    assert "it runs" in kubectl("events", "-n", namespace)
    other = kubectl.json("get", "-n", namespace, "events.events.k8s.io", "e1")
    assert other["note"] == "it runs"
    assert other["regarding"]["name"] == "m1"
    row = kubectl("get", "-n", namespace, "events", "--field-selector", "involvedObject.name=m1").splitlines()[1]
    assert "machine/m1" in row


def test_lists_in_pages(kubectl: Kubectl, namespace: str):
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{i}"}} for i in range(25)]
    kubectl(
        "create", "-n", namespace, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    assert len(kubectl("get", "-n", namespace, "cm", "-o", "name", "--chunk-size=7").split()) == 25


def test_definitions_come_and_go_while_it_runs(kubectl: Kubectl, namespace: str):
    definition = kubectl.json("get", "crd", "machines.test.anyvisor.io")
    definition["metadata"] = {"name": "gadgets.test.anyvisor.io"}
    definition["spec"]["names"] = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"}
    definition.pop("status")
    kubectl("apply", "-f", "-", stdin=json.dumps(definition))
    kubectl("wait", "crd/gadgets.test.anyvisor.io", "--for=condition=Established", "--timeout=5s")
    gadget = MACHINE.replace("Machine", "Gadget")
    kubectl("create", "-n", namespace, "-f", "-", stdin=gadget)
    assert kubectl("get", "-n", namespace, "gadgets", "-o", "name")
    kubectl("delete", "crd", "gadgets.test.anyvisor.io", "--timeout=10s")
    kubectl.fails("get", "-n", namespace, "gadgets")
