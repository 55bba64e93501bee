"""The end of the product on a cluster; comes after all other tests."""

from datetime import UTC, datetime

from tests.cluster.cluster import NAMESPACE, Cluster
from tests.cluster.node.machines import apply, remove
from tests.e2e.conftest import tiny_vm

SETTLING_SECONDS = 20.0
OURS = ("anyvisor", "kubevirt")
KINDS = (
    "crds,clusterroles,clusterrolebindings,priorityclasses,apiservices,mutatingwebhookconfigurations,"
    "validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


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
    shown = cluster.anyvisor("status", "--cluster")
    assert "anyvisor-agent" in shown.stdout
    looked = cluster.anyvisor("doctor", "--cluster")
    assert looked.returncode == 0, looked.stdout
    assert "accelerators: emulation" in looked.stdout
    refused = cluster.anyvisor("uninstall")
    assert refused.returncode == 1
    assert "default/last" in refused.stderr
    remove(cluster, "last")
    done = cluster.anyvisor("uninstall")
    assert done.returncode == 0, done.stderr
    assert "everything is removed" in done.stdout
    listed = cluster.kubectl("get", f"{KINDS},namespaces,nodes", "-o", "name")
    assert not [one for one in listed.splitlines() if any(word in one for word in OURS)]
    everywhere = cluster.kubectl("get", "roles,rolebindings,secrets,leases,pods", "-A", "-o", "name")
    assert not [one for one in everywhere.splitlines() if any(word in one for word in OURS)]
    for node in cluster.nodes:
        seen_on_node(cluster, node.name)
        assert not list((node.place / "kubelet" / "device-plugins").glob("anyvisor-*"))


def seen_on_node(cluster: Cluster, node: str) -> None:
    """Nothing of ours can be had there any more, and nobody says so."""
    found = cluster.plane.get("node", node)
    keys = [*found["metadata"]["labels"], *found["metadata"].get("annotations", {})]
    assert not [key for key in keys if any(word in key for word in OURS)]

    def offered() -> set[str]:
        now = cluster.plane.get("node", node)["status"]["allocatable"]
        return {count for key, count in now.items() if key.startswith("devices.")}

    # Its kubelet shows devices whose plugin has gone for some minutes, as ones that are broken.
    cluster.eventually("no device is offered", lambda: offered() <= {"0"}, 60)
