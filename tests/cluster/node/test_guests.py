"""Real guests on a real node: from `kubectl apply` of the manifest that the embedded tests use, to their end."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.cluster import NAMESPACE, Cluster
from tests.cluster.installation import account_kubeconfig
from tests.cluster.node.machines import apply, counted, remove, tell
from tests.cluster.streams import COUNTER, console, counter
from tests.e2e.conftest import disk_vm, tiny_vm

Json = dict[str, Any]


@pytest.fixture(scope="module")
def tiny(cluster: Cluster) -> Iterator[str]:
    vm = tiny_vm("tiny")
    vm["spec"]["template"]["spec"]["domain"]["devices"]["logSerialConsole"] = True
    apply(cluster, vm)
    cluster.wait_phase("tiny")
    yield "tiny"
    if cluster.get("vm", "tiny"):
        remove(cluster, "tiny")


def test_the_launcher_is_restricted_and_holds_nothing_of_ours(cluster: Cluster, tiny: str) -> None:
    pod = cluster.launcher(tiny)
    assert pod["status"]["phase"] == "Running"
    container = pod["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    labels = cluster.get("namespace", "default")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_console_runs_through_the_aggregation(cluster: Cluster, tiny: str) -> None:
    first = counter(cluster.plane, tiny)
    assert first > 0
    assert counter(cluster.plane, tiny) > first
    assert "hello" in console(cluster.plane, tiny, 3.0, b"hello\n")


def test_the_consoles_log_is_a_containers(cluster: Cluster, tiny: str) -> None:
    pod = cluster.launcher(tiny)["metadata"]["name"]

    def logged() -> str:
        return cluster.kubectl("logs", pod, "-c", "guest-console-log", "--tail=20", check=False)

    cluster.eventually("the log shows the counter", lambda: bool(COUNTER.search(logged())), 60, tiny)


def test_pause_and_unpause(cluster: Cluster, tiny: str) -> None:
    tell(cluster, tiny, "pause", "virtualmachineinstances")

    def paused() -> bool:
        conditions = cluster.get("vmi", tiny)["status"].get("conditions", [])
        return any(one["type"] == "Paused" and one["status"] == "True" for one in conditions)

    cluster.eventually("paused", paused, 30, tiny)
    tell(cluster, tiny, "unpause", "virtualmachineinstances")
    cluster.eventually("unpaused", lambda: not paused(), 30, tiny)


def test_a_killed_agent_takes_its_machines_over(cluster: Cluster, tiny: str) -> None:
    before = counter(cluster.plane, tiny)
    pod = cluster.launcher(tiny)
    cluster.kill_component("agent")
    cluster.eventually("the console is back", lambda: counted(cluster, tiny) > before, 90, tiny)
    after = cluster.launcher(tiny)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_killed_driver_is_asked_again(cluster: Cluster, tiny: str) -> None:
    before = counter(cluster.plane, tiny)
    cluster.kill_component("driver")
    cluster.eventually("the driver is healthy", cluster.installed, 60, tiny)
    assert counter(cluster.plane, tiny) > before
    assert cluster.phase(tiny) == "Running"


def test_gateway_and_controller_may_be_killed_while_a_machine_starts(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("hasty"))
    for app in ("controller", "gateway"):
        cluster.kill_component(app)
    cluster.wait_phase("hasty", seconds=180)
    pods = cluster.kubectl("get", "pods", "-l", "vmi.kubevirt.io/id=hasty", "-o", "name")
    assert len(pods.split()) == 1
    remove(cluster, "hasty")


def test_a_token_of_another_nodes_agent_changes_nothing_here(cluster: Cluster, tiny: str) -> None:
    other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}
    cluster.plane.apply(other)
    kubeconfig = account_kubeconfig(cluster.plane, "agent", "elsewhere")
    stolen = ("--kubeconfig", str(kubeconfig))
    patch = '{"metadata":{"annotations":{"taken":"over"}}}'
    said = cluster.kubectl("patch", "vmi", tiny, "--type=merge", "-p", patch, *stolen, check=False)
    assert "may change that node, its pods and its machines only" in said
    said = cluster.kubectl("patch", "node", "node1", "--type=merge", "-p", patch, *stolen, check=False)
    assert "may change that node, its pods and its machines only" in said
    pod = cluster.launcher(tiny)["metadata"]["name"]
    said = cluster.kubectl("patch", "pod", pod, "--type=merge", "-p", patch, *stolen, check=False)
    assert "may change that node, its pods and its machines only" in said
    assert "forbidden" in cluster.kubectl("get", "secrets", "-A", *stolen, check=False).lower()
    cluster.kubectl("delete", "node", "elsewhere")


def test_stop_ends_in_the_guests_own_shutdown(cluster: Cluster, tiny: str) -> None:
    tell(cluster, tiny, "stop")
    cluster.eventually("stopped", lambda: not cluster.get("vmi", tiny), 60, tiny)
    events = cluster.kubectl("get", "events", "-o", "json", "--field-selector", f"involvedObject.name={tiny}")
    reasons = [one["reason"] for one in json.loads(events)["items"]]
    assert "ShuttingDown" in reasons
    assert "Stopped" in reasons
    assert "FailedPreStopHook" not in cluster.kubectl("get", "events", "--field-selector", "involvedObject.kind=Pod")
    status = cluster.get("vm", tiny)["status"]
    assert status["printableStatus"] == "Stopped"
    remove(cluster, tiny)


def test_a_container_disk_boots_from_an_image_volume(cluster: Cluster) -> None:
    apply(cluster, disk_vm("disky"))
    cluster.wait_phase("disky")
    cluster.eventually("the guest counts", lambda: counted(cluster, "disky") > 0, 60, "disky")
    remove(cluster, "disky")


def test_a_container_disk_is_copied_where_images_cannot_be_volumes(cluster: Cluster) -> None:
    gates(cluster, ["ImageVolume"])
    try:
        apply(cluster, disk_vm("copied"))
        cluster.wait_phase("copied")
    finally:
        gates(cluster, [])
    made = cluster.launcher("copied")["spec"]
    assert [one["name"] for one in made["initContainers"]] == ["copier", "container-disk-0"]
    assert not any("image" in one for one in made["volumes"])
    cluster.eventually("the guest counts", lambda: counted(cluster, "copied") > 0, 60, "copied")
    remove(cluster, "copied")


def gates(cluster: Cluster, disabled: list[str]) -> None:
    patch = {"spec": {"configuration": {"developerConfiguration": {"disabledFeatureGates": disabled}}}}
    cluster.kubectl("patch", "kubevirt", "kubevirt", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch))


def test_deleting_the_pod_shuts_the_guest_down(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("evicted", strategy="Manual"))
    tell(cluster, "evicted", "start")
    cluster.wait_phase("evicted")
    pod = cluster.launcher("evicted")["metadata"]["name"]
    cluster.kubectl("delete", "pod", pod, "--wait=false")
    cluster.eventually("the run is over", lambda: cluster.phase("evicted") in ("Succeeded", ""), 60, "evicted")
    said = cluster.kubectl("get", "events", "--field-selector", f"involvedObject.name={pod}")
    assert "FailedPreStopHook" not in said
    remove(cluster, "evicted")


def test_a_drained_node_shuts_its_guests_down(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("drained", strategy="Manual"))
    tell(cluster, "drained", "start")
    cluster.wait_phase("drained")
    cluster.kubectl(
        "drain", "node1", "--pod-selector=kubevirt.io=virt-launcher", "--force", "--delete-emptydir-data",
        "--timeout=90s",
    )  # fmt: skip
    cluster.eventually("the run is over", lambda: cluster.phase("drained") in ("Succeeded", ""), 60, "drained")
    cluster.kubectl("uncordon", "node1")
    remove(cluster, "drained")
