"""The embedded container network: a bridge for each instance, and for each pod a namespace with one address on it.

Everything has the instance in its name, so that two instances never meet, and so that what a crash left behind can be
found and removed.
"""

from ipaddress import IPv4Network

from anyvisor.embedded.instance import Instance
from anyvisor.embedded.podnetwork.host import known_networks, problem
from anyvisor.embedded.podnetwork.plans import PodNetworkError, choose_network
from anyvisor.embedded.podnetwork.pods import BridgedPods

__all__ = ["BridgedPods", "PodNetworkError", "choose_service_network", "pod_networks", "problem"]


def pod_networks(instance: Instance) -> BridgedPods | None:
    """Namespaces for the pods of an instance, or None where the host does not allow them."""
    services = IPv4Network(instance.service_network) if instance.service_network else None
    return None if problem() else BridgedPods(instance.id, instance.run_dir / "podnetwork.json", services)


def choose_service_network(instance: str) -> IPv4Network:
    """A network for the cluster IPs of a new instance, apart from those that the host knows."""
    return choose_network(f"services of {instance}", known_networks())
