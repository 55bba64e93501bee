"""What a test of the driver needs of an agent: endpoints made, the plan executed, tokens passed, the console read."""

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
from anyvisor.hri.v1.types_pb2 import DescriptorToken, Endpoint, MachineState
from tests import driver_rig
from tests.driver_rig import DriverGuest, DriverRig

SECONDS = 20.0
"""No step of a test may take longer."""


@dataclass
class Guest(DriverGuest):
    """A machine with the files that it was given and what its console said."""

    seconds: ClassVar = SECONDS

    files: Mapping[str, int]
    log: str = ""
    console: socket.socket | None = None

    def path(self, endpoint_id: str) -> Path:
        """Where an endpoint is."""
        endpoints = {each.id: each for each in self.prepared.endpoints}
        found = endpoints[endpoint_id]
        match found.WhichOneof("location"):
            case "shared_with":
                return self.path(found.shared_with)
            case "vmm_path":
                return self.directory / found.vmm_path
            case _:
                return self.directory / endpoint_id

    def connect(self, endpoint_id: str) -> socket.socket:
        """A new connection to one of the machine's endpoints."""
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(str(self.path(endpoint_id)))
        except OSError:
            connection.close()
            raise
        return connection

    def open_console(self) -> None:
        """Connect to the console; what it says is collected by `said`."""
        if self.console is not None:
            self.console.close()
            self.console = None
        self.console = self.connect("console/serial0")

    async def said(self, pattern: str) -> str:
        """Wait until the console said a match; returns its first group, or all of it."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(SECONDS):
            while (match := re.search(pattern, self.log)) is None:
                assert self.console is not None
                data = await loop.sock_recv(self.console, 65536)
                assert data, f"the console ended after {self.log[-400:]!r}; the VMM said {self.errors[-400:]!r}"
                self.log += data.decode(errors="replace")
        return match[1] if match.groups() else match[0]

    async def type(self, text: str) -> None:
        """Write to the console."""
        assert self.console is not None
        await asyncio.get_running_loop().sock_sendall(self.console, text.encode())

    def close(self) -> None:
        super().close()
        if self.console is not None:
            self.console.close()
        for descriptor in self.files.values():
            os.close(descriptor)


class Rig(DriverRig[Guest]):
    """A process of the Cloud Hypervisor driver and its client."""

    seconds: ClassVar = SECONDS

    def __init__(self, directory: Path, binary: str) -> None:
        super().__init__(directory, "anyvisor.drivers.cloud_hypervisor", ["--binary", binary])
        self.binary = binary

    async def launch(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and execute the plan, without Start. `files`: the descriptor of each handle, ours to close."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        prepared = await self.client.prepare(machine, [], generation=1)
        made = {each.id: _make(directory, each) for each in prepared.endpoints if each.HasField("listen_descriptor")}
        process = await self.execute(directory, prepared.launch, {**files, **made})
        for descriptor in made.values():
            os.close(descriptor)  # with a copy kept here, the end of the VMM would not show on the connections to it
        guest = Guest(machine, directory, prepared, process, files)
        self.guests.append(guest)
        return guest

    async def boot(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Launch, Start, and drain the console."""
        guest = await self.launch(machine, files)
        await self.start(guest)
        guest.open_console()
        return guest

    async def start(self, guest: Guest) -> None:
        """Hand over what the driver wants and let the guest run."""
        tokens = await self.tokens(guest, starting=True)
        await self.done(await self.client.start(guest.machine.id, generation=1, tokens=tokens))

    async def adopt(self, guest: Guest) -> MachineState:
        """Give a running machine to a driver that does not know it."""
        tokens = await self.tokens(guest, starting=False)
        response = await self.client.adopt(
            guest.machine.id, guest.prepared.handle, generation=1, tokens=tokens, pid=guest.process.pid
        )
        return response.state

    async def token(self, handle: str, descriptor: int) -> DescriptorToken:
        """Send a descriptor to the driver."""
        return await self.client.send_descriptor(handle, descriptor)

    async def tokens(self, guest: Guest, *, starting: bool) -> list[DescriptorToken]:
        """Send what the driver wants: for a start all of it, for an adoption the ways to the VMM."""
        endpoints = {each.id: each for each in guest.prepared.endpoints}
        tokens: list[DescriptorToken] = []
        for handle in guest.prepared.driver_handles:
            if handle in endpoints:
                descriptor = _open(guest, endpoints[handle])
                try:
                    tokens.append(await self.token(handle, descriptor))
                finally:
                    os.close(descriptor)
            elif starting:
                tokens.append(await self.token(handle, guest.files[handle]))
        return tokens


@contextlib.asynccontextmanager
async def running_rig(directory: Path, binary: str) -> AsyncGenerator[Rig]:
    """A rig with a driver process."""
    rig = Rig(directory, binary)
    try:
        await rig.start_driver()
        yield rig
    finally:
        await rig.close()


def _make(directory: Path, endpoint: Endpoint) -> int:
    path = str(directory / endpoint.id)
    if endpoint.socket == Endpoint.SOCKET_FIFO:
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(4)
    return listener.detach()


def _open(guest: Guest, endpoint: Endpoint) -> int:
    if endpoint.socket == Endpoint.SOCKET_FIFO:
        return os.open(guest.path(endpoint.id), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return guest.connect(endpoint.id).detach()


def machine_of(name: str, *, memory_mib: int = 64) -> Machine:
    """A machine that boots a kernel and has a serial console."""
    machine = driver_rig.machine_of(name, memory_mib=memory_mib)
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.command_line = "hello, world"
    machine.identity.uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
    return machine
