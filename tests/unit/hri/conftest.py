"""A fake driver that serves on short paths, and a client of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from anyvisor.hri.client import HriClient
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.fake.faults import Faults
from anyvisor.hri.fake.faulty import FaultyCore
from anyvisor.hri.kit.core import KitLimits
from anyvisor.hri.kit.server import DriverServer


@dataclass
class Served:
    """A driver that answers at `hri` and `fd`."""

    driver: FakeDriver
    server: DriverServer
    client: HriClient
    hri: Path
    fd: Path


Serve = Callable[..., "AsyncExitStack"]


@pytest.fixture
async def serve(rundir: Path) -> AsyncIterator[Callable[..., object]]:
    """A function that serves a fake driver with faults and limits."""
    async with AsyncExitStack() as stack:

        async def start(faults: Faults | None = None, limits: KitLimits | None = None, name: str = "d") -> Served:
            driver = FakeDriver(faults)
            hri, fd = rundir / f"{name}.hri", rundir / f"{name}.fd"
            core = FaultyCore(driver, limits)
            server = await stack.enter_async_context(DriverServer(driver, hri, fd, core=core))
            client = await stack.enter_async_context(HriClient(hri, fd))
            return Served(driver, server, client, hri, fd)

        yield start
