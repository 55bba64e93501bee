"""The node under test: its API server in this process, agent, pod runner and driver in others."""

import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from node_process import NODE
from world import World

from anyvisor.api.crd import crds
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client

ADMIN = Identity("admin", ("system:masters",)).with_authenticated()
TOKENS = {
    "agent": Identity(f"system:anyvisor:agent:{NODE}", ("system:anyvisor:agents",)),
    "node": Identity(f"system:node:{NODE}", ("system:nodes",)),
}


@pytest.fixture
async def idle(rundir: Path, tmp_path: Path) -> AsyncIterator[World]:
    """The API server runs; node and driver do not yet."""
    config = ServerConfig(database=tmp_path / "objects.sqlite", crds=crds(), static_tokens=TOKENS)
    async with ApiServer(config) as server:
        listener = socket.create_server(("127.0.0.1", 0))
        await server.serve(listener)
        api = f"http://127.0.0.1:{listener.getsockname()[1]}"
        world = World(rundir, Client(server.inprocess(ADMIN)), api, separate=os.geteuid() == 0)
        try:
            yield world
        finally:
            world.close()


@pytest.fixture
async def world(idle: World) -> World:
    """Everything runs."""
    idle.start_zygote()
    idle.start_driver()
    idle.start_node()
    return idle
