"""Attaches a pod to the bridges of the host that its networks name, as Multus does on a cluster."""

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyvisor.agent.network.attach import MachineNetwork, Names, attach, detach
from anyvisor.agent.network.namespace import CommandError, inside, run_ip, run_tools
from anyvisor.agent.network.namespace import exists as exists_here
from anyvisor.agent.open_error import OpenError
from anyvisor.api.meta import Json, annotations, list_at, name, namespace, text_at, uid
from anyvisor.api.names import secondary_interface
from anyvisor.embedded.podnetwork import attachments, host, plans
from anyvisor.embedded.podnetwork.attachments import AttachmentError, BridgeNetwork
from anyvisor.embedded.podnetwork.pods import BridgedPods
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import NETWORK_ATTACHMENTS, PODS


@dataclass(frozen=True, slots=True)
class Wanted:
    """One element of the pod's annotation."""

    namespace: str
    name: str
    interface: str

    @property
    def full_name(self) -> str:
        """As reports name it."""
        return f"{self.namespace}/{self.name}"


def wanted(pod: Json) -> list[Wanted]:
    """The networks that a launcher pod asks for; our own controller wrote the annotation."""
    elements: list[dict[str, Any]] = json.loads(annotations(pod).get(attachments.WANTED) or "[]")
    return [Wanted(str(each["namespace"]), str(each["name"]), str(each["interface"])) for each in elements]


class PodAttachments:
    """Gives each machine its networks: those of the host first, then what the agent makes of them."""

    def __init__(self, instance: str, networks: BridgedPods, reader: Client, writer: Client, names: Names) -> None:
        self._instance = instance
        self._networks = networks
        self._reader = reader
        self._writer = writer
        self._names = names

    async def attach(self, vmi: Json, *, pod: Json, netns: int | None, adopted: bool, only: str = "") -> MachineNetwork:
        """See `anyvisor.agent.network.attach`. Raises OpenError, also for a network that is not there yet."""
        if netns is not None:
            await self._connect(vmi, pod, netns, only)
        return await attach(vmi, pod=pod, netns=netns, adopted=adopted, only=only, names=self._names)

    async def detach(self, *, pod: Json, netns: int, interface: str) -> None:
        """Take the pod off the network of one of its interfaces; idempotent."""
        await detach(netns, interface)
        await inside(netns, partial(_remove, interface))
        staying = [each for each in wanted(pod) if each.interface != interface]
        await self._report(pod, [found for each in staying if (found := await _connected(netns, each)) is not None])

    async def _connect(self, vmi: Json, pod: Json, netns: int, only: str) -> None:
        found: list[tuple[str, str, str]] = []
        for each in wanted(pod):
            try:
                if only in ("", network_of(each.interface, vmi)):
                    await self._link(pod, netns, each)
                if (there := await _connected(netns, each)) is not None:
                    found.append(there)
            except (AttachmentError, CommandError, OSError, ApiError) as error:
                raise OpenError(_field(vmi, each), "NetworkNotReady", str(error), retry=True) from error
        await self._report(pod, found)

    async def _report(self, pod: Json, found: list[tuple[str, str, str]]) -> None:
        text = attachments.network_status(text_at(pod, "status", "podIP"), found)
        if annotations(pod).get(attachments.STATUS) != text:
            patch: Json = {"metadata": {"annotations": {attachments.STATUS: text}}}
            await self._writer.patch(PODS, name(pod), namespace(pod), patch)

    async def _link(self, pod: Json, netns: int, each: Wanted) -> None:
        """Connect the pod, or find it connected."""
        if not await inside(netns, lambda: exists_here(each.interface)):
            network = await self._definition(each)
            link = plans.pod_name(self._instance, f"{uid(pod)}/{each.interface}")
            await asyncio.to_thread(_connect, link, each.interface, self._networks.name(uid(pod)), network)

    async def _definition(self, each: Wanted) -> BridgeNetwork:
        try:
            found = await self._reader.get(NETWORK_ATTACHMENTS, each.name, each.namespace)
        except NotFound as error:
            raise AttachmentError(
                f"NetworkAttachmentDefinition {each.full_name} does not exist; create it, or correct networkName"
            ) from error
        return attachments.read(found, each.full_name)


async def _connected(netns: int, each: Wanted) -> tuple[str, str, str] | None:
    """Name, interface and the MAC address of the pod's end; None while there is none."""
    if not await inside(netns, lambda: exists_here(each.interface)):
        return None
    shown = await inside(netns, lambda: run_tools((("ip", "-j", "link", "show", "dev", each.interface), "")))
    return each.full_name, each.interface, str(json.loads(shown[0])[0].get("address") or "")


def _remove(interface: str) -> None:
    """Its other end, on the host's bridge, goes with it."""
    if exists_here(interface):
        run_ip(f"link delete {interface}\n")


def network_of(interface: str, vmi: Json) -> str:
    """The VMI's network that a pod's interface is for; empty when it is for none."""
    names = (str(each.get("name")) for each in list_at(vmi, "spec", "networks"))
    return next((each for each in names if secondary_interface(each) == interface), "")


def _field(vmi: Json, each: Wanted) -> str:
    for index, network in enumerate(list_at(vmi, "spec", "networks")):
        reference = text_at(network, "multus", "networkName")
        if reference in (each.full_name, each.name):
            return f"spec.networks[{index}].multus.networkName"
    return "spec.networks"


def _connect(link: str, interface: str, space: str, network: BridgeNetwork) -> None:
    bridge = Path("/sys/class/net", network.bridge)
    if not (bridge / "bridge").is_dir():
        what = "is no bridge" if bridge.exists() else "does not exist on this host"
        raise AttachmentError(
            f"bridge {network.bridge} {what}: make it (`ip link add {network.bridge} type bridge`), with the "
            "host's network card in it for a machine on the LAN"
        )
    if network.vlan and (bridge / "bridge" / "vlan_filtering").read_text().strip() != "1":
        raise AttachmentError(
            f"bridge {network.bridge} does not separate VLANs: switch it on (`ip link set {network.bridge} type "
            "bridge vlan_filtering 1`), or remove vlan"
        )
    if host.exists(link):
        run_ip(f"link delete {link}\n")
    mtu = network.mtu or int((bridge / "mtu").read_text())
    run_ip(attachments.link_batch(link, interface, space, mtu, network))
    if network.vlan:
        run_tools((("bridge", "vlan", "add", "dev", link, "vid", str(network.vlan), "pvid", "untagged"), ""))
