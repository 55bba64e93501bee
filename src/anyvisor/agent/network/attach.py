"""Open a machine's network, and give it back."""

import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from anyvisor.agent.network import interfaces, namespace, resolver, rules
from anyvisor.agent.network.dhcp import Lease
from anyvisor.agent.network.dhcp_server import DhcpServer
from anyvisor.agent.network.dns import DnsRelay
from anyvisor.agent.network.interfaces import Interface
from anyvisor.agent.network.resolver import Resolver
from anyvisor.agent.open_error import OpenError
from anyvisor.api.meta import Json, object_at
from anyvisor.hri.v1.machine_spec_pb2 import Nic, TapBackend, UserBackend

HANDLE: Final = "net"


@dataclass(slots=True)
class MachineNetwork:
    """The opened network of one machine. `descriptors` are the caller's to take; `close` ends what stays with us."""

    nics: list[Nic] = field(default_factory=list[Nic])
    descriptors: dict[str, int] = field(default_factory=dict[str, int])
    status: list[Json] = field(default_factory=list[Json])
    _services: list[DhcpServer | DnsRelay] = field(default_factory=list[DhcpServer | DnsRelay])

    def close(self) -> None:
        """End the DHCP server and the name relay, and close the descriptors that nobody took; idempotent."""
        for service in self._services:
            service.close()
        for descriptor in self.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.descriptors.clear()


@dataclass(frozen=True, slots=True)
class _Opened:
    """What the work inside the namespace brings back."""

    taps: list[int]
    mtu: int
    dhcp: socket.socket
    dns: tuple[socket.socket, socket.socket] | None


Names = Callable[[Json], Awaitable[Resolver]]
"""The cluster's resolver for the guest of a VMI."""


async def attach(
    vmi: Json, *, netns: int | None, pod_ip: str, adopted: bool, names: Names | None = None
) -> MachineNetwork:
    """Open the interfaces of a VMI in the pod's namespace; without one, by the VMM's user-mode network.

    `adopted`: the guest runs already, so its link is there; only the sockets that ended with the agent before are
    opened again. `names`: where there is a cluster's name server; else guests use the host's.

    Raises:
        OpenError: with the field, the cause and the next step; nothing stays open.
    """
    network = MachineNetwork()
    cluster = await names(vmi) if names is not None and netns is not None else None
    host = resolver.guest_resolver(object_at(vmi, "spec"), cluster, resolver.read())
    try:
        for index, interface in enumerate(interfaces.read(vmi)):
            if netns is None:
                network.nics.append(_nic(interface, user=_user(vmi, interface, host)))
                network.status.append(_status(interface, ""))
            else:
                await _attach_translated(network, vmi, interface, index, netns, adopted, host)
                network.status.append(_status(interface, pod_ip))
    except BaseException:
        network.close()
        raise
    return network


async def _attach_translated(
    network: MachineNetwork, vmi: Json, interface: Interface, index: int, netns: int, adopted: bool, host: Resolver
) -> None:
    tap = rules.tap_name(index)
    relay = not host.servers and host.relayed is not None
    try:
        opened = await namespace.inside(netns, partial(_open, interface, tap, adopted, relay), _close)
    except (OSError, namespace.CommandError) as error:
        raise OpenError(
            f"spec.domain.devices.interfaces[{index}]",
            "NetworkNotReady",
            f"the pod's network could not be set up: {error}",
            retry=True,
        ) from error
    handles = [f"{HANDLE}/{interface.name}/{queue}" for queue in range(len(opened.taps))]
    network.descriptors.update(zip(handles, opened.taps, strict=True))
    lease = _lease(vmi, interface, host, opened.mtu)
    network._services.append(DhcpServer(opened.dhcp, lease))
    if opened.dns is not None and host.relayed is not None:
        network._services.append(DnsRelay(*opened.dns, lambda: host.relayed))
    network.nics.append(_nic(interface, mtu=opened.mtu, tap=TapBackend(handles=handles)))


def _open(interface: Interface, tap: str, adopted: bool, relay: bool) -> _Opened:
    """Runs inside the namespace, in a thread of its own."""
    mtu = namespace.mtu_of(rules.POD_INTERFACE)
    with contextlib.ExitStack() as undo:
        taps: list[int] = []
        if not adopted:
            taps = namespace.open_tap(tap, interface.queues)
            for descriptor in taps:
                undo.callback(os.close, descriptor)
            namespace.set_forwarding()
            namespace.run_tools(
                (namespace.NFT, rules.translation(interface)), (namespace.IP_BATCH, rules.links(interface, tap, mtu))
            )
        dhcp = undo.enter_context(namespace.dhcp_socket(tap))
        dns = namespace.dns_sockets(str(interface.gateway)) if relay else None
        undo.pop_all()
    return _Opened(taps, mtu, dhcp, dns)


def _close(opened: _Opened) -> None:
    for descriptor in opened.taps:
        os.close(descriptor)
    for each in (opened.dhcp, *(opened.dns or ())):
        each.close()


def _lease(vmi: Json, interface: Interface, host: Resolver, mtu: int) -> Lease:
    extras = interface.dhcp
    return Lease(
        address=interface.guest,
        network=interface.network,
        gateway=interface.gateway,
        dns=host.servers or ((interface.gateway,) if host.relayed is not None else ()),
        hostname=interfaces.hostname(vmi),
        search=host.search,
        mtu=mtu,
        ntp=extras.ntp_servers,
        tftp_server=extras.tftp_server,
        boot_file=extras.boot_file,
        private=extras.private,
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


def _user(vmi: Json, interface: Interface, host: Resolver) -> UserBackend:
    return UserBackend(network=str(interface.network), hostname=interfaces.hostname(vmi), dns_search=host.search)


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
