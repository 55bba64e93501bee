"""A driver's process in its pod: serves the HRI on two sockets in a memory volume, knows no cluster."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Final

from anyvisor.cluster import process
from anyvisor.hri.kit.server import serve
from anyvisor.hri.packages import load

_BACKLOG: Final = 64


def run(name: str, sockets: Path, state: Path) -> None:
    """Serve until SIGTERM."""
    process.run(_serve(name, sockets, state))


async def _serve(name: str, sockets: Path, state: Path) -> None:
    package = await asyncio.to_thread(load, name)
    listeners = [
        _bind(sockets / "hri.sock", socket.SOCK_STREAM),
        _bind(sockets / "fd.sock", socket.SOCK_SEQPACKET),
    ]
    await serve(package.driver(state), *listeners)


def _bind(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Only root (the agent) and our own user may connect; the kit checks the peer, too."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    return listener
