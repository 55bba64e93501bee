"""The agent's process on a node of a cluster."""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent.main import AgentConfig, run_agent
from anyvisor.agent.network.attach import attach
from anyvisor.agent.remote import RemoteListener
from anyvisor.agent.volumes.source import ClaimSource, ImageSource
from anyvisor.api.meta import Json
from anyvisor.cluster import process
from anyvisor.cluster.device_plugins import DevicePlugins, SharedDevice, found_devices
from anyvisor.cluster.driver_links import DriverLinks
from anyvisor.cluster.launchers import PodLaunchers
from anyvisor.cluster.pods import NodePods
from anyvisor.cluster.volumes import PodVolumes
from anyvisor.hri.packages import load_all

log = logging.getLogger(__name__)

GATEWAY_NAME: Final = "anyvisor-gateway-client"
RELOAD_SECONDS: Final = 60.0
HOST_DEV: Final = Path("/host/dev")
_FILES: Final = ("ca.crt", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class ClusterAgentConfig:
    """What an agent is told at its start."""

    namespace: str
    node: str
    address: str
    port: int
    state: Path
    tls: Path
    """The directory with `ca.crt`, `tls.crt` and `tls.key`, which the kubelet keeps current."""
    drivers: Sequence[str]
    links: Path = Path("/run/anyvisor/drivers")
    device_plugins: Path | None = None
    host_state: str = ""
    """Where `state` is on the host."""
    host_dev: Path = HOST_DEV
    kubeconfig: Path | None = None


def run(config: ClusterAgentConfig) -> None:
    """Run until SIGTERM; guests do not notice."""
    process.run(_run(config))


async def _run(config: ClusterAgentConfig) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    _load(context, config.tls)
    packages = load_all(config.drivers)
    devices = _devices(config)
    loop = asyncio.get_running_loop()
    async with process.client(config.kubeconfig, "anyvisor-agent") as client, NodePods(client, config.node) as pods:
        await pods.cache.synced.wait()
        links = DriverLinks(pods, config.namespace, config.links, packages)

        def volumes_of(vmi: Json, pod_uid: str) -> tuple[ImageSource, ClaimSource]:
            volumes = PodVolumes(vmi, pod_uid, pods, loop)
            return volumes, volumes

        none = PodVolumes({}, "", pods, loop)
        agent = AgentConfig(
            node=config.node,
            client=client,
            state_dir=config.state,
            socket=config.links / "agent.sock",
            drivers=links.addresses(),
            launchers=PodLaunchers(pods),
            images=none,
            claims=none,
            attach_network=attach,
            remote=RemoteListener(config.address, config.port, context, frozenset({GATEWAY_NAME})),
            volumes_of=volumes_of,
            labels=_labels(devices),
        )
        await _work(config, agent, links, devices, context)


async def _work(
    config: ClusterAgentConfig,
    agent: AgentConfig,
    links: DriverLinks,
    devices: Sequence[SharedDevice],
    context: ssl.SSLContext,
) -> None:
    async with asyncio.TaskGroup() as group:
        helpers = [
            group.create_task(links.run(), name="driver links"),
            group.create_task(_follow_certificates(context, config.tls), name="certificates"),
        ]
        if config.device_plugins is not None:
            plugins = DevicePlugins(config.device_plugins, config.host_dev, devices)
            helpers.append(group.create_task(plugins.run(), name="device plugins"))
        try:
            await run_agent(agent)
        finally:
            for helper in helpers:
                helper.cancel()


def _devices(config: ClusterAgentConfig) -> list[SharedDevice]:
    host_state = config.host_state or str(config.state)
    return found_devices(config.host_dev, config.state / "devices", f"{host_state}/devices")


def _labels(devices: Sequence[SharedDevice]) -> dict[str, str]:
    """What manifests and driver pods select nodes by."""
    found = {"kubevirt.io/schedulable": "true", "anyvisor.io/agent": "true"}
    return found | {f"anyvisor.io/device.{device.name}": "true" for device in devices}


def _load(context: ssl.SSLContext, directory: Path) -> tuple[bytes, ...]:
    """Use the files as they are now; what they hold."""
    authority, certificate, key = (directory / name for name in _FILES)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return tuple((directory / name).read_bytes() for name in _FILES)


async def _follow_certificates(context: ssl.SSLContext, directory: Path) -> None:
    """Use renewed certificates for new connections. The kubelet writes them within about a minute."""
    known: tuple[bytes, ...] = ()
    while True:
        try:
            found = await asyncio.to_thread(_load, context, directory)
            if known and found != known:
                log.info("certificates are renewed")
            known = found
        except (OSError, ssl.SSLError) as error:
            log.warning("certificates in %s cannot be used, the former stay: %s", directory, error)
        await asyncio.sleep(RELOAD_SECONDS)
