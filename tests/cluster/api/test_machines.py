"""The life of machines on simulated nodes, through the official scheduler, controller-manager and API server."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.cluster.api.objects import fresh, launchers, run
from tests.cluster.kit.control_plane import ControlPlane
from tests.cluster.simulation import SimulatedNodes


@pytest.fixture(scope="module")
def peopled(nodes: SimulatedNodes) -> Iterator[ControlPlane]:
    yield nodes.plane
    nodes.plane.kubectl("delete", "vm", "--all", "--wait=false")


def settled(plane: ControlPlane, name: str) -> bool:
    """Whether nobody writes a machine in which nothing happens: controller and agent agree on what they tell."""
    before = plane.get("vmi", name)["metadata"]["resourceVersion"]
    time.sleep(2)
    return plane.get("vmi", name)["metadata"]["resourceVersion"] == before


def test_a_machine_runs_stops_and_is_gone(peopled: ControlPlane) -> None:
    plane, name = peopled, fresh("lived")
    run(plane, name)
    found = plane.get("vmi", name)
    assert found["status"]["hypervisor"]["driver"] == "fake.anyvisor.io"
    assert found["status"]["nodeName"] in ("node-a", "node-b")
    (pod,) = launchers(plane, name)
    assert list(found["status"]["activePods"]) == [pod["metadata"]["uid"]]
    plane.wait("controller", lambda: plane.get("vm", name)["status"].get("ready") is True)
    plane.wait("controller", lambda: settled(plane, name))
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/stop"
    plane.kubectl("replace", "--raw", path, "-f", "-", stdin="{}")
    plane.wait("controller", lambda: not plane.get("vmi", name))
    plane.wait("controller", lambda: plane.get("vm", name)["status"]["printableStatus"] == "Stopped")
    plane.kubectl("delete", "vm", name, "--timeout=180s", seconds=240)
    plane.wait("controller", lambda: launchers(plane, name) == [])


def test_a_pod_that_is_deleted_by_hand_is_told_and_made_anew(peopled: ControlPlane) -> None:
    plane, name = peopled, fresh("bereft")
    run(plane, name)
    before = plane.get("vmi", name)["metadata"]["uid"]
    (pod,) = launchers(plane, name)
    plane.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")

    def again() -> bool:
        found = plane.get("vmi", name)
        return bool(found) and found["metadata"]["uid"] != before and found["status"].get("phase") == "Running"

    plane.wait("controller", again)
    plane.wait("controller", lambda: len(launchers(plane, name)) == 1)


def test_what_is_edited_by_hand_converges(peopled: ControlPlane) -> None:
    plane, name = peopled, fresh("edited")
    run(plane, name)
    found = plane.get("vmi", name)
    uid, node = found["metadata"]["uid"], found["status"]["nodeName"]
    wrong = {
        "metadata": {"labels": {"kubevirt.io/nodeName": None}, "finalizers": None},
        "status": {"phase": "Running", "nodeName": node, "conditions": None},
    }
    plane.kubectl("patch", "vmi", name, "--type=merge", "-p", json.dumps(wrong), check=False)
    status = {"status": {"printableStatus": "Wrong", "ready": False, "created": False}}
    plane.kubectl("patch", "vm", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))

    def whole() -> bool:
        machine, instance = plane.get("vm", name), plane.get("vmi", name)
        told = instance.get("status", {}).get("conditions", [])
        conditions = {one["type"]: one["status"] for one in told}
        return (
            machine["status"].get("printableStatus") == "Running"
            and machine["status"].get("ready") is True
            and instance.get("metadata", {}).get("uid") == uid
            and instance["metadata"].get("labels", {}).get("kubevirt.io/nodeName") == node
            and conditions.get("Ready") == "True"
        )

    plane.wait("controller", whole)
    assert len(launchers(plane, name)) == 1
