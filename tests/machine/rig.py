"""What a test of a driver needs of an agent: sockets bound, descriptors opened, the plan executed, tokens passed."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from anyvisor.hri.client import HriClient, outcome
from anyvisor.hri.v1.machine_pb2 import Event, LaunchPlan, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Console, Machine
from anyvisor.hri.v1.types_pb2 import Endpoint, MachineState, Operation
from anyvisor.launcher import shim

SECONDS = 90.0
"""No step of a test may take longer; a guest under emulation on a busy machine is slow."""


@dataclass
class Guest:
    """A machine of the test: its launcher directory, its VMM, its log."""

    machine: Machine
    directory: Path
    prepared: PrepareResponse
    process: subprocess.Popen[bytes]
    console: socket.socket | None = None
    heard: str = ""
    """What came over the console. QEMU's log of it may hold a byte twice, when its reader was slow for a moment."""

    @property
    def log(self) -> str:
        """The serial log so far."""
        return (self.directory / "serial.log").read_bytes().decode(errors="replace")

    @property
    def errors(self) -> str:
        """What the VMM said on its standard error."""
        return (self.directory / "stderr").read_text(errors="replace")

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

    async def hears(self, text: str) -> None:
        """Wait until the text has come over the console."""
        async with asyncio.timeout(SECONDS):
            while text not in self.heard:
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

    async def ended(self) -> int:
        """Wait for the end of the VMM's process; returns its exit status."""
        async with asyncio.timeout(SECONDS):
            return await asyncio.to_thread(self.process.wait)


def socket_path(directory: Path, endpoint_id: str) -> Path:
    """Where this rig binds an endpoint."""
    return directory / (endpoint_id.replace("/", "-") + ".sock")


class Rig:
    """A driver process and its client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.guests: list[Guest] = []
        self.states: dict[str, MachineState] = {}
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self.client = HriClient(directory / "hri.sock", directory / "fd.sock")

    async def start_driver(self) -> None:
        """Start the driver's process and wait until it answers."""
        command = [sys.executable, "-m", "anyvisor.drivers.qemu"]
        command += ["--hri", str(self.directory / "hri.sock"), "--fd", str(self.directory / "fd.sock")]
        with (self.directory / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a millisecond
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        async with asyncio.timeout(SECONDS):
            while not (self.directory / "hri.sock").exists() or not (self.directory / "fd.sock").exists():
                assert self._driver.poll() is None, (self.directory / "driver.log").read_text()
                await asyncio.sleep(0.02)
        await self.client.connect()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

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
            guest.hang_up()
            guest.process.kill()
            guest.process.wait()
        if self._driver is not None:
            self._driver.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(self._driver.wait, 10) == 0, (self.directory / "driver.log").read_text()

    async def _watch(self) -> None:
        async for event in self.client.events():
            async with self._changed:
                if event.kind in (Event.KIND_RESYNC, Event.KIND_STATE):
                    self.states[event.machine_id] = event.state
                self._changed.notify_all()

    async def until(self, guest: Guest, predicate: Callable[[MachineState], bool]) -> MachineState:
        """Wait for a state of the machine, by events."""
        machine_id = guest.machine.id
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: machine_id in self.states and predicate(self.states[machine_id]))
            return self.states[machine_id]

    async def launch(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and execute the plan, without Start. `files`: the descriptor of each handle."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        log = os.open(directory / "serial.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        prepared = await self.client.prepare(machine, [], generation=1)
        bound = [each for each in prepared.endpoints if each.WhichOneof("location") == "listen_descriptor"]
        listeners = {each.id: _listen(directory, each) for each in bound}
        descriptors = {**files, "log": log, **{name: each.fileno() for name, each in listeners.items()}}
        process = await _execute(directory, prepared.launch, descriptors)
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

    async def done(self, operation: Operation) -> None:
        """Wait for the operation's outcome; raises its error."""
        async with asyncio.timeout(SECONDS):
            while operation.state == Operation.STATE_RUNNING:
                await asyncio.sleep(0.05)
                operation = await self.client.get_operation(operation.id)
        if (error := outcome(operation)) is not None:
            raise error


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
    path = directory / shim.SOCKET_NAME
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                connection.connect(str(path))
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
    """A machine with a serial console and its log; the test adds how it boots."""
    machine = Machine(id=name, name=name)
    machine.cpu.sockets = machine.cpu.cores = machine.cpu.threads = 1
    machine.memory.size_bytes = memory_mib << 20
    machine.consoles.add(id="serial0", kind=Console.KIND_SERIAL, log_handle="log")
    return machine
