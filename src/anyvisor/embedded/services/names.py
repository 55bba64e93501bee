"""Where guests ask for names, and in which domains they look for short ones, as a kubelet tells pods."""

from anyvisor.agent.network import resolver
from anyvisor.agent.network.resolver import MAX_SEARCH, Resolver
from anyvisor.api.meta import Json, namespace, text_at
from anyvisor.embedded.podnetwork import BridgedPods
from anyvisor.embedded.services.zone import ZONE


def search(vmi: Json, host: Resolver) -> tuple[str, ...]:
    """The machine's own subdomain first, the cluster's domains, the host's."""
    zone = ".".join(ZONE)
    domains = [f"{namespace(vmi)}.svc.{zone}", f"svc.{zone}", zone, *host.search]
    subdomain = text_at(vmi, "spec", "subdomain")
    own = [f"{subdomain}.{domains[0]}"] if subdomain else []
    return tuple(dict.fromkeys((*own, *domains)))[:MAX_SEARCH]


class ClusterNames:
    """The instance's name server, at the bridge's address."""

    def __init__(self, networks: BridgedPods) -> None:
        self._networks = networks

    async def resolver(self, vmi: Json) -> Resolver:
        """What the guest of a VMI is told. Raises PodNetworkError, which is an OSError."""
        network = await self._networks.network()
        return Resolver((network[1],), None, search(vmi, resolver.read()))
