"""Open a machine's network, and give it back."""

import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from anyvisor.agent.network import interfaces, namespace, resolver
from anyvisor.agent.network.bridged import DHCP_ADDRESS, Bridged, PodAddress, open_bridged
from anyvisor.agent.network.dhcp import Lease
from anyvisor.agent.network.dhcp_server import DhcpServer
from anyvisor.agent.network.dns import DnsRelay
from anyvisor.agent.network.interfaces import Interface
from anyvisor.agent.network.resolver import Resolver
from anyvisor.agent.network.translated import Translated, open_translated
from anyvisor.agent.open_error import OpenError
from anyvisor.api.meta import Json, object_at, text_at
from anyvisor.hri.v1.machine_spec_pb2 import Nic, TapBackend, UserBackend

HANDLE: Final = "net"
T = TypeVar("T")
Names = Callable[[Json], Awaitable[Resolver]]
"""The cluster's resolver for the guest of a VMI."""


@dataclass(slots=True)
class MachineNetwork:
    """The opened network of one machine. `descriptors` are the caller's to take; `close` ends what stays with us."""

    nics: list[Nic] = field(default_factory=list[Nic])
    descriptors: dict[str, int] = field(default_factory=dict[str, int])
    status: list[Json] = field(default_factory=list[Json])
    taps: dict[str, str] = field(default_factory=dict[str, str])
    _services: list[tuple[str, DhcpServer | DnsRelay]] = field(default_factory=list[tuple[str, DhcpServer | DnsRelay]])
    """Each with the interface that it is for."""

    def absorb(self, other: "MachineNetwork") -> None:
        """Take over interfaces that were opened later; the other is empty then."""
        self.nics += other.nics
        self.status += other.status
        self.taps |= other.taps
        self._services += other._services
        other._services = []

    def drop(self, name: str) -> None:
        """Forget an interface that the guest has no more, and end what served it."""
        self.nics = [nic for nic in self.nics if nic.id != name]
        self.status = [entry for entry in self.status if entry["name"] != name]
        self.taps.pop(name, None)
        for interface, service in self._services:
            if interface == name:
                service.close()
        self._services = [each for each in self._services if each[0] != name]

    def close(self) -> None:
        """End the DHCP server and the name relay, and close the descriptors that nobody took; idempotent."""
        for _, service in self._services:
            service.close()
        for descriptor in self.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors.clear()


@dataclass(frozen=True, slots=True)
class _Where:
    """What all interfaces of one machine share."""

    vmi: Json
    netns: int
    pod_ip: str
    adopted: bool
    host: Resolver


async def attach(
    vmi: Json, *, pod: Json, netns: int | None, adopted: bool, only: str = "", names: Names | None = None
) -> MachineNetwork:
    """Open the interfaces of a VMI in the pod's namespace; without one, by the VMM's user-mode network.

    `adopted`: the guest runs already, so its links are there; only the sockets that ended with the agent before are
    opened again. An interface without a link is not the guest's yet (`only` opens it alone). `names`: where there is a
    cluster's name server; else guests use the host's.

    Raises:
        OpenError: with the field, the cause and the next step; nothing stays open.
    """
    network = MachineNetwork()
    cluster = await names(vmi) if names is not None and netns is not None else None
    host = resolver.guest_resolver(object_at(vmi, "spec"), cluster, resolver.read())
    try:
        for index, interface in enumerate(interfaces.read(vmi, leaving=adopted)):
            at = f"spec.domain.devices.interfaces[{index}]"
            if only not in ("", interface.name) or (adopted and not await _linked(netns, interface)):
                continue
            if netns is None:
                _attach_user(network, vmi, interface, host, at)
                continue
            where = _Where(vmi, netns, text_at(pod, "status", "podIP"), adopted, host)
            if interface.bridged:
                await _attach_bridged(network, interface, where, at)
            else:
                await _attach_translated(network, interface, where, at)
    except BaseException:
        network.close()
        raise
    return network


async def detach(netns: int, interface: str) -> None:
    """Take down what joined a pod's interface to a link of the guest that is gone."""
    bridge = interfaces.bridge_name(interface)

    def remove() -> None:
        if namespace.exists(bridge):
            namespace.run_ip(f"link delete {bridge}\n")

    await namespace.inside(netns, remove)


async def _linked(netns: int | None, interface: Interface) -> bool:
    """Whether a running guest has the interface: its link goes with the VMM's descriptors."""
    if netns is None:
        return not interface.bridged
    return await namespace.inside(netns, partial(namespace.exists, interface.tap))


def _attach_user(network: MachineNetwork, vmi: Json, interface: Interface, host: Resolver, at: str) -> None:
    if interface.bridged:
        raise OpenError(
            at,
            "NetworkNotReady",
            "a bridged interface needs a network namespace, which only root can make: run `anyvisor up` as root, or "
            "use `masquerade: {}` on the pod network",
            retry=True,
        )
    user = UserBackend(network=str(interface.network), hostname=interfaces.hostname(vmi), dns_search=host.search)
    network.nics.append(_nic(interface, user=user))
    network.status.append(_status(interface, ""))


async def _attach_translated(network: MachineNetwork, interface: Interface, where: _Where, at: str) -> None:
    host = where.host
    relay = not host.servers and host.relayed is not None
    work = partial(open_translated, interface, adopted=where.adopted, relay=relay)
    opened = await _inside(where.netns, work, Translated.close, at)
    lease = _lease(where, interface, opened.mtu)
    network._services.append((interface.name, DhcpServer(opened.dhcp, lease)))
    if opened.dns is not None and host.relayed is not None:
        network._services.append((interface.name, DnsRelay(*opened.dns, lambda: host.relayed)))
    _add(network, interface, opened.taps, opened.mtu)
    network.status.append(_status(interface, where.pod_ip))


async def _attach_bridged(network: MachineNetwork, interface: Interface, where: _Where, at: str) -> None:
    work = partial(open_bridged, interface, adopted=where.adopted)
    opened = await _inside(where.netns, work, Bridged.close, at)
    if opened.dhcp is not None and opened.address is not None:
        lease = _bridged_lease(where, interface, opened.mtu, opened.address)
        network._services.append((interface.name, DhcpServer(opened.dhcp, lease)))
    _add(network, interface, opened.taps, opened.mtu)
    network.status.append(_status(interface, str(opened.address.own.ip) if opened.address is not None else ""))


async def _inside(netns: int, work: Callable[[], T], undo: Callable[[T], None], at: str) -> T:
    try:
        return await namespace.inside(netns, work, undo)
    except (OSError, namespace.CommandError) as error:
        why = f"the pod's network could not be set up: {error}"
        raise OpenError(at, "NetworkNotReady", why, retry=True) from error


def _add(network: MachineNetwork, interface: Interface, taps: list[int], mtu: int) -> None:
    handles = [f"{HANDLE}/{interface.name}/{queue}" for queue in range(len(taps))]
    network.descriptors.update(zip(handles, taps, strict=True))
    network.taps[interface.name] = interface.tap
    network.nics.append(_nic(interface, mtu=mtu, tap=TapBackend(handles=handles)))


def _lease(where: _Where, interface: Interface, mtu: int) -> Lease:
    host, extras = where.host, interface.dhcp
    return Lease(
        address=interface.guest,
        network=interface.network,
        gateway=interface.gateway,
        dns=host.servers or ((interface.gateway,) if host.relayed is not None else ()),
        hostname=interfaces.hostname(where.vmi),
        search=host.search,
        mtu=mtu,
        ntp=extras.ntp_servers,
        tftp_server=extras.tftp_server,
        boot_file=extras.boot_file,
        private=extras.private,
    )


def _bridged_lease(where: _Where, interface: Interface, mtu: int, address: PodAddress) -> Lease:
    """The pod's own address and way out. A resolver on the host's loopback cannot be had from here."""
    extras = interface.dhcp
    return Lease(
        address=address.own.ip,
        network=address.own.network,
        gateway=address.gateway or DHCP_ADDRESS,
        dns=where.host.servers,
        hostname=interfaces.hostname(where.vmi),
        search=where.host.search,
        mtu=mtu,
        ntp=extras.ntp_servers,
        tftp_server=extras.tftp_server,
        boot_file=extras.boot_file,
        private=extras.private,
        server=DHCP_ADDRESS,
        routes=address.routes(),
    )


def _nic(interface: Interface, *, mtu: int = 0, tap: TapBackend | None = None, user: UserBackend | None = None) -> Nic:
    return Nic(
        id=interface.name,
        model=interface.model,
        mac=interface.mac,
        mtu=mtu if interface.model == Nic.MODEL_VIRTIO else 0,
        link_down=interface.link_down,
        queues=interface.queues if tap is not None else 0,
        pci_address=interface.pci_address,
        acpi_index=interface.acpi_index,
        tap=tap,
        user=user,
    )


def _status(interface: Interface, address: str) -> Json:
    """An entry of `status.interfaces`. Behind translation, the guest is reached at the pod's address."""
    entry: Json = {
        "name": interface.name,
        "mac": interface.mac,
        "infoSource": "domain",
        "queueCount": interface.queues,
        "linkState": "down" if interface.link_down else "up",
    }
    if address:
        entry |= {"ipAddress": address, "ipAddresses": [address]}
    return entry
