"""The instance's name server: the names of Services, and all that the host can resolve.

It stands in the host's network, so a resolver on the host's loopback is as good as any. It listens on the bridge's
address at a port of its own, to which the packet rules lead, as port 53 may belong to a name server of the host.
"""

import socket
from functools import partial
from typing import Final

from anyvisor.agent.network import resolver
from anyvisor.agent.network.dns import Address, DnsRelay
from anyvisor.embedded.services import message, zone
from anyvisor.embedded.services.zone import Services

_ATTEMPTS: Final = 16


def answer(services: Services, query: bytes, limit: int) -> bytes | None:
    """The answer to a query for a name of ours; None for all others."""
    question = message.parse(query)
    if question is None:
        return None
    return zone.answer(services, question, limit if limit == 0xFFFF else min(limit, question.udp_bytes))


class NameServer:
    """Serves until closed."""

    def __init__(self, relay: DnsRelay, port: int) -> None:
        self._relay = relay
        self.port = port

    @classmethod
    def open(cls, services: Services, address: str) -> "NameServer":
        """Listen on an address; raises OSError."""
        udp, tcp = _sockets(address)
        port = int(udp.getsockname()[1])
        return cls(DnsRelay(udp, tcp, _upstream, partial(answer, services)), port)

    def close(self) -> None:
        """End; idempotent."""
        self._relay.close()


def _upstream() -> Address | None:
    return resolver.first()


def _sockets(address: str) -> tuple[socket.socket, socket.socket]:
    """A UDP and a listening TCP socket on the same free port."""
    for attempt in range(_ATTEMPTS):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            tcp.bind((address, 0))
            tcp.listen(16)
            udp.bind((address, tcp.getsockname()[1]))
        except OSError:
            udp.close()
            tcp.close()
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return udp, tcp
    raise AssertionError("unreachable")
