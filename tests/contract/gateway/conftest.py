"""The embedded API server with gateway and a node agent, as a lab."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anyvisor.api.crd import crds
from anyvisor.embedded import bootstrap, identities
from anyvisor.embedded.aggregation import GatewayRoutes
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.gateway.agents import Agents
from anyvisor.gateway.service import Gateway
from anyvisor.hri.packages import load
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.resources import HYPERVISOR_NODES
from tests.contract.gateway.lab import Lab, serve_agent


@pytest.fixture
async def lab(tmp_path: Path, rundir: Path) -> AsyncIterator[Lab]:
    asked: list[str] = []
    runner = await serve_agent(str(rundir / "a.sock"), asked)
    aggregated = GatewayRoutes()
    config = ServerConfig(
        database=tmp_path / "control" / "objects.sqlite",
        crds=crds(),
        objects=bootstrap.objects(),
        aggregated=aggregated.all(),
        static_tokens={"editor": Identity("eve"), "nobody": Identity("norman"), "admin": bootstrap.IDENTITY},
    )
    listener = socket.create_server(("127.0.0.1", 0))
    async with ApiServer(config) as server, Agents() as agents:
        await server.serve(listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        transport = HttpTransport(ClientConfig(url, token="admin"))
        admin = Client(transport)
        await bootstrap.install(admin, [load("qemu")])
        endpoint = f"unix:{rundir / 'a.sock'}"
        await admin.create(HYPERVISOR_NODES, {"metadata": {"name": "node1"}, "spec": {}})
        await admin.patch(
            HYPERVISOR_NODES, "node1", None, {"status": {"agent": {"endpoint": endpoint}}}, subresource="status"
        )
        async with Gateway(Client(server.inprocess(identities.GATEWAY)), agents) as gateway:
            aggregated.gateway = gateway
            yield Lab(url, admin, asked)
        await transport.close()
    await runner.cleanup()
