"""The masquerade binding: the guest is behind the pod's address."""

import contextlib
import os
import socket
from dataclasses import dataclass

from anyvisor.agent.network import namespace, rules
from anyvisor.agent.network.interfaces import Interface


@dataclass(frozen=True, slots=True)
class Translated:
    """What the work inside the namespace brings back."""

    taps: list[int]
    mtu: int
    dhcp: socket.socket
    dns: tuple[socket.socket, socket.socket] | None

    def close(self) -> None:
        """Give it back."""
        for descriptor in self.taps:
            os.close(descriptor)
        for each in (self.dhcp, *(self.dns or ())):
            each.close()


def open_translated(interface: Interface, *, adopted: bool, relay: bool) -> Translated:
    """Runs inside the namespace, in a thread of its own."""
    mtu = namespace.mtu_of(interface.pod_interface)
    with contextlib.ExitStack() as undo:
        taps: list[int] = []
        if not adopted:
            taps = namespace.open_tap(interface.tap, interface.queues)
            for descriptor in taps:
                undo.callback(os.close, descriptor)
            namespace.set_forwarding()
            namespace.run_tools(
                (namespace.NFT, rules.translation(interface)), (namespace.IP_BATCH, rules.links(interface, mtu))
            )
        dhcp = undo.enter_context(namespace.dhcp_socket(interface.tap))
        dns = namespace.dns_sockets(str(interface.gateway)) if relay else None
        undo.pop_all()
    return Translated(taps, mtu, dhcp, dns)
