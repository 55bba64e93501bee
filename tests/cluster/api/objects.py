"""Manifests that the tests here create."""

import json
from typing import Any

from tests.cluster.kit.control_plane import ControlPlane

Json = dict[str, Any]


def vm(name: str, *, hypervisor: str = "", run: str = "Halted", **domain: Any) -> Json:
    """A small VirtualMachine."""
    spec: Json = {"domain": {"memory": {"guest": "64Mi"}, "devices": {}, **domain}}
    if hypervisor:
        spec["hypervisor"] = hypervisor
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": run, "template": {"spec": spec}},
    }


def create(plane: ControlPlane, obj: Json, *words: str) -> str:
    """kubectl create; what it says."""
    return plane.kubectl("create", "-f", "-", *words, stdin=json.dumps(obj), check=False)


def phase(plane: ControlPlane, name: str) -> str:
    """A VMI's phase; empty when there is none."""
    return plane.get("vmi", name).get("status", {}).get("phase", "")


def launchers(plane: ControlPlane, name: str) -> list[Json]:
    """The launcher pods of a VMI's name that have not ended."""
    found = json.loads(plane.kubectl("get", "pods", "-l", f"vmi.kubevirt.io/id={name}", "-o", "json"))["items"]
    return [pod for pod in found if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
