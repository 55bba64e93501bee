"""What a test of the driver needs of an agent: endpoints made, the plan executed, tokens passed, the console read."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anyvisor.hri.client import HriClient, outcome
from anyvisor.hri.errors import DriverUnavailable
from anyvisor.hri.v1.machine_pb2 import Event, LaunchPlan, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Console, Machine
from anyvisor.hri.v1.types_pb2 import DescriptorToken, Endpoint, MachineState, Operation
from anyvisor.launcher import shim

SECONDS = 20.0
"""No step of a test may take longer."""


@dataclass
class Guest:
    """A machine of the test: its launcher directory, its VMM, what its console said."""

    machine: Machine
    directory: Path
    prepared: PrepareResponse
    process: subprocess.Popen[bytes]
    files: Mapping[str, int]
    log: str = ""
    console: socket.socket | None = None
    readers: set[int] = field(default_factory=set[int])

    @property
    def errors(self) -> str:
        """What the VMM said on its standard error."""
        return (self.directory / "stderr").read_text(errors="replace")

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

    async def ended(self) -> int:
        """Wait for the end of the VMM's process; returns its exit status."""
        async with asyncio.timeout(SECONDS):
            return await asyncio.to_thread(self.process.wait)


class Rig:
    """A driver process and its client."""

    def __init__(self, directory: Path, binary: str) -> None:
        self.directory = directory
        self.binary = binary
        self.guests: list[Guest] = []
        self.states: dict[str, MachineState] = {}
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self.client = HriClient(directory / "hri.sock", directory / "fd.sock")

    async def start_driver(self) -> None:
        """Start the driver's process and wait until it answers."""
        command = [sys.executable, "-m", "anyvisor.drivers.cloud_hypervisor", "--binary", self.binary]
        command += ["--hri", str(self.directory / "hri.sock"), "--fd", str(self.directory / "fd.sock")]
        with (self.directory / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a millisecond
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        async with asyncio.timeout(SECONDS):
            while not await self._answers():
                assert self._driver.poll() is None, self.driver_log
                await asyncio.sleep(0.02)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def _answers(self) -> bool:
        if not (self.directory / "hri.sock").exists() or not (self.directory / "fd.sock").exists():
            return False
        try:
            await self.client.connect()
        except DriverUnavailable:
            return False
        return True

    @property
    def driver_log(self) -> str:
        """What the driver's process said."""
        return (self.directory / "driver.log").read_text(errors="replace")

    async def kill_driver(self) -> None:
        """kill -9."""
        assert self._driver is not None
        self._driver.kill()
        await asyncio.to_thread(self._driver.wait)
        for name in ("hri.sock", "fd.sock"):
            (self.directory / name).unlink(missing_ok=True)
        self.states.clear()

    async def close(self) -> None:
        """End all that was started."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        self.client.close()
        for guest in self.guests:
            guest.process.kill()
            guest.process.wait()
            if guest.console is not None:
                guest.console.close()
            for descriptor in guest.files.values():
                os.close(descriptor)
        if self._driver is not None:
            self._driver.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(self._driver.wait, 10) == 0, self.driver_log

    async def _watch(self) -> None:
        async for event in self.client.events():
            async with self._changed:
                if event.kind in (Event.KIND_RESYNC, Event.KIND_STATE):
                    self.states[event.machine_id] = event.state
                self._changed.notify_all()

    async def until(self, guest: Guest, predicate: Callable[[MachineState], bool]) -> MachineState:
        """Wait for a state of the machine, by events."""
        machine_id = guest.machine.id
        try:
            async with asyncio.timeout(SECONDS), self._changed:
                await self._changed.wait_for(lambda: machine_id in self.states and predicate(self.states[machine_id]))
                return self.states[machine_id]
        except TimeoutError:
            raise AssertionError(f"the machine is still {self.states.get(machine_id)}; {guest.errors[-500:]}") from None

    async def launch(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and execute the plan, without Start. `files`: the descriptor of each handle, ours to close."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        prepared = await self.client.prepare(machine, [], generation=1)
        made = {each.id: _make(directory, each) for each in prepared.endpoints if each.HasField("listen_descriptor")}
        process = await _execute(directory, prepared.launch, {**files, **made})
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

    async def done(self, operation: Operation) -> None:
        """Wait for the operation's outcome; raises its error."""
        async with asyncio.timeout(SECONDS):
            while operation.state == Operation.STATE_RUNNING:
                await asyncio.sleep(0.02)
                operation = await self.client.get_operation(operation.id)
        if (error := outcome(operation)) is not None:
            raise error


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


async def _execute(directory: Path, launch: LaunchPlan, descriptors: Mapping[str, int]) -> subprocess.Popen[bytes]:
    """Start the shim and give it the plan."""
    assert launch.mode == LaunchPlan.MODE_EXEC
    with (directory / "stderr").open("ab") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 - the same
            [sys.executable, "-I", "-S", shim.__file__, "run", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            env={},
            start_new_session=True,
        )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                connection.connect(str(directory / shim.SOCKET_NAME))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                assert process.poll() is None, (directory / "stderr").read_text()
                await asyncio.sleep(0.01)
    numbers = [slot.number for slot in launch.descriptors]
    plan = shim.Plan(list(launch.argv), list(launch.env), numbers, launch.working_directory)
    with connection:
        socket.send_fds(connection, [shim.encode_plan(plan)], [descriptors[slot.handle] for slot in launch.descriptors])
        answer = await asyncio.to_thread(connection.recv, 4096)
    assert answer == shim.TAKEN, answer
    return process


def machine_of(name: str, *, memory_mib: int = 64) -> Machine:
    """A machine that boots a kernel and has a serial console."""
    machine = Machine(id=name, name=name)
    machine.cpu.sockets = machine.cpu.cores = machine.cpu.threads = 1
    machine.memory.size_bytes = memory_mib << 20
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.command_line = "hello, world"
    machine.identity.uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
    machine.consoles.add(id="serial0", kind=Console.KIND_SERIAL, log_handle="log")
    return machine
