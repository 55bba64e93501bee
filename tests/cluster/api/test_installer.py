"""`anyvisor install`, `upgrade`, `uninstall`, `status --cluster` and `doctor --cluster` on the official API server."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from anyvisor import __version__
from anyvisor.cli import main as cli
from tests.cluster.api.objects import fresh, make, vm
from tests.cluster.conftest import programs
from tests.cluster.installation import NAMESPACE, documents
from tests.cluster.kit.build import API
from tests.cluster.kit.control_plane import ControlPlane, control_plane
from tools import installmanifest

Json = dict[str, Any]
PART = "app.kubernetes.io/part-of"
OURS = f"{PART}=anyvisor"
KINDS = (
    "crd,clusterrole,clusterrolebinding,priorityclass,apiservice,mutatingwebhookconfiguration,"
    "validatingwebhookconfiguration,validatingadmissionpolicy,validatingadmissionpolicybinding"
)
ANYWHERE = "role,rolebinding,secret,configmap,service,lease,networkpolicy,poddisruptionbudget,deployment,daemonset"
PRESENT = __version__.replace(".", "-")
LABELS = {"kubernetes.io/hostname": "worker"}


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A control plane without the product."""
    with control_plane(programs(*API), controllers=True) as plane:
        yield plane


def told(capsys: pytest.CaptureFixture[str], plane: ControlPlane, *words: str) -> tuple[int, str]:
    """Exit code, and everything that is said."""
    code = cli.main([*words, "--kubeconfig", str(plane.admin)])
    said = capsys.readouterr()
    return code, said.out + said.err


def ours(plane: ControlPlane) -> list[str]:
    """Cluster-wide objects of an installation."""
    return plane.kubectl("get", KINDS, "-l", OURS, "-o", "name").split()


def everything(plane: ControlPlane) -> set[str]:
    """All that a cluster has."""
    return {
        *plane.kubectl("get", f"{KINDS},namespace", "-o", "name").split(),
        *plane.kubectl("get", ANYWHERE, "-A", "-o", "name").split(),
    }


def worker(plane: ControlPlane, name: str) -> Json:
    """A node that agents have labelled and whose kubelet has heard of our devices."""
    ours = {"kubevirt.io/schedulable": "true", "anyvisor.io/agent": "true", "cpu-model.node.kubevirt.io/max": "true"}
    metadata = {"name": name, "labels": LABELS | ours, "annotations": {"kubevirt.io/heartbeat": "then"}}
    plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    offered = {"cpu": "2", "devices.kubevirt.io/kvm": "1k"}
    status = json.dumps({"status": {"capacity": offered, "allocatable": offered}})
    plane.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
    return plane.get("node", name)


def test_where_another_implementation_serves_the_api_nothing_is_done(
    bare: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    definition = next(one for one in documents() if one["metadata"]["name"] == "virtualmachineinstances.kubevirt.io")
    definition["metadata"].pop("labels", None)
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("hypervisor")
    bare.apply(definition)
    code, said = told(capsys, bare, "install", "--no-wait")
    assert code == 1
    assert "another KubeVirt serves kubevirt.io" in said
    assert ours(bare) == []
    assert not bare.has("namespace", NAMESPACE)
    code, said = told(capsys, bare, "doctor", "--cluster")
    assert code == 1
    assert "another KubeVirt serves kubevirt.io" in said
    bare.kubectl("delete", "crd", definition["metadata"]["name"], "--timeout=180s", seconds=240)


def test_doctor_names_what_the_cluster_lacks(bare: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    _, said = told(capsys, bare, "doctor", "--cluster")
    assert "1.37" in said
    assert "may install" in said
    assert "no storage class" in said
    code, said = told(capsys, bare, "status", "--cluster")
    assert code == 1
    assert "not installed" in said


def test_who_may_not_install_is_told_so(bare: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = bare.issue("nobody", "nobody")
    code = cli.main(["install", "--no-wait", "--kubeconfig", str(nobody)])
    said = capsys.readouterr().err
    assert code == 1
    assert "forbidden" in said
    assert ours(bare) == []


def test_an_installation_from_its_begin_to_its_end(bare: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, bare, "uninstall")
    before_it, node = everything(bare), fresh("worker")
    code, said = told(capsys, bare, "install", "--no-wait", "--registry", "registry.example/mine")
    assert code == 0, said
    wanted = {
        one["metadata"]["name"] for one in documents() if one["metadata"].get("labels", {}).get(PART) == "anyvisor"
    }
    assert {one.partition("/")[2] for one in ours(bare)} <= wanted
    definitions = [one["metadata"]["name"] for one in documents() if one["kind"] == "CustomResourceDefinition"]
    assert all(bare.has("crd", name) for name in definitions)
    images = bare.kubectl("get", "deploy,ds", "-n", NAMESPACE, "-o", "jsonpath={..image}").split()
    assert images
    assert all(image.startswith("registry.example/mine/") for image in images)
    code, said = told(capsys, bare, "status", "--cluster")
    assert code == 1
    assert "0/2" in said
    before = versions(bare)
    code, said = told(capsys, bare, "upgrade", "--no-wait", "--registry", "registry.example/mine")
    assert code == 0, said
    assert versions(bare) == before, "what is as it should be is not written"
    refused_while_machines_exist(bare, capsys)
    assert worker(bare, node)["status"]["capacity"]["devices.kubevirt.io/kvm"] == "1k"
    held(bare, fresh("held"))
    code, said = told(capsys, bare, "uninstall")
    assert code == 0, said
    assert "everything is removed" in said
    found = bare.get("node", node)
    bare.kubectl("delete", "node", node)
    assert found["metadata"]["labels"] == LABELS
    assert "kubevirt.io/heartbeat" not in found["metadata"].get("annotations", {})
    assert set(found["status"]["capacity"]) == set(found["status"]["allocatable"]) == {"cpu"}
    # The versions that definitions brought to discovery go a moment after them.
    bare.wait("controller-manager", lambda: everything(bare) == before_it, 300)


def held(plane: ControlPlane, name: str) -> None:
    """An object whose finalizer nobody is left to see to."""
    spec: Json = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": vm(name)["spec"]["template"]}
    metadata = {"name": name, "namespace": "default", "finalizers": ["kubevirt.io/nobody"]}
    make(
        plane,
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": metadata,
            "spec": spec,
        },
    )


def versions(plane: ControlPlane) -> dict[str, str]:
    listed = json.loads(plane.kubectl("get", "deploy,ds", "-n", NAMESPACE, "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["generation"] for one in listed}


def refused_while_machines_exist(plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    # No gateway runs here, so nothing could be created with its webhooks in place.
    kept = fresh("kept")
    plane.kubectl(
        "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "anyvisor", "--ignore-not-found"
    )
    make(plane, vm(kept))
    code, said = told(capsys, plane, "uninstall")
    assert code == 1
    assert f"default/{kept}" in said
    assert "delete them first" in said
    assert plane.has("vm", kept)
    assert plane.has("deployment", "anyvisor-controller", NAMESPACE)
    plane.kubectl("delete", "vm", kept, "--timeout=180s", seconds=240)


def test_helm_leaves_the_older_driver_until_the_controller_removes_it(
    bare: ControlPlane, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    helm = installmanifest.find_helm()
    if helm is None:
        pytest.skip("helm is neither on the PATH nor in the cache: the tests of helm build it where Go is")
    told(capsys, bare, "uninstall")

    def released(*words: str) -> None:
        command = [helm, *words, "--namespace", NAMESPACE, "--kubeconfig", str(bare.admin)]
        environment = {**os.environ, "HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr

    chart = str(installmanifest.CHART)
    offered: list[Json] = yaml.safe_load((installmanifest.CHART / "values.yaml").read_text())["drivers"]
    older = json.dumps([{**one, "version": "0.0.9"} for one in offered])
    released("install", "anyvisor", chart, "--create-namespace", "--set-json", f"drivers={older}")
    before = drivers(bare)
    released("upgrade", "anyvisor", chart, "--reset-values")
    assert drivers(bare) - before == {f"anyvisor-driver-qemu-{PRESENT}{kind}" for kind in ("", "-emulation")}
    assert before < drivers(bare)
    code, said = told(capsys, bare, "uninstall")
    assert code == 0, said
    assert not bare.has("namespace", NAMESPACE)


def drivers(plane: ControlPlane) -> set[str]:
    listed = json.loads(plane.kubectl("get", "ds", "-n", NAMESPACE, "-o", "json"))["items"]
    return {one["metadata"]["name"] for one in listed if one["metadata"]["name"].startswith("anyvisor-driver-")}
