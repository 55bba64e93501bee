"""A server that can be told to misbehave, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport
from tests.fakekube import FakeServer, serve


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serve(FakeServer()) as fake:
        yield fake


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Client]:
    transport = HttpTransport(ClientConfig(server.url))
    yield Client(transport)
    await transport.close()
