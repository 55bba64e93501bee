"""A second node: machines are placed on it, and it fails in the ways in which nodes fail."""

import json
from typing import Any

import pytest

from tests.cluster.cluster import NAMESPACE, REGISTRY, Cluster
from tests.cluster.kit.node import Node
from tests.cluster.node.machines import apply, counted, remove
from tests.e2e.conftest import tiny_vm

Json = dict[str, Any]
NODE_IS_LOST = 150.0
"""Seconds until the cluster calls a node that is silent not ready, with time to spare."""


@pytest.fixture(scope="module")
def second(cluster: Cluster) -> Node:
    if cluster.attached:
        pytest.skip("the cluster's processes belong to somebody else")
    node = cluster.add_node()
    cluster.eventually("a driver is healthy on both nodes", cluster.installed, 180)
    return node


def on(node: Node, name: str, strategy: str = "Always") -> Json:
    """A VM that runs on this node only."""
    vm = tiny_vm(name, strategy)
    vm["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
    return vm


def test_a_machine_runs_where_its_selector_leads(cluster: Cluster, second: Node) -> None:
    for node in cluster.nodes:
        apply(cluster, on(node, f"at-{node.name}"))
    for node in cluster.nodes:
        vmi = cluster.wait_phase(f"at-{node.name}")
        assert vmi["status"]["nodeName"] == node.name
        cluster.eventually("its console is reached", lambda name=f"at-{node.name}": counted(cluster, name) > 0, 60)
    remove(cluster, "at-node1")


def test_without_a_kubelet_a_guest_runs_on_and_is_stopped(cluster: Cluster, second: Node) -> None:
    before, name = counted(cluster, "at-node2"), "at-node2"
    second.plane.processes.kill("node2.kubelet")
    cluster.eventually("the guest runs on", lambda: counted(cluster, name) > before, 60, name)
    cluster.kubectl("delete", "vm", name, "--wait=false")
    cluster.eventually("the guest is stopped", lambda: cluster.phase(name) in ("Succeeded", "Failed", ""), 120, name)
    second.start_kubelet()
    cluster.eventually("all is gone", lambda: not cluster.get("vm", name) and not cluster.launcher(name), 120, name)


def test_after_a_nodes_reboot_its_machines_run_again(cluster: Cluster, second: Node) -> None:
    apply(cluster, on(second, "rebooted"))
    cluster.wait_phase("rebooted")
    before = cluster.uid("rebooted")
    second.down()
    second.up()
    cluster.eventually("another run", lambda: cluster.uid("rebooted") not in ("", before), 240, "rebooted")
    cluster.wait_phase("rebooted", seconds=180)
    cluster.eventually("the guest counts", lambda: counted(cluster, "rebooted") > 0, 60, "rebooted")
    cluster.eventually("the components are back", cluster.installed, 180)
    remove(cluster, "rebooted")


def test_a_node_that_is_gone_and_deleted_leaves_nothing_behind(cluster: Cluster, second: Node) -> None:
    apply(cluster, on(second, "lost"))
    anywhere = tiny_vm("moved")
    apply(cluster, anywhere)
    for name in ("lost", "moved"):
        cluster.wait_phase(name)
    second.down()
    cluster.nodes.remove(second)
    cluster.eventually("the node is not ready", lambda: not second.ready(), NODE_IS_LOST)
    upgraded_past(cluster, second.name)
    cluster.kubectl("delete", "node", second.name)
    cluster.eventually("the run is over", lambda: cluster.phase("lost") != "Running", 300, "lost")
    cluster.wait_phase("moved", seconds=180)
    for name in ("lost", "moved"):
        remove(cluster, name)
    gone = ("get", "hypervisornodes.anyvisor.io", second.name, "--ignore-not-found", "-o", "name")
    cluster.eventually("what was known of the node is gone", lambda: not cluster.kubectl(*gone).strip(), 120)


def upgraded_past(cluster: Cluster, silent: str) -> None:
    """An upgrade reaches the nodes that answer, and names the one that does not."""
    before = agents(cluster)
    # So that there is something to roll out, which this node alone would hold up.
    cluster.kubectl("rollout", "restart", "daemonset/anyvisor-agent", "-n", NAMESPACE)
    done = cluster.anyvisor("upgrade", "--registry", REGISTRY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"agent is of this version; on {silent}, not answering now" in done.stdout
    after = agents(cluster)
    assert after["node1"] != before["node1"]


def agents(cluster: Cluster) -> dict[str, str]:
    """Node -> uid of its newest agent's pod."""
    found = json.loads(cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app=anyvisor-agent", "-o", "json"))
    pods: list[Json] = sorted(found["items"], key=lambda pod: pod["metadata"]["creationTimestamp"])
    return {pod["spec"].get("nodeName", ""): pod["metadata"]["uid"] for pod in pods}
