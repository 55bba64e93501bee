"""Level 1: a guest boots, talks, pauses, ends each way, and survives the driver."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from anyvisor.hri.client import outcome
from anyvisor.hri.conformance.launcher import Launcher
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckFailedError, CheckSkippedError, Session, expect, fail
from anyvisor.hri.errors import DriverUnavailable, HriError, Refused, VmmFailed
from anyvisor.hri.v1.machine_pb2 import Event, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    DescriptorToken,
    EndReason,
    MachineState,
    Operation,
    Phase,
)

CHECKS = CheckList()
BOOT_SECONDS: Final = 60.0
"""A guest under emulation on a busy machine is slow."""
END_SECONDS: Final = 30.0
GONE_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 1.5
_ENDED: Final = (PHASE_STOPPED, PHASE_CRASHED, PHASE_LOST)


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
async def _launched(session: Session, *, paused: bool = False) -> AsyncGenerator[Running]:
    """A machine whose VMM has been started, not yet its guest."""
    if session.kernel is None and (session.machine.boot.kernel.kernel_handle or session.initrd is None):
        raise CheckSkippedError("nothing to boot was given (--kernel, or --initrd for a VMM that is a kernel)")
    if session.fd_socket is None:
        raise CheckSkippedError("no descriptor socket was given (--fd-socket)")
    machine = session.spec()
    machine.lifecycle.start_paused = paused
    machine.lifecycle.grace_seconds = 30
    async with AsyncExitStack() as stack:
        handles: dict[str, int] = {}
        kernel = machine.boot.kernel
        for handle, file in ((kernel.kernel_handle, session.kernel), (kernel.initrd_handle, session.initrd)):
            if handle and file is not None:
                handles[handle] = os.open(file, os.O_RDONLY)
                stack.callback(os.close, handles[handle])
        if session.initrd is None:
            kernel.initrd_handle = ""
        kernel.command_line = session.command_line
        await stack.enter_async_context(session.cleanup(machine.id))
        try:
            answer = await session.client.prepare(machine, [], generation=1)
        except Refused as error:
            if paused and any("start_paused" in found.field for found in error.findings):
                raise CheckSkippedError(f"the driver refuses it: {error.message}") from None
            raise
        launcher = await stack.enter_async_context(Launcher(answer, handles))
        launcher.start()
        yield Running(session, machine, answer, launcher)


@asynccontextmanager
async def _booted(session: Session) -> AsyncGenerator[Running]:
    """A machine whose guest has said something."""
    async with _launched(session) as running:
        await running.start()
        await running.launcher.listen()
        if not await running.launcher.hears(0, BOOT_SECONDS):
            fail(f"the guest said nothing on its console in {BOOT_SECONDS:g} s; the VMM: {running.launcher.errors()}")
        yield running


@CHECKS.add("run.boot", "A guest boots and talks on its serial console", level=1)
async def boot(session: Session) -> None:
    async with _booted(session) as running:
        state = await running.state()
        expect(state.phase == PHASE_RUNNING, f"the phase is {Phase.Name(state.phase)}, not RUNNING")
        expect(state.vmm_version or session.info.vmm_version, "neither the state nor GetInfo names the VMM's version")


@CHECKS.add("run.start-paused", "A machine that starts paused says nothing until it is resumed", level=1)
async def start_paused(session: Session) -> None:
    async with _launched(session, paused=True) as running:
        await running.start()
        state = await running.state()
        expect(state.phase == PHASE_PAUSED, f"the phase is {Phase.Name(state.phase)}, not PAUSED")
        await running.done(session.client.resume(running.machine.id, generation=1))
        await running.launcher.listen()
        expect(await running.launcher.hears(0, BOOT_SECONDS), "after Resume, the guest said nothing")


@CHECKS.add("run.pause", "Pause and resume change the phase, and the guest goes on", level=1)
async def pause(session: Session) -> None:
    async with _booted(session) as running:
        await running.done(session.client.pause(running.machine.id, generation=1))
        state = await running.state()
        expect(state.phase == PHASE_PAUSED, f"the phase is {Phase.Name(state.phase)}, not PAUSED")
        await asyncio.sleep(QUIET_SECONDS)  # what was under way when it was paused may still arrive
        said = len(running.launcher.output)
        await asyncio.sleep(QUIET_SECONDS)
        expect(len(running.launcher.output) == said, "the guest went on talking while it was paused")
        await running.done(session.client.resume(running.machine.id, generation=1))
        state = await running.state()
        expect(state.phase == PHASE_RUNNING, f"after Resume the phase is {Phase.Name(state.phase)}")
        if session.talks:
            expect(await running.launcher.hears(said, END_SECONDS), "after Resume, the guest said nothing more")


@CHECKS.add("run.shutdown", "A stop request shuts the guest down, and the end says so", level=1)
async def shutdown(session: Session) -> None:
    async with _booted(session) as running:
        await running.done(session.client.stop(running.machine.id, generation=1))
        state = await running.reaches(lambda s: s.phase in _ENDED, "the end after a stop request")
        expect(state.phase == PHASE_STOPPED, f"the phase is {Phase.Name(state.phase)}, not STOPPED")
        expect(
            state.end_reason == END_REASON_REQUESTED_SHUTDOWN,
            f"the end reason is {EndReason.Name(state.end_reason)}, not REQUESTED_SHUTDOWN",
        )
        await _leaves_nothing(running, END_REASON_REQUESTED_SHUTDOWN)


@CHECKS.add("run.force", "A forced stop ends the guest at once", level=1)
async def force(session: Session) -> None:
    async with _booted(session) as running:
        await running.done(session.client.stop(running.machine.id, generation=1, force=True))
        state = await running.state()
        expect(state.phase == PHASE_STOPPED, f"the phase is {Phase.Name(state.phase)}, not STOPPED")
        expect(
            state.end_reason == END_REASON_FORCED, f"the end reason is {EndReason.Name(state.end_reason)}, not FORCED"
        )
        await _leaves_nothing(running, END_REASON_FORCED)


async def _leaves_nothing(running: Running, reason: EndReason) -> None:
    last = await running.session.client.destroy(running.machine.id, generation=1)
    expect(last.end_reason == reason, f"Destroy gives the end reason {EndReason.Name(last.end_reason)}")
    expect(await running.launcher.ended(GONE_SECONDS), f"the VMM still runs {GONE_SECONDS:g} s after Destroy")


@CHECKS.add("run.destroy", "Destroy of a running machine ends its VMM", level=1)
async def destroy(session: Session) -> None:
    async with _booted(session) as running:
        await session.client.destroy(running.machine.id, generation=1)
        expect(await running.launcher.ended(GONE_SECONDS), f"the VMM still runs {GONE_SECONDS:g} s after Destroy")


@CHECKS.add("run.killed", "A VMM that is killed is reported, and Destroy works", level=1)
async def killed(session: Session) -> None:
    async with _booted(session) as running:
        running.launcher.kill()
        state = await running.reaches(lambda s: s.phase in _ENDED, "the end of a killed VMM")
        expect(
            state.end_reason not in (END_REASON_REQUESTED_SHUTDOWN, END_REASON_FORCED),
            f"a kill from outside is called {EndReason.Name(state.end_reason)}",
        )
        await session.client.destroy(running.machine.id, generation=1)


@CHECKS.add("run.adopt", "kill -9 of the driver harms no guest, and its next process adopts it", level=1)
async def adopt(session: Session) -> None:
    if session.driver is None:
        raise CheckSkippedError("the driver was not started by this program (--driver)")
    async with _booted(session) as running:
        before = await running.state()
        await session.driver.kill()
        await asyncio.sleep(QUIET_SECONDS)
        expect(running.launcher.alive, f"the VMM ended with its driver, and said: {running.launcher.errors()}")
        await session.driver.start()
        await _again(session)
        tokens = await running.endpoint_tokens()
        handle = before.handle
        adopted = await session.client.adopt(
            running.machine.id, handle, generation=1, tokens=tokens, pid=running.launcher.pid
        )
        expect(adopted.state.phase == PHASE_RUNNING, f"after Adopt the phase is {Phase.Name(adopted.state.phase)}")
        expect(
            [(d.id, d.address) for d in adopted.state.devices] == [(d.id, d.address) for d in before.devices],
            "after Adopt, devices have other addresses",
        )
        if session.talks:
            said = len(running.launcher.output)
            expect(await running.launcher.hears(said, END_SECONDS), "after Adopt, the guest says nothing more")
        await running.done(session.client.stop(running.machine.id, generation=1, force=True))
        state = await running.state()
        expect(
            state.end_reason in (END_REASON_FORCED, END_REASON_UNKNOWN),
            f"after Adopt and a forced stop, the end reason is {EndReason.Name(state.end_reason)}",
        )


async def _again(session: Session) -> None:
    """Speak to the new process; its boot id must be another."""
    old = session.info.boot_id
    for _ in range(50):
        try:
            session.info = await session.client.connect()
            break
        except DriverUnavailable:
            await asyncio.sleep(0.1)
        except HriError as error:
            fail(f"after its restart, the driver refuses GetInfo: {error.message}")
    expect(session.info.boot_id != old, "after its restart, the driver has the same boot id")
