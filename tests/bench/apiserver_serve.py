"""Runs our API server with the real definitions, driver and admission: `ROOT PORT PLAIN_PORT CERT KEY CA`."""

import asyncio
import signal
import socket
import ssl
import sys
from pathlib import Path

import uvloop

from anyvisor.api.crd import crds
from anyvisor.embedded import bootstrap
from anyvisor.embedded.admission import VirtualizationRules
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.world import ServerWorld
from anyvisor.hri.packages import load
from anyvisor.kube.client import Client

ADMIN = Identity("bench", ("system:masters",))


def listener(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=1024)


async def main(root: Path, port: int, plain: int, cert: str, key: str, ca: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    tls.load_cert_chain(cert, key)
    tls.verify_mode = ssl.CERT_OPTIONAL
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    world = ServerWorld()
    rules = [VirtualizationRules(world, "mutating"), VirtualizationRules(world, "validating")]
    config = ServerConfig(
        root / "control" / "objects.sqlite",
        crds=crds(),
        objects=bootstrap.objects(),
        admission=rules,
        static_tokens={"bench": ADMIN},
    )
    async with ApiServer(config) as server:
        world.server = server
        await bootstrap.install(Client(server.inprocess(bootstrap.IDENTITY)), [load("qemu")])
        await server.serve(listener(port), tls)
        await server.serve(listener(plain))
        print("ready", flush=True)
        await stop.wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
