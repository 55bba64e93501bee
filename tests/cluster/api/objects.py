"""Manifests that the tests here create."""

import itertools
import json
import time
from contextlib import suppress
from typing import Any

from tests.cluster.kit.control_plane import ClusterError, ControlPlane

Json = dict[str, Any]
MADE_SECONDS = 120.0
_REFUSED = ("denied the request", "is invalid", "strict decoding error", "orbidden")
_TRIES = itertools.count(1)


def fresh(name: str) -> str:
    """A name that no other test and no earlier try of this one has used."""
    return f"{name}-{next(_TRIES)}"


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


def make(plane: ControlPlane, obj: Json) -> None:
    """Have an object created where that is not what is tested: tried again unless it is refused for what it is.

    After a restart, a server may answer before it has found its definitions and the webhooks that it asks.
    """
    deadline = time.monotonic() + MADE_SECONDS
    while True:
        said = create(plane, obj)
        if "created" in said or "already exists" in said:
            return
        if time.monotonic() > deadline or any(word in said for word in _REFUSED):
            raise AssertionError(f"{obj['metadata']['name']} is not created: {said}\n{story(plane)}")
        time.sleep(0.3)


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
        make(plane, vm(name, hypervisor="fake", run="Always"))
    wait_running(plane, *names)


def wait_running(plane: ControlPlane, *names: str, seconds: float = 300) -> None:
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
        for entry in audited(plane, '"create"')
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


def audited(plane: ControlPlane, containing: str = "") -> list[Json]:
    """Everything that was asked of the API server so far, or what has a text; a line that is being written is left out.

    An answer may be there a moment before its line is.
    """
    found: list[Json] = []
    for line in plane.audit_log.read_text().splitlines():
        if containing in line:
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
    return found
