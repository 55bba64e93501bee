"""Manifests that the tests here create."""

import json
from typing import Any

from tests.cluster.kit.control_plane import ClusterError, ControlPlane

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


def run(plane: ControlPlane, *names: str) -> None:
    """Create VMs that boot nothing, and wait until they run."""
    for name in names:
        assert "created" in create(plane, vm(name, hypervisor="fake", run="Always"))
    wait_running(plane, *names)


def wait_running(plane: ControlPlane, *names: str, seconds: float = 180) -> None:
    """Wait until all of them run."""
    try:
        plane.wait("agents", lambda: all(phase(plane, name) == "Running" for name in names), seconds)
    except ClusterError as error:
        raise AssertionError(story(plane)) from error


def story(plane: ControlPlane) -> str:
    """What helps to see why something is not so."""
    said = [plane.kubectl("get", "vm,vmi,pods,nodes", "-o", "wide", check=False)]
    said.append(plane.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-3000:])
    said += [f"{part}: {plane.processes.tail(part, 1500)}" for part in ("controller", "agents", "gateway")]
    return "\n".join(said)


def once(plane: ControlPlane, *names: str) -> None:
    """See that each of the machines has one instance with one launcher, and that no other was ever made for it."""
    made = [
        entry["objectRef"]["name"]
        for entry in audited(plane)
        if entry["verb"] == "create"
        and entry["objectRef"].get("resource") == "pods"
        and not entry["objectRef"].get("subresource")
        and entry.get("responseStatus", {}).get("code") == 201
    ]
    for name in names:
        pods = launchers(plane, name)
        assert len(pods) == 1, story(plane)
        active = plane.get("vmi", name)["status"]["activePods"]
        assert list(active) == [pods[0]["metadata"]["uid"]]
        # What was answered as the API server was killed is in no log.
        assert made.count(pods[0]["metadata"]["name"]) <= 1


def audited(plane: ControlPlane) -> list[Json]:
    """Everything that was asked of the API server so far; a line that is being written is left out."""
    lines = plane.audit_log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]
