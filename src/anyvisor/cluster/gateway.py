"""The gateway's process: webhooks and the aggregated API over HTTPS. Any number may run at once."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from anyvisor.api.meta import Json, object_at
from anyvisor.cluster import certificates, process, tls
from anyvisor.cluster.access import Authorizer, Proxy
from anyvisor.cluster.certificates import Names
from anyvisor.cluster.keeper import CertificateKeeper
from anyvisor.cluster.metrics import GatewayMetrics
from anyvisor.cluster.probes import probes
from anyvisor.cluster.webapp import WebApp
from anyvisor.cluster.world import ClusterWorld
from anyvisor.gateway.agents import Agents
from anyvisor.gateway.routes import routes
from anyvisor.gateway.service import Gateway
from anyvisor.gateway.webhooks import Components
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import CONFIG_MAPS

log = logging.getLogger(__name__)

PROXY_NAMESPACE: Final = "kube-system"
PROXY_CONFIG: Final = "extension-apiserver-authentication"
SHUTDOWN_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """What a gateway is told at its start."""

    namespace: str
    service: str = "anyvisor-gateway"
    address: str = "0.0.0.0"
    port: int = 8443
    metrics_port: int = 0
    """Where `/metrics` answers; 0 = nowhere."""
    certificate_secret: str = ""
    """Where its certificate comes from, if somebody else makes it."""
    kubeconfig: Path | None = None


@dataclass(slots=True)
class _Running:
    """What of a gateway changes while it runs."""

    server: ssl.SSLContext = field(default_factory=tls.server)
    agents: ssl.SSLContext = field(default_factory=tls.client_of_agents)
    proxy: Proxy = field(default_factory=Proxy)
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)

    def reload(self, data: dict[str, str]) -> None:
        """Use new certificates for connections that come from now on."""
        own = certificates.pair_of(data, certificates.GATEWAY)
        towards_agents = certificates.pair_of(data, certificates.GATEWAY_CLIENT)
        if own is not None:
            tls.load_pair(self.server, own)
        if towards_agents is not None:
            tls.load_pair(self.agents, towards_agents)
        tls.trust(self.agents, certificates.bundle_of(data))
        for name in (certificates.GATEWAY, certificates.GATEWAY_CLIENT, certificates.AGENT):
            pair = certificates.pair_of(data, name)
            if pair is not None:
                self.metrics.certificate(name, certificates.end_of(pair))
        log.info("certificates are loaded")

    def take_proxy(self, _old: CachedObject | None, new: CachedObject | None) -> None:
        """Learn how the API server's proxy proves itself."""
        if new is None:
            self.proxy = Proxy()
            return
        self.proxy = read_proxy(object_at(new.json(), "data"))
        tls.trust(self.server, self.proxy.authority.encode())


def read_proxy(data: Json) -> Proxy:
    """The proxy's terms from the data of the ConfigMap that every API server publishes them in."""

    def words(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(msgspec.json.decode(str(data.get(key) or "[]"), type=list[str])) or default
        except msgspec.DecodeError:
            return default

    plain = Proxy()
    return Proxy(
        authority=str(data.get("requestheader-client-ca-file") or ""),
        names=words("requestheader-allowed-names", ()),
        user_headers=words("requestheader-username-headers", plain.user_headers),
        group_headers=words("requestheader-group-headers", plain.group_headers),
        extra_prefixes=words("requestheader-extra-headers-prefix", plain.extra_prefixes),
        uid_headers=words("requestheader-uid-headers", plain.uid_headers),
    )


def run(config: GatewayConfig) -> None:
    """Serve until SIGTERM."""
    process.run(_run(config))


async def _run(config: GatewayConfig) -> None:
    async with process.client(config.kubeconfig, "anyvisor-gateway") as client, serving(config, client):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(config: GatewayConfig, client: Client) -> AsyncGenerator[WebApp]:
    """Serve while the block runs; certificates first, as nobody connects without."""
    running = _Running()
    keeper = CertificateKeeper(
        client, Names(config.service, config.namespace), running.reload, config.certificate_secret
    )
    proxy = Informer(client, CONFIG_MAPS, PROXY_NAMESPACE, fields=f"metadata.name={PROXY_CONFIG}")
    proxy.on_change(running.take_proxy)
    async with (
        proxy,
        ClusterWorld(client, config.namespace) as world,
        Agents(running.agents) as agents,
        Gateway(client, agents) as gateway,
        probes(config.metrics_port, running.metrics.text),
        asyncio.TaskGroup() as group,
    ):

        def unready() -> list[str]:
            lacking = [] if running.proxy.authority else [f"ConfigMap {PROXY_CONFIG}: {proxy.last_error or 'not read'}"]
            return [*world.missing(), *lacking]

        app = WebApp(
            world=world,
            client=client,
            routes=routes(lambda: gateway),
            authorizer=Authorizer(client),
            components=Components(namespace=config.namespace),
            proxy=lambda: running.proxy,
            unready=unready,
            metrics=running.metrics,
        )
        keeping = group.create_task(keeper.run(), name="certificates")
        await keeper.loaded.wait()
        runner = web.AppRunner(app.application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, config.address, config.port, ssl_context=running.server).start()
            yield app
        finally:
            await runner.cleanup()
            keeping.cancel()
