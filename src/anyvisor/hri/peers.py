"""Who may speak to a unix socket: by the kernel's word, not by the peer's."""

import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Final

_UCRED: Final = struct.Struct("3i")


def _own() -> frozenset[int]:
    return frozenset({0, os.getuid()})


@dataclass(frozen=True, slots=True)
class PeerPolicy:
    """The uids that may connect: root and our own, unless said otherwise."""

    uids: frozenset[int] = field(default_factory=_own)

    def allows(self, connection: socket.socket) -> bool:
        """Whether the process at the other end runs as one of the uids."""
        try:
            raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        except OSError:
            return False
        _, uid, _ = _UCRED.unpack(raw)
        return uid in self.uids
