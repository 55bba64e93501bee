"""The API server that a lab works on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anyvisor.api.crd import crds
from anyvisor.embedded import bootstrap
from anyvisor.embedded.admission import LauncherPodsOnly, VirtualizationRules
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.world import ServerWorld
from anyvisor.hri.packages import load
from anyvisor.kube.client import Client
from tests.contract.controller.lab import Lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    world = ServerWorld()
    config = ServerConfig(
        database=tmp_path / "control" / "objects.sqlite",
        crds=crds(),
        objects=bootstrap.objects(),
        admission=[
            VirtualizationRules(world, "mutating"),
            VirtualizationRules(world, "validating"),
            LauncherPodsOnly(),
        ],
    )
    async with ApiServer(config) as server:
        world.server = server
        await bootstrap.install(Client(server.inprocess(bootstrap.IDENTITY)), [load("qemu")])
        yield Lab(server)
