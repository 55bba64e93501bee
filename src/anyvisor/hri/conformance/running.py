"""A machine with a VMM behind it: launched as the agent would, its driver's answers, its guest's words."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from anyvisor.hri.client import outcome
from anyvisor.hri.conformance.launcher import Launcher
from anyvisor.hri.conformance.session import CheckFailedError, CheckSkippedError, Files, Session, fail
from anyvisor.hri.errors import Refused, VmmFailed
from anyvisor.hri.v1.machine_pb2 import Event, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import (
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_STOPPED,
    DescriptorToken,
    MachineState,
    Operation,
    Phase,
)

BOOT_SECONDS: Final = 60.0
"""A guest under emulation on a busy machine is slow."""
END_SECONDS: Final = 30.0
GONE_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 1.5
ENDED: Final = (PHASE_STOPPED, PHASE_CRASHED, PHASE_LOST)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a machine is beside the small one: merged into it, with the descriptors that it names (the caller's)."""

    machine: Machine = field(default_factory=Machine)
    handles: Mapping[str, int] = field(default_factory=dict[str, int])
    log: str = ""
    """The handle of the console's log."""
    procs: str = ""
    """The control group that the VMM joins, by its `cgroup.procs`."""


class Running:
    """A machine under test: its launcher, its driver's answers."""

    def __init__(self, session: Session, machine: Machine, answer: PrepareResponse, launcher: Launcher) -> None:
        self.session = session
        self.machine = machine
        self.answer = answer
        self.launcher = launcher

    async def start(self) -> None:
        """Start, as the agent does."""
        client = self.session.client
        tokens = [await self._token(handle) for handle in self.answer.driver_handles]
        await self.done(client.start(self.machine.id, generation=1, tokens=tokens))

    async def _token(self, handle: str) -> DescriptorToken:
        fd = await self.launcher.descriptor(handle)
        try:
            return await self.session.client.send_descriptor(handle, fd)
        finally:
            os.close(fd)

    async def endpoint_tokens(self) -> list[DescriptorToken]:
        """Fresh descriptors for an adoption: those of endpoints alone."""
        endpoints = {endpoint.id for endpoint in self.answer.endpoints}
        return [await self._token(handle) for handle in self.answer.driver_handles if handle in endpoints]

    async def done(self, call: Awaitable[Operation]) -> None:
        """The operation must come to a good end."""
        operation = await call
        async with asyncio.timeout(END_SECONDS):
            while operation.state == Operation.STATE_RUNNING:
                await asyncio.sleep(0.1)
                operation = await self.session.client.get_operation(operation.id)
        error = outcome(operation)
        if error is not None:
            fail(
                f"{operation.kind} failed with {error.status}: {error.message}; the VMM said: {self.launcher.errors()}"
            )

    async def state(self) -> MachineState:
        """What Inspect says."""
        return await self.session.client.inspect(self.machine.id)

    async def reaches(self, wanted: Callable[[MachineState], bool], what: str) -> MachineState:
        """Wait for a state, by events. That Inspect fails while the VMM goes down is no answer, and no fault."""
        with contextlib.suppress(VmmFailed):
            last = await self.state()
            if wanted(last):
                return last
        try:
            async with asyncio.timeout(END_SECONDS):
                async for event in self.session.client.events():
                    named = event.kind in (Event.KIND_STATE, Event.KIND_RESYNC) and event.machine_id == self.machine.id
                    if named and wanted(event.state):
                        return event.state
        except TimeoutError:
            last = await self.state()
            fail(f"{what} was not reported within {END_SECONDS:g} s; the phase is {Phase.Name(last.phase)}")
        raise CheckFailedError("the event stream ended")


@asynccontextmanager
async def launched(session: Session, files: Files | None = None, shape: Shape | None = None) -> AsyncGenerator[Running]:
    """A machine whose VMM has been started, not yet its guest. `files` are what it boots; the small guest if absent."""
    files = files or session.talking
    shape = shape or Shape()
    if files.kernel is None and (session.machine.boot.kernel.kernel_handle or files.initrd is None):
        raise CheckSkippedError("nothing to boot was given (--kernel, or --initrd for a VMM that is a kernel)")
    if session.fd_socket is None:
        raise CheckSkippedError("no descriptor socket was given (--fd-socket)")
    machine = session.spec()
    machine.MergeFrom(shape.machine)
    machine.lifecycle.grace_seconds = 30
    if shape.log and machine.consoles:
        machine.consoles[0].log_handle = shape.log
    async with AsyncExitStack() as stack:
        handles: dict[str, int] = dict(shape.handles)
        kernel = machine.boot.kernel
        for handle, file in ((kernel.kernel_handle, files.kernel), (kernel.initrd_handle, files.initrd)):
            if handle and file is not None:
                handles[handle] = os.open(file, os.O_RDONLY)
                stack.callback(os.close, handles[handle])
        if files.initrd is None:
            kernel.initrd_handle = ""
        kernel.command_line = files.command_line
        await stack.enter_async_context(session.cleanup(machine.id))
        try:
            answer = await session.client.prepare(machine, [], generation=1)
        except Refused as error:
            if machine.lifecycle.start_paused and any("start_paused" in found.field for found in error.findings):
                raise CheckSkippedError(f"the driver refuses it: {error.message}") from None
            raise
        launcher = await stack.enter_async_context(Launcher(answer, handles, shape.procs))
        launcher.start()
        yield Running(session, machine, answer, launcher)


@asynccontextmanager
async def booted(session: Session, files: Files | None = None, shape: Shape | None = None) -> AsyncGenerator[Running]:
    """A machine whose guest has said something."""
    async with launched(session, files, shape) as running:
        await running.start()
        await running.launcher.listen()
        if not await running.launcher.hears(0, BOOT_SECONDS):
            fail(f"the guest said nothing on its console in {BOOT_SECONDS:g} s; the VMM: {running.launcher.errors()}")
        yield running
