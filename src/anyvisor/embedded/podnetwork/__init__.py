"""The embedded container network: a bridge for each instance, and for each pod a namespace with one address on it.

Everything has the instance in its name, so that two instances never meet, and so that what a crash left behind can be
found and removed.
"""

from anyvisor.embedded.instance import Instance
from anyvisor.embedded.podnetwork.host import problem
from anyvisor.embedded.podnetwork.plans import PodNetworkError
from anyvisor.embedded.podnetwork.pods import BridgedPods

__all__ = ["BridgedPods", "PodNetworkError", "pod_networks", "problem"]


def pod_networks(instance: Instance) -> BridgedPods | None:
    """Namespaces for the pods of an instance, or None where the host does not allow them."""
    return None if problem() else BridgedPods(instance.id, instance.run_dir / "podnetwork.json")
