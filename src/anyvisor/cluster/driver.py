"""A driver's process in its pod: serves the HRI on two sockets in a memory volume, knows no cluster."""

import asyncio
import socket
from pathlib import Path

from anyvisor.cluster import process
from anyvisor.hri.kit.server import serve
from anyvisor.hri.kit.sockets import listen
from anyvisor.hri.packages import load


def run(name: str, sockets: Path, state: Path) -> None:
    """Serve until SIGTERM."""
    process.run(_serve(name, sockets, state))


async def _serve(name: str, sockets: Path, state: Path) -> None:
    package = await asyncio.to_thread(load, name)
    listeners = [
        listen(sockets / "hri.sock", socket.SOCK_STREAM),
        listen(sockets / "fd.sock", socket.SOCK_SEQPACKET),
    ]
    await serve(package.driver(state), *listeners)
