"""Each component needs no right that it does not have, seen in the audit log; an agent's token is for its node."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api.objects import audited, fresh, launchers, make, run, vm, wait_running
from tests.cluster.installation import NAMESPACE, account_kubeconfig
from tests.cluster.kit.control_plane import ControlPlane
from tests.cluster.simulation import SimulatedNodes

Json = dict[str, Any]
SETTLED_SECONDS = 30.0
"""After it is ready: clients that found it before may still be answered by rules that are half read."""
ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"


@pytest.fixture(scope="module")
def peopled(nodes: SimulatedNodes) -> Iterator[ControlPlane]:
    yield nodes.plane
    nodes.plane.kubectl("delete", "vm", "--all", "--wait=false")


def test_no_component_was_refused_anything(peopled: ControlPlane) -> None:
    """Of everything that ran before, and of a machine's whole life."""
    plane, name = peopled, fresh("whole-life")
    run(plane, name)
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/restart"
    before = plane.get("vmi", name)["metadata"]["uid"]
    plane.kubectl("replace", "--raw", path, "-f", "-", stdin="{}")

    def again() -> bool:
        found = plane.get("vmi", name)
        return bool(found) and found["metadata"]["uid"] != before and found["status"].get("phase") == "Running"

    plane.wait("controller", again, 300)
    plane.kubectl("delete", "vm", name, "--timeout=180s", seconds=240)
    refused = Counter(
        f"{entry['user']['username'].removeprefix(ACCOUNTS)} may not {entry['verb']} {entry['requestURI']}"
        for entry in audited(plane, ACCOUNTS)
        if entry["user"]["username"].startswith(ACCOUNTS)
        and entry.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
        and not while_starting(plane, entry)
    )
    assert not refused
    asked = {entry["user"]["username"].removeprefix(ACCOUNTS) for entry in audited(plane, ACCOUNTS)}
    assert {"anyvisor-controller", "anyvisor-gateway", "anyvisor-agent"} <= asked


def while_starting(plane: ControlPlane, entry: Json) -> bool:
    """Whether the API server did not know its own rules yet, as it had just been started."""
    asked = datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()
    return any(begun <= asked <= ready + SETTLED_SECONDS for begun, ready in plane.starts)


@pytest.fixture(scope="module")
def stolen(peopled: ControlPlane) -> Path:
    """The token of the agent of node-a."""
    return account_kubeconfig(peopled, "agent", "node-a")


def test_a_stolen_token_of_an_agent_reaches_the_machines_of_its_node_only(peopled: ControlPlane, stolen: Path) -> None:
    plane, ours, others = peopled, fresh("ours"), fresh("others")
    for name, node in ((ours, "node-a"), (others, "node-b")):
        machine = vm(name, hypervisor="fake", run="Always")
        machine["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        make(plane, machine)
    wait_running(plane, ours, others)

    def tried(*words: str) -> str:
        return plane.kubectl(*words, "--kubeconfig", str(stolen), check=False)

    (pod,) = launchers(plane, others)
    label = json.dumps({"metadata": {"labels": {"stolen": "yes"}}})
    status = json.dumps({"status": {"phase": "Failed"}})
    moved = json.dumps({"status": {"nodeName": "node-a"}, "metadata": {"labels": {"kubevirt.io/nodeName": "node-a"}}})
    for words in (
        ("patch", "vmi", others, "--type=merge", "-p", status),
        ("patch", "vmi", others, "--type=merge", "-p", moved),
        ("patch", "node", "node-b", "--type=merge", "-p", label),
        ("patch", "pod", pod["metadata"]["name"], "--type=merge", "-p", label),
        (
            "patch",
            "hypervisornode",
            "node-b",
            "--subresource=status",
            "--type=merge",
            "-p",
            '{"status":{"drivers":[]}}',
        ),
        ("get", "secrets", "-A"),
        ("delete", "vmi", ours),
        ("create", "token", "anyvisor-controller", "-n", NAMESPACE),
    ):
        said = tried(*words)
        assert "orbidden" in said or "denied" in said or "may change" in said, f"{words}: {said}"
    assert plane.get("vmi", others)["status"]["phase"] == "Running"
    assert plane.get("vmi", others)["status"]["nodeName"] == "node-b"
    own = json.dumps({"metadata": {"annotations": {"kubevirt.io/note": "seen"}}})
    assert "patched" in tried("patch", "node", "node-a", "--type=merge", "-p", own)
    assert "patched" in tried("patch", "vmi", ours, "--type=merge", "-p", own)
