"""Networks beside the pod network, in the words that Multus and its users share."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from anyvisor.embedded.podnetwork.attachments import definition
from tests.cluster.api.objects import create, fresh, launchers, make, vm, wait_running
from tests.cluster.kit.control_plane import ControlPlane
from tests.cluster.simulation import SimulatedNodes

Json = dict[str, Any]
ASKED = "k8s.v1.cni.cncf.io/networks"
TOLD = "k8s.v1.cni.cncf.io/network-status"


@pytest.fixture(scope="module")
def peopled(nodes: SimulatedNodes) -> Iterator[ControlPlane]:
    yield nodes.plane
    nodes.plane.kubectl("delete", "vm", "--all", "--wait=false")


def connected(name: str, attachment: str, *, default: bool = False) -> Json:
    """A VM on a network that a NetworkAttachmentDefinition describes, beside the pod network or in its place."""
    machine = vm(name, hypervisor="fake", run="Always")
    spec = machine["spec"]["template"]["spec"]
    multus: Json = {"networkName": attachment} | ({"default": True} if default else {})
    spec["networks"] = [*([] if default else [{"name": "own", "pod": {}}]), {"name": "blue", "multus": multus}]
    spec["domain"]["devices"]["interfaces"] = [
        {"name": one["name"], **({"masquerade": {}} if "pod" in one else {"bridge": {}})} for one in spec["networks"]
    ]
    return machine


def attachment(plane: ControlPlane, name: str) -> None:
    """A network that somebody describes."""
    config = json.dumps({"cniVersion": "1.0.0", "type": "bridge", "bridge": "br0"})
    plane.apply(
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"config": config},
        }
    )


def told(plane: ControlPlane, name: str) -> str:
    """What the conditions of a VMI say."""
    conditions = plane.get("vmi", name).get("status", {}).get("conditions", [])
    return " ".join(str(one.get("message", "")) for one in conditions)


def test_without_multus_the_machine_says_so_and_starts_when_it_comes(peopled: ControlPlane) -> None:
    plane, name, blue = peopled, fresh("early"), fresh("blue")
    kind = definition()
    plane.kubectl("delete", "crd", kind["metadata"]["name"], "--ignore-not-found", "--timeout=120s", seconds=180)
    make(plane, connected(name, blue))
    plane.wait("controller", lambda: "install Multus" in told(plane, name))
    assert launchers(plane, name) == []
    plane.apply(kind)
    plane.kubectl(
        "wait", "--for=condition=Established", f"crd/{kind['metadata']['name']}", "--timeout=120s", seconds=180
    )
    attachment(plane, blue)
    wait_running(plane, name)
    (pod,) = launchers(plane, name)
    (asked,) = json.loads(pod["metadata"]["annotations"][ASKED])
    assert (asked["namespace"], asked["name"]) == ("default", blue)

    # As Multus does when it has attached the pod.
    reports = [
        {"name": "cluster", "interface": "eth0", "ips": ["10.0.0.2"], "default": True},
        {"name": f"default/{blue}", "interface": asked["interface"], "mac": "02:00:00:00:00:09"},
    ]
    plane.kubectl("annotate", "pod", pod["metadata"]["name"], f"{TOLD}={json.dumps(reports)}", "--overwrite")

    def seen() -> bool:
        entries = plane.get("vmi", name)["status"].get("interfaces", [])
        return any(
            one["name"] == "blue"
            and "multus-status" in one.get("infoSource", "")
            and one.get("podInterfaceName") == asked["interface"]
            for one in entries
        )

    plane.wait("controller", seen)


def test_a_network_in_the_place_of_the_pod_network_is_refused_with_its_field(peopled: ControlPlane) -> None:
    said = create(peopled, connected(fresh("placed"), "blue", default=True))
    assert "spec.template.spec.networks[0].multus.default" in said
    assert "use `pod: {}`" in said
