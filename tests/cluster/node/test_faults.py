"""Parts that die at the worst moment: the API server while machines start and stop, the agent while one stops."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from anyvisor.api.quantity import parse_quantity
from tests.cluster.cluster import NAMESPACE, Cluster
from tests.cluster.kit import pause_image
from tests.cluster.node.machines import apply, ask, claim, counted, head_of_disk, host_path, linux_vm, remove, tell
from tests.e2e.conftest import tiny_vm

FAREWELL = "echo 'printf clean | dd of=/dev/vda conv=fsync 2>/dev/null' >>/etc/farewell"
"""Has the guest write on its disk when it shuts down in order; a power cut leaves none of it."""


URGENT = "urgent"
SPARE_BYTES = 64 << 20
"""Left of a node's memory by a pod that wants the rest; less than any machine needs."""
Json = dict[str, Any]


@pytest.fixture(autouse=True)
def own(cluster: Cluster) -> None:
    if cluster.attached:
        pytest.skip("the cluster's processes belong to somebody else")


def test_the_api_server_may_restart_while_machines_start_run_and_stop(cluster: Cluster) -> None:
    apply(cluster, tiny_vm("steady"))
    cluster.wait_phase("steady")
    before = counted(cluster, "steady")
    apply(cluster, tiny_vm("starting"))
    cluster.restart_apiserver()
    cluster.wait_phase("starting", seconds=180)
    cluster.eventually("the console is back", lambda: counted(cluster, "steady") > before, 90, "steady")
    tell(cluster, "starting", "stop")
    cluster.restart_apiserver()
    cluster.eventually("stopped", lambda: not cluster.get("vmi", "starting"), 120, "starting")
    assert cluster.get("vm", "starting")["status"]["printableStatus"] == "Stopped"
    assert cluster.phase("steady") == "Running"
    for name in ("starting", "steady"):
        remove(cluster, name)


@contextmanager
def without_agents(cluster: Cluster) -> Generator[None]:
    """No agent runs on any node, for a while."""

    def select(value: str | None) -> None:
        patch = {"spec": {"template": {"spec": {"nodeSelector": {"no-such-node": value}}}}}
        cluster.kubectl(
            "patch", "daemonset", "anyvisor-agent", "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch)
        )

    select("yes")
    cluster.eventually("no agent runs", lambda: cluster.component_pid("agent") == 0, 90)
    try:
        yield
    finally:
        select(None)
        cluster.eventually("an agent runs", lambda: cluster.component_pid("agent") > 0, 90)


@pytest.mark.parametrize("how", ["evicted", "deleted", "preempted"])
def test_without_an_agent_the_end_of_a_pod_is_the_guests_own_shutdown(cluster: Cluster, how: str) -> None:
    name = f"guest-{how}"
    cluster.plane.apply(*host_path(cluster, how))
    apply(cluster, linux_vm(name, claim(how), strategy="Manual"))
    tell(cluster, name, "start")
    cluster.wait_phase(name, seconds=180)
    ask(cluster, name, FAREWELL)
    assert head_of_disk(cluster, how, 5) != b"clean"
    pod = cluster.launcher(name)["metadata"]["name"]
    with without_agents(cluster):
        if how == "evicted":
            metadata = {"name": pod, "namespace": "default"}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
            path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
            cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        elif how == "preempted":
            preempt(cluster)
        else:
            cluster.kubectl("delete", "pod", pod, "--wait=false")
        cluster.eventually("the guest said farewell", lambda: head_of_disk(cluster, how, 5) == b"clean", 60, name)
        cluster.eventually("the pod is over", lambda: over(cluster, name), 90, name)
        said = cluster.kubectl("get", "events", "--field-selector", f"involvedObject.name={pod}")
        assert "FailedPreStopHook" not in said
        if how == "preempted":
            cluster.eventually("the other pod runs", lambda: cluster.phase_of_pod(URGENT) == "Running", 90, name)
            cluster.kubectl("delete", f"pod/{URGENT}", f"priorityclass/{URGENT}", "--now")
    cluster.eventually("the run is over", lambda: cluster.phase(name) in ("Succeeded", "Failed", ""), 90, name)
    remove(cluster, name)
    cluster.kubectl("delete", f"pvc/{how}", f"pv/{how}", "--wait=false")


def preempt(cluster: Cluster) -> None:
    """A pod of a higher priority needs all the memory that machines have on the node."""
    node = cluster.plane.get("node", "node1")["status"]["allocatable"]
    pods: list[Json] = json.loads(cluster.kubectl("get", "pods", "-A", "-o", "json"))["items"]
    others = [
        one["spec"]
        for one in pods
        if one["metadata"].get("labels", {}).get("kubevirt.io") != "virt-launcher"
        and one["status"].get("phase") not in ("Succeeded", "Failed")
        and one["spec"].get("nodeName") == "node1"
    ]
    asked = [
        one.get("resources", {}).get("requests", {}).get("memory", "0") for spec in others for one in spec["containers"]
    ]
    free = parse_quantity(node["memory"]).value - sum(parse_quantity(each).value for each in asked)
    container: Json = {
        "name": "main",
        "image": pause_image.NAME,
        "imagePullPolicy": "Never",
        "resources": {"requests": {"memory": str(free - SPARE_BYTES)}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    cluster.plane.apply(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": URGENT}, "value": 1000},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": URGENT, "namespace": "default"},
            "spec": {
                "priorityClassName": URGENT,
                "containers": [container],
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            },
        },
    )


def over(cluster: Cluster, name: str) -> bool:
    """Whether no container of the launcher pod runs any more."""
    return cluster.launcher(name).get("status", {}).get("phase", "Succeeded") in ("Succeeded", "Failed")
