"""One simulated node: the agent, and beside it the pod runner that stands in for a kubelet."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import uvloop

from anyvisor.agent.driver import DriverAddress
from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.machine import Machine
from anyvisor.agent.main import POD_INDEXES, AgentConfig, run_agent
from anyvisor.agent.network.attach import attach
from anyvisor.agent.node_context import AttachNetwork, DetachNetwork, detach_bridge
from anyvisor.embedded import added_driver, driver_process, podnetwork
from anyvisor.embedded.images.pull import Puller, puller
from anyvisor.embedded.images.source import StoreSource
from anyvisor.embedded.images.store import ImageStore
from anyvisor.embedded.imports.fetch import Fetcher
from anyvisor.embedded.instance import Instance
from anyvisor.embedded.podnetwork import BridgedPods
from anyvisor.embedded.podnetwork.secondary import PodAttachments
from anyvisor.embedded.podrunner.images import PodImages
from anyvisor.embedded.podrunner.launch import by_zygote
from anyvisor.embedded.podrunner.runner import PodRunner, RunnerConfig, node_pods
from anyvisor.embedded.services.names import ClusterNames
from anyvisor.embedded.services.run import serve as serve_services
from anyvisor.embedded.volumes.claims import LocalClaims
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import PROVISIONER
from anyvisor.embedded.volumes.provisioner import Provisioner
from anyvisor.embedded.zygote_client import ZygoteClient
from anyvisor.hri.folders import DriverFolder
from anyvisor.hri.manifests import digest, stated
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.http import HttpTransport

POD_RUNNER = "anyvisor.io/pod-runner"
AGENT = "anyvisor-agent"


def run(
    instance: Instance,
    node: str,
    packages: Sequence[DriverPackage],
    added: Sequence[DriverFolder] = (),
    retired: Sequence[DriverFolder] = (),
    *,
    first: bool,
) -> None:
    """Run until SIGTERM; guests do not notice. The `first` node does what there is once per machine."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=driver_process.LOG_FORMAT)
    addresses = [
        *(_address(driver_process.directory(instance, node, package.name), package.manifest) for package in packages),
        *(_address(added_driver.place(instance, node, folder), folder.raw) for folder in added),
        *(_address(added_driver.place(instance, node, folder), folder.raw, retired=True) for folder in retired),
    ]
    uvloop.run(_run(instance, node, addresses, first))


def _address(place: Path, manifest: Mapping[str, Any], *, retired: bool = False) -> DriverAddress:
    return DriverAddress(
        manifest["driver"],
        str(place / "hri.sock"),
        str(place / "fd.sock"),
        stated(manifest),
        version=manifest["version"] if retired else "",
        manifest_digest=digest(manifest),
    )


def _released(instance: Instance, address: DriverAddress) -> None:
    """The zygote removes a version that nothing needs; it starts this process anew then."""
    logging.getLogger(__name__).info("driver %s has no machine any more", address.key)
    reload = ZygoteClient(instance.zygote_socket).reload
    asyncio.get_running_loop().run_in_executor(None, reload)


def _transport(instance: Instance, name: str) -> HttpTransport:
    return HttpTransport(
        ClientConfig(
            server=f"https://127.0.0.1:{instance.api_port}",
            ca=(instance.pki_dir / "ca.crt").read_bytes(),
            certificate=(instance.pki_dir / f"{name}.crt").read_bytes(),
            key=(instance.pki_dir / f"{name}.key").read_bytes(),
        )
    )


def _networks(
    instance: Instance, networks: BridgedPods | None, reader: Client, writer: Client
) -> tuple[AttachNetwork, DetachNetwork]:
    if networks is None:
        return attach, detach_bridge
    pods = PodAttachments(instance.id, networks, reader, writer, ClusterNames(networks).resolver)
    return pods.attach, pods.detach


def _guest_agent(machines: Mapping[str, Machine], pod_uid: str) -> GuestAgentClient | None:
    return next((each.guest.client for each in machines.values() if each.record.pod_uid == pod_uid), None)


async def _volumes(instance: Instance, client: Client, events: EventRecorder, disks: Disks, pulls: Puller) -> None:
    """Claims and what fills them: one a machine, whatever its number of nodes."""
    provisioner = Provisioner(client, events, disks)
    fetcher = Fetcher(
        client=client,
        puller=pulls,
        disks=disks,
        claims=LocalClaims(client, disks),
        user=instance.users.images,
        place=instance.data_dir / "pulls" / "fills",
        in_use=provisioner.user_of,
    )
    await provisioner.run(fetcher.fill)


async def _run(instance: Instance, node: str, drivers: Sequence[DriverAddress], first: bool) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    users, run_dir, state_dir = instance.users, instance.node_run_dir(node), instance.node_dir(node)
    kubelet, agent = _transport(instance, f"kubelet-{node}"), _transport(instance, f"agent-{node}")
    disks = Disks(instance.data_dir / "volumes")
    networks = podnetwork.pod_networks(instance)
    store = ImageStore(instance.image_dir)
    pulls = puller(instance, store, node)
    machines: dict[str, Machine] = {}
    pod_events = EventRecorder(Client(kubelet), POD_RUNNER, node)
    pods = node_pods(Client(kubelet), node, POD_INDEXES)
    runner = PodRunner(
        RunnerConfig(
            node=node,
            client=Client(kubelet),
            state_dir=state_dir,
            run_dir=run_dir,
            volume_dir=state_dir / "volumes",
            launch=by_zygote(instance.zygote_socket),
            instance=f"{instance.id}-{node}",
            first_user=users.first_vm,
            users=users.vm_count,
            separate=users.separate,
            networks=networks,
            certificate=(instance.pki_dir / "ca.crt").read_bytes(),
            forbidden=(instance.data_dir, run_dir),
            guests=partial(_guest_agent, machines),
            events=pod_events,
            images=PodImages(pulls, Client(kubelet), pod_events, node),
            pods=pods,
        )
    )
    attach_network, detach_network = _networks(instance, networks, Client(kubelet), Client(agent, AGENT))
    config = AgentConfig(
        node=node,
        client=Client(agent, AGENT),
        state_dir=state_dir,
        socket=run_dir / "agent.sock",
        drivers=drivers,
        launchers=runner,
        images=StoreSource(store),
        claims=LocalClaims(Client(agent, AGENT), disks),
        attach_network=attach_network,
        detach_network=detach_network,
        http_uids=(users.control,),
        machines=machines,
        released=partial(_released, instance),
        pods=pods,
    )
    try:
        async with (
            pod_events,
            pods,
            runner.running(),
            EventRecorder(Client(kubelet), PROVISIONER, node) as events,
            asyncio.TaskGroup() as group,
        ):
            if networks is not None:
                group.create_task(networks.warm(), name="spare pod network")
            once: list[asyncio.Task[None]] = []
            if first:
                volumes = _volumes(instance, Client(kubelet), events, disks, pulls)
                once.append(group.create_task(volumes, name="volumes"))
                services = IPv4Network(instance.service_network)
                serving = serve_services(instance.id, services, Client(kubelet), networks, podnetwork.problem)
                once.append(group.create_task(serving, name="services"))
            with contextlib.suppress(asyncio.CancelledError):
                await run_agent(config)
            for task in once:
                task.cancel()
    finally:
        await kubelet.close()
        await agent.close()
