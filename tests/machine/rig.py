"""What a test of a driver needs of an agent: sockets bound, descriptors opened, the plan executed, tokens passed."""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import Endpoint, MachineState
from tests.driver_rig import DriverGuest, DriverRig

SECONDS = 90.0
"""No step of a test may take longer; a guest under emulation on a busy machine is slow."""


@dataclass
class Guest(DriverGuest):
    """A machine with its log."""

    seconds: ClassVar = SECONDS

    console: socket.socket | None = None
    heard: str = ""
    """What came over the console. QEMU's log of it may hold a byte twice, when its reader was slow for a moment."""

    @property
    def log(self) -> str:
        """The serial log so far."""
        return (self.directory / "serial.log").read_bytes().decode(errors="replace")

    async def logged(self, pattern: str) -> str:
        """Wait until the serial log contains a match; returns its first group, or all of it."""
        async with asyncio.timeout(SECONDS):
            while (match := re.search(pattern, self.log)) is None:
                await asyncio.sleep(0.02)
        return match[1] if match.groups() else match[0]

    def connect(self, endpoint_id: str) -> socket.socket:
        """A new connection to one of the machine's endpoints."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        connection.connect(str(socket_path(self.directory, endpoint_id)))
        return connection

    async def type(self, text: str) -> None:
        """Write to the console, on a connection that is kept and drained from then on, as an agent does."""
        loop = asyncio.get_running_loop()
        if self.console is None:
            self.console = self.connect("console/serial0")
            loop.add_reader(self.console, self._drain)
        await loop.sock_sendall(self.console, text.encode())

    async def hears(self, text: str, since: int = 0) -> None:
        """Wait until the text has come over the console, after so many characters."""
        async with asyncio.timeout(SECONDS):
            while text not in self.heard[since:]:
                await asyncio.sleep(0.02)

    def _drain(self) -> None:
        assert self.console is not None
        try:
            data = self.console.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.heard += data.decode(errors="replace")
        if not data:
            self.hang_up()

    def hang_up(self) -> None:
        """Close the console's connection."""
        if self.console is not None:
            asyncio.get_running_loop().remove_reader(self.console)
            self.console.close()
            self.console = None

    def close(self) -> None:
        self.hang_up()
        super().close()


def socket_path(directory: Path, endpoint_id: str) -> Path:
    """Where this rig binds an endpoint."""
    return directory / (endpoint_id.replace("/", "-") + ".sock")


class Rig(DriverRig[Guest]):
    """A process of the QEMU driver and its client."""

    seconds: ClassVar = SECONDS

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "anyvisor.drivers.qemu")

    async def launch(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and execute the plan, without Start. `files`: the descriptor of each handle."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        log = os.open(directory / "serial.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        prepared = await self.client.prepare(machine, [], generation=1)
        bound = [each for each in prepared.endpoints if each.WhichOneof("location") == "listen_descriptor"]
        listeners = {each.id: _listen(directory, each) for each in bound}
        descriptors = {**files, "log": log, **{name: each.fileno() for name, each in listeners.items()}}
        process = await self.execute(directory, prepared.launch, descriptors)
        os.close(log)
        for listener in listeners.values():
            listener.close()  # with a copy kept here, the end of the VMM would not show on the connections to it
        guest = Guest(machine, directory, prepared, process)
        self.guests.append(guest)
        return guest

    async def boot(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Launch and Start."""
        guest = await self.launch(machine, files)
        await self.start(guest)
        return guest

    async def start(self, guest: Guest) -> None:
        """Hand the control channel over and let the guest run."""
        token = await self._token(guest)
        operation = await self.client.start(guest.machine.id, generation=1, tokens=[token])
        await self.done(operation)

    async def adopt(self, guest: Guest) -> MachineState:
        """Give a running machine to a driver that does not know it."""
        token = await self._token(guest)
        response = await self.client.adopt(
            guest.machine.id, guest.prepared.handle, generation=1, tokens=[token], pid=guest.process.pid
        )
        return response.state

    async def _token(self, guest: Guest):
        assert list(guest.prepared.driver_handles) == ["control"]
        with guest.connect("control") as connection:
            return await self.client.send_descriptor("control", connection.fileno())


@contextlib.asynccontextmanager
async def running_rig(directory: Path) -> AsyncGenerator[Rig]:
    """A rig with a driver process."""
    rig = Rig(directory)
    try:
        await rig.start_driver()
        yield rig
    finally:
        await rig.close()


def _listen(directory: Path, endpoint: Endpoint) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(socket_path(directory, endpoint.id)))
    listener.listen(4)
    return listener
