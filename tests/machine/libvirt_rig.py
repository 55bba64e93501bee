"""The libvirt driver beside a daemon of the test's own, with the test as its agent."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import ClassVar

from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import DescriptorToken, MachineState
from tests.driver_rig import DriverRig
from tests.libvirt_daemon import Daemon
from tests.machine.rig import SECONDS, Guest, socket_path


class LibvirtRig(DriverRig[Guest]):
    """A process of the libvirt driver and its client."""

    seconds: ClassVar = SECONDS

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        super().__init__(directory, "anyvisor.drivers.libvirt")
        self.daemon = daemon
        self.environment["LIBVIRT_DEFAULT_URI"] = daemon.uri

    async def boot(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and Start; the driver gets every descriptor that it asks for."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        prepared = await self.client.prepare(machine, [], generation=1)
        guest = Guest(machine, directory, prepared, self.launcher(directory))
        self.guests.append(guest)
        tokens = [*await self._listeners(guest), *[await self.client.send_descriptor(h, fd) for h, fd in files.items()]]
        await self.done(await self.client.start(machine.id, generation=1, tokens=tokens))
        return guest

    async def adopt(self, guest: Guest) -> MachineState:
        """Give a running machine to a driver that does not know it."""
        tokens = await self._listeners(guest)
        adopted = await self.client.adopt(guest.machine.id, guest.prepared.handle, generation=1, tokens=tokens)
        return adopted.state

    async def _listeners(self, guest: Guest) -> list[DescriptorToken]:
        tokens: list[DescriptorToken] = []
        for endpoint in guest.prepared.endpoints:
            path = socket_path(guest.directory, endpoint.id)
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
                listener.listen(4)
                tokens.append(await self.client.send_descriptor(endpoint.id, listener.fileno()))
        return tokens


def handles(prepared: PrepareResponse) -> set[str]:
    """What the driver wants besides listening sockets."""
    return set(prepared.driver_handles) - {endpoint.id for endpoint in prepared.endpoints}


async def heard(guest: Guest, pattern: str) -> str:
    """Wait for a match on the console; returns its first group."""
    async with asyncio.timeout(SECONDS):
        while (match := re.search(pattern, guest.heard)) is None:
            await asyncio.sleep(0.02)
    return match[1] if match.groups() else match[0]


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[LibvirtRig]:
    """A daemon, and a rig with a driver process."""
    daemon = Daemon(directory / "d")
    daemon.start()
    rig = LibvirtRig(directory, daemon)
    try:
        await rig.start_driver()
        yield rig
    finally:
        daemon.clear()
        await rig.close()
        daemon.stop()
