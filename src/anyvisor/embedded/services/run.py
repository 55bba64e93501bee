"""Services on one machine: packet rules and names, or a sentence on each Service why there are none."""

import asyncio
import logging
from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Final

from anyvisor.embedded.podnetwork import BridgedPods, PodNetworkError, plans
from anyvisor.embedded.services import cache
from anyvisor.embedded.services.cache import ServiceCache
from anyvisor.embedded.services.name_server import NameServer
from anyvisor.embedded.services.proxy import ServiceProxy
from anyvisor.embedded.services.rules import Ground
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
COMPONENT: Final = "service-proxy"


async def serve(
    instance: str, services: IPv4Network, client: Client, networks: BridgedPods | None, problem: Callable[[], str]
) -> None:
    """Serve until cancelled. `problem` tells why there are no `networks`."""
    changed = asyncio.Event()
    async with EventRecorder(client, COMPONENT, instance) as events, cache.follow(client, changed.set) as found:
        proxy = ServiceProxy(found, events)
        if networks is None:
            await _without_network(proxy, changed, problem())
        else:
            await _with_network(instance, services, networks, found, proxy, changed)


async def _without_network(proxy: ServiceProxy, changed: asyncio.Event, why: str) -> None:
    while True:
        changed.clear()
        proxy.say(
            f"virtual machines have no network that a Service could reach, as {why}; run `anyvisor up` as root, or "
            "use port forwarding"
        )
        await changed.wait()


async def _with_network(
    instance: str,
    services: IPv4Network,
    networks: BridgedPods,
    found: ServiceCache,
    proxy: ServiceProxy,
    changed: asyncio.Event,
) -> None:
    while True:
        try:
            pods = await networks.network()
            server = NameServer.open(found, str(pods[1]))
            break
        except (PodNetworkError, OSError) as error:
            log.warning("Services are not served: %s", error)
            proxy.say(str(error))
            await asyncio.sleep(RETRY_SECONDS)
    ground = Ground(
        table=plans.services_table_name(instance),
        bridge=plans.bridge_name(instance),
        pods=pods,
        services=services,
        dns_port=server.port,
    )
    try:
        await proxy.run(ground, changed)
    finally:
        server.close()
