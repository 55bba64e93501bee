"""The sockets of a driver that makes them itself, or has its supervisor make them."""

import os
import socket
from pathlib import Path
from typing import Final

BACKLOG: Final = 64


def listen(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A listening socket in the place of what was there; only root and our own user may connect (the kit checks the
    peer, too)."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    return listener
