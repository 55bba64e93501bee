"""The socket around the DHCP core: answers one guest until it is closed."""

import asyncio
import contextlib
import socket
from typing import Final

from anyvisor.agent.network import dhcp
from anyvisor.agent.network.dhcp import Lease

BURST: Final = 20
PER_SECOND: Final = 10.0


class DhcpServer:
    """Owns the socket. A guest that floods it is answered ten times a second."""

    def __init__(self, opened: socket.socket, lease: Lease) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self._lease = opened, lease
        self._allowed, self._counted_at = float(BURST), self._loop.time()
        self._loop.add_reader(opened, self._answer)

    def close(self) -> None:
        """End; idempotent. While it is open, the pod's network namespace lives."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _answer(self) -> None:
        try:
            packet = self._socket.recv(dhcp.MAX_PACKET + 1)
        except BlockingIOError:
            return
        except OSError:  # the link is gone with the VMM
            self.close()
            return
        reply = dhcp.answer(self._lease, packet) if self._may_answer() else None
        if reply is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(reply.data, (str(reply.destination), dhcp.CLIENT_PORT))

    def _may_answer(self) -> bool:
        now = self._loop.time()
        self._allowed = min(self._allowed + (now - self._counted_at) * PER_SECOND, BURST)
        self._counted_at = now
        if self._allowed < 1:
            return False
        self._allowed -= 1
        return True
