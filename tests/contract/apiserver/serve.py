"""Runs one API server until SIGTERM: `serve.py ROOT PORT CERT KEY CA`."""

import asyncio
import json
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import uvloop

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.server import ApiServer

Json = dict[str, Any]
CRDS = Path(__file__).with_name("crds.json")


async def pod_log(pod: Json, query: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Answer with two lines that tell whose log it is."""

    async def lines() -> AsyncIterator[bytes]:
        yield f"log of {pod['metadata']['name']}\n".encode()
        yield f"container {query.get('container', '')}\n".encode()

    return lines()


async def main(root: Path, port: int, cert: str, key: str, ca: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    tls.load_cert_chain(cert, key)
    tls.verify_mode = ssl.CERT_OPTIONAL
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    config = ServerConfig(root / "control" / "state.db", crds=json.loads(CRDS.read_text()), pod_log=pod_log)
    async with ApiServer(config) as server:
        await server.serve(sock, tls)
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
