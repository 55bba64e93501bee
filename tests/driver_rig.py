"""What a test of any driver needs of an agent: the driver's process, its events, the launcher that runs the plan."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.launch import connect_pairs
from anyvisor.agent.seed import sow
from anyvisor.hri.client import HriClient, outcome
from anyvisor.hri.errors import DriverUnavailable
from anyvisor.hri.v1.machine_pb2 import DescriptorSlot, Event, LaunchPlan, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Console, Machine
from anyvisor.hri.v1.types_pb2 import MachineState, Operation
from anyvisor.launcher import shim


@dataclass
class DriverGuest:
    """A machine of the test: its launcher directory and its VMM."""

    seconds: ClassVar[float]
    """No step of a test may take longer."""

    machine: Machine
    directory: Path
    prepared: PrepareResponse
    process: subprocess.Popen[bytes]

    @property
    def errors(self) -> str:
        """What the VMM said on its standard error."""
        return (self.directory / "stderr").read_text(errors="replace")

    async def ended(self) -> int:
        """Wait for the end of the VMM's process; returns its exit status."""
        async with asyncio.timeout(self.seconds):
            return await asyncio.to_thread(self.process.wait)

    def close(self) -> None:
        """End the VMM."""
        self.process.kill()
        self.process.wait()


G = TypeVar("G", bound=DriverGuest)


class DriverRig(Generic[G]):
    """A driver process and its client."""

    seconds: ClassVar[float]
    """No step of a test may take longer."""

    def __init__(self, directory: Path, module: str, arguments: Sequence[str] = ()) -> None:
        self.directory = directory
        self.guests: list[G] = []
        self.states: dict[str, MachineState] = {}
        self._command = [sys.executable, "-m", module, *arguments]
        self._command += ["--hri", str(directory / "hri.sock"), "--fd", str(directory / "fd.sock")]
        self.environment = dict(os.environ)
        self._changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self.client = HriClient(directory / "hri.sock", directory / "fd.sock")

    async def start_driver(self) -> None:
        """Start the driver's process and wait until it answers."""
        with (self.directory / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a millisecond
                self._command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        async with asyncio.timeout(self.seconds):
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
            guest.close()
        if self._driver is not None:
            self._driver.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(self._driver.wait, 10) == 0, self.driver_log

    async def _watch(self) -> None:
        async for event in self.client.events():
            async with self._changed:
                if event.kind in (Event.KIND_RESYNC, Event.KIND_STATE):
                    self.states[event.machine_id] = event.state
                self._changed.notify_all()

    async def until(self, guest: G, predicate: Callable[[MachineState], bool]) -> MachineState:
        """Wait for a state of the machine, by events."""
        machine_id = guest.machine.id
        try:
            async with asyncio.timeout(self.seconds), self._changed:
                await self._changed.wait_for(lambda: machine_id in self.states and predicate(self.states[machine_id]))
                return self.states[machine_id]
        except TimeoutError:
            raise AssertionError(f"the machine is still {self.states.get(machine_id)}; {guest.errors[-500:]}") from None

    async def done(self, operation: Operation) -> None:
        """Wait for the operation's outcome; raises its error."""
        async with asyncio.timeout(self.seconds):
            while operation.state == Operation.STATE_RUNNING:
                await asyncio.sleep(0.02)
                operation = await self.client.get_operation(operation.id)
        if (error := outcome(operation)) is not None:
            raise error

    def launcher(self, directory: Path) -> subprocess.Popen[bytes]:
        """A shim that waits for its plan."""
        with (directory / "stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", shim.__file__, "run", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={},
                start_new_session=True,
            )

    async def execute(
        self, directory: Path, launch: LaunchPlan, descriptors: Mapping[str, int]
    ) -> subprocess.Popen[bytes]:
        """Start the shim and give it the plan. `descriptors`: by handle."""
        assert launch.mode == LaunchPlan.MODE_EXEC
        process = self.launcher(directory)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        async with asyncio.timeout(self.seconds):
            while True:
                try:
                    connection.connect(str(directory / shim.SOCKET_NAME))
                    break
                except (FileNotFoundError, ConnectionRefusedError):
                    assert process.poll() is None, (directory / "stderr").read_text()
                    await asyncio.sleep(0.01)
        with Descriptors() as held:
            held.put_all({handle: os.dup(each) for handle, each in descriptors.items()})
            sow(launch.seeds, held)
            own = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                connect_pairs(launch, held, own)
            finally:
                os.close(own)
            await self._hand_over(connection, launch, held)
        return process

    async def _hand_over(self, connection: socket.socket, launch: LaunchPlan, held: Descriptors) -> None:
        helpers = [shim.Plan(list(each.argv), list(each.env), _numbers(each.descriptors)) for each in launch.helpers]
        numbers = _numbers(launch.descriptors)
        plan = shim.Plan(list(launch.argv), list(launch.env), numbers, launch.working_directory, helpers)
        slots = [*launch.descriptors, *(slot for helper in launch.helpers for slot in helper.descriptors)]
        passed = [descriptor for slot in slots if (descriptor := held.get(slot.handle)) is not None]
        with connection:
            socket.send_fds(connection, [shim.encode_plan(plan)], passed)
            answer = await asyncio.to_thread(connection.recv, 4096)
        assert answer == shim.TAKEN, answer


def _numbers(slots: Iterable[DescriptorSlot]) -> list[int]:
    return [slot.number for slot in slots]


def machine_of(name: str, *, memory_mib: int = 64) -> Machine:
    """A machine with a serial console and its log; the test adds how it boots."""
    machine = Machine(id=name, name=name)
    machine.cpu.sockets = machine.cpu.cores = machine.cpu.threads = 1
    machine.memory.size_bytes = memory_mib << 20
    machine.consoles.add(id="serial0", kind=Console.KIND_SERIAL, log_handle="log")
    return machine
