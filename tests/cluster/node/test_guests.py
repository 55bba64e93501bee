"""Real guests on a real node: from `kubectl apply` of the manifest that the embedded tests use, to their end."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster.cluster import DISK, NAMESPACE, TINY, Cluster
from tests.cluster.installation import account_kubeconfig
from tests.cluster.streams import console, counter
from tests.e2e.conftest import disk_vm, tiny_vm

Json = dict[str, Any]
SETTLING_SECONDS = 20.0
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default"


def on_cluster(vm: Json) -> Json:
    """The manifest with the guests' images by the names that the node's runtime has for them."""
    return json.loads(
        json.dumps(vm).replace('"image": "tiny"', f'"image": "{TINY}"').replace('"image": "disk"', f'"image": "{DISK}"')
    )


def apply(cluster: Cluster, vm: Json) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(on_cluster(vm)))


def remove(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "vm", name, "--wait=false")
    cluster.eventually(f"{name} is gone", lambda: not cluster.get("vm", name) and not cluster.launcher(name), 90, name)


@pytest.fixture(scope="module")
def tiny(cluster: Cluster) -> str:
    apply(cluster, tiny_vm("tiny"))
    cluster.wait_phase("tiny")
    return "tiny"


def test_the_launcher_is_restricted_and_holds_nothing_of_ours(cluster: Cluster, tiny: str) -> None:
    pod = cluster.launcher(tiny)
    assert pod["status"]["phase"] == "Running"
    container = pod["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    cluster.kubectl("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    said = cluster.kubectl("get", "pods", "-A", "--no-headers")
    assert "virt-launcher" in said


def test_the_console_runs_through_the_aggregation(cluster: Cluster, tiny: str) -> None:
    first = counter(cluster.plane, tiny)
    assert first > 0
    assert counter(cluster.plane, tiny) > first
    assert "hello" in console(cluster.plane, tiny, 3.0, b"hello\n")


def test_pause_and_unpause(cluster: Cluster, tiny: str) -> None:
    path = f"{SUBRESOURCES}/virtualmachineinstances/{tiny}"
    cluster.kubectl("replace", "--raw", f"{path}/pause", "-f", "-", stdin="{}")

    def paused() -> bool:
        conditions = cluster.get("vmi", tiny)["status"].get("conditions", [])
        return any(one["type"] == "Paused" and one["status"] == "True" for one in conditions)

    cluster.eventually("paused", paused, 30, tiny)
    cluster.kubectl("replace", "--raw", f"{path}/unpause", "-f", "-", stdin="{}")
    cluster.eventually("unpaused", lambda: not paused(), 30, tiny)


def test_a_killed_agent_takes_its_machines_over(cluster: Cluster, tiny: str) -> None:
    before = counter(cluster.plane, tiny)
    pod = cluster.launcher(tiny)
    cluster.kill_component("agent")
    cluster.eventually("the console is back", lambda: counter_or_less(cluster, tiny) > before, 90, tiny)
    after = cluster.launcher(tiny)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_killed_driver_is_asked_again(cluster: Cluster, tiny: str) -> None:
    before = counter(cluster.plane, tiny)
    cluster.kill_component("driver")
    cluster.eventually("the driver is healthy", cluster.installed, 60, tiny)
    assert counter(cluster.plane, tiny) > before
    assert cluster.phase(tiny) == "Running"


def counter_or_less(cluster: Cluster, name: str) -> int:
    try:
        return counter(cluster.plane, name)
    except aiohttp.ClientError:
        return -1


def test_the_api_server_may_restart(cluster: Cluster, tiny: str) -> None:
    before = counter(cluster.plane, tiny)
    cluster.restarts.append(time.time())
    cluster.plane.processes.kill("apiserver")
    cluster.plane.start_apiserver(controllers=True)
    cluster.eventually("the console is back", lambda: counter_or_less(cluster, tiny) > before, 90, tiny)
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
    assert "the agent of node elsewhere may write only VMIs that run on this node" in said
    said = cluster.kubectl("patch", "node", "node1", "--type=merge", "-p", patch, *stolen, check=False)
    assert "may change that node and its pods only" in said
    pod = cluster.launcher(tiny)["metadata"]["name"]
    said = cluster.kubectl("patch", "pod", pod, "--type=merge", "-p", patch, *stolen, check=False)
    assert "may change that node and its pods only" in said
    assert "forbidden" in cluster.kubectl("get", "secrets", "-A", *stolen, check=False).lower()
    cluster.kubectl("delete", "node", "elsewhere")


def test_stop_ends_in_the_guests_own_shutdown(cluster: Cluster, tiny: str) -> None:
    cluster.kubectl("replace", "--raw", f"{SUBRESOURCES}/virtualmachines/{tiny}/stop", "-f", "-", stdin="{}")
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
    assert counter(cluster.plane, "disky") > 0
    remove(cluster, "disky")


def test_deleting_the_pod_shuts_the_guest_down(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("evicted", strategy="Manual"))
    cluster.kubectl("replace", "--raw", f"{SUBRESOURCES}/virtualmachines/evicted/start", "-f", "-", stdin="{}")
    cluster.wait_phase("evicted")
    pod = cluster.launcher("evicted")["metadata"]["name"]
    cluster.kubectl("delete", "pod", pod, "--wait=false")
    cluster.eventually("the run is over", lambda: cluster.phase("evicted") in ("Succeeded", ""), 60, "evicted")
    said = cluster.kubectl("get", "events", "--field-selector", f"involvedObject.name={pod}")
    assert "FailedPreStopHook" not in said
    remove(cluster, "evicted")


def test_a_drained_node_shuts_its_guests_down(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("drained", strategy="Manual"))
    cluster.kubectl("replace", "--raw", f"{SUBRESOURCES}/virtualmachines/drained/start", "-f", "-", stdin="{}")
    cluster.wait_phase("drained")
    cluster.kubectl(
        "drain", "node1", "--pod-selector=kubevirt.io=virt-launcher", "--force", "--delete-emptydir-data",
        "--timeout=90s",
    )  # fmt: skip
    cluster.eventually("the run is over", lambda: cluster.phase("drained") in ("Succeeded", ""), 60, "drained")
    cluster.kubectl("uncordon", "node1")
    remove(cluster, "drained")


def test_no_component_asked_for_what_it_may_not(cluster: Cluster) -> None:
    for app in ("controller", "gateway", "agent"):
        logs = cluster.kubectl("logs", "-n", NAMESPACE, "-l", f"app=anyvisor-{app}", "--tail=-1")
        denied = [line for line in logs.splitlines() if "forbidden" in line.lower() and not settling(cluster, line)]
        assert denied == []


def settling(cluster: Cluster, line: str) -> bool:
    """Whether a line is from just after a restart of the API server, which refuses until it has read its rules."""
    at = datetime.fromisoformat(line[:23].replace(",", ".")).replace(tzinfo=UTC).timestamp()
    return any(restart <= at <= restart + SETTLING_SECONDS for restart in cluster.restarts)


def test_it_is_removed_only_when_no_vm_is_left(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("last", strategy="Halted"))
    shown = anyvisor(cluster, "status", "--cluster")
    assert "anyvisor-agent" in shown.stdout
    looked = anyvisor(cluster, "doctor", "--cluster")
    assert looked.returncode == 0, looked.stdout
    assert "accelerators: emulation" in looked.stdout
    refused = anyvisor(cluster, "uninstall")
    assert refused.returncode == 1
    assert "default/last" in refused.stderr
    remove(cluster, "last")
    done = anyvisor(cluster, "uninstall")
    assert done.returncode == 0, done.stderr
    assert "kubevirt.io" not in cluster.kubectl("get", "crds", "-o", "name")
    assert "anyvisor" not in cluster.kubectl("get", "clusterroles,clusterrolebindings,apiservices", "-o", "name")
    cluster.eventually("the namespace is gone", lambda: not cluster.plane.has("namespace", NAMESPACE), 120)


def anyvisor(cluster: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [Path(sys.executable).parent / "anyvisor", *words, "--kubeconfig", cluster.plane.admin]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
