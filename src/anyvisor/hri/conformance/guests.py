"""Level 1: a guest boots, talks, pauses, ends each way, and survives the driver."""

import asyncio

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.running import (
    BOOT_SECONDS,
    END_SECONDS,
    ENDED,
    GONE_SECONDS,
    QUIET_SECONDS,
    Running,
    Shape,
    booted,
    launched,
)
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.errors import DriverUnavailable, HriError
from anyvisor.hri.v1.machine_spec_pb2 import Lifecycle, Machine
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    EndReason,
    Phase,
)

CHECKS = CheckList()
PAUSED = Shape(Machine(lifecycle=Lifecycle(start_paused=True)))


@CHECKS.add("run.boot", "A guest boots and talks on its serial console", level=1)
async def boot(session: Session) -> None:
    async with booted(session) as running:
        state = await running.state()
        expect(state.phase == PHASE_RUNNING, f"the phase is {Phase.Name(state.phase)}, not RUNNING")
        expect(state.vmm_version or session.info.vmm_version, "neither the state nor GetInfo names the VMM's version")


@CHECKS.add("run.start-paused", "A machine that starts paused says nothing until it is resumed", level=1)
async def start_paused(session: Session) -> None:
    async with launched(session, shape=PAUSED) as running:
        await running.start()
        state = await running.state()
        expect(state.phase == PHASE_PAUSED, f"the phase is {Phase.Name(state.phase)}, not PAUSED")
        await running.done(session.client.resume(running.machine.id, generation=1))
        await running.launcher.listen()
        expect(await running.launcher.hears(0, BOOT_SECONDS), "after Resume, the guest said nothing")


@CHECKS.add("run.pause", "Pause and resume change the phase, and the guest goes on", level=1)
async def pause(session: Session) -> None:
    async with booted(session) as running:
        await running.done(session.client.pause(running.machine.id, generation=1))
        state = await running.state()
        expect(state.phase == PHASE_PAUSED, f"the phase is {Phase.Name(state.phase)}, not PAUSED")
        await asyncio.sleep(QUIET_SECONDS)  # what was under way when it was paused may still arrive
        said = running.launcher.said
        await asyncio.sleep(QUIET_SECONDS)
        expect(running.launcher.said == said, "the guest went on talking while it was paused")
        await running.done(session.client.resume(running.machine.id, generation=1))
        state = await running.state()
        expect(state.phase == PHASE_RUNNING, f"after Resume the phase is {Phase.Name(state.phase)}")
        if session.talks:
            expect(await running.launcher.hears(said, END_SECONDS), "after Resume, the guest said nothing more")


@CHECKS.add("run.shutdown", "A stop request shuts the guest down, and the end says so", level=1)
async def shutdown(session: Session) -> None:
    async with booted(session) as running:
        await running.done(session.client.stop(running.machine.id, generation=1))
        state = await running.reaches(lambda s: s.phase in ENDED, "the end after a stop request")
        expect(state.phase == PHASE_STOPPED, f"the phase is {Phase.Name(state.phase)}, not STOPPED")
        expect(
            state.end_reason == END_REASON_REQUESTED_SHUTDOWN,
            f"the end reason is {EndReason.Name(state.end_reason)}, not REQUESTED_SHUTDOWN",
        )
        await _leaves_nothing(running, END_REASON_REQUESTED_SHUTDOWN)


@CHECKS.add("run.force", "A forced stop ends the guest at once", level=1)
async def force(session: Session) -> None:
    async with booted(session) as running:
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
    async with booted(session) as running:
        await session.client.destroy(running.machine.id, generation=1)
        expect(await running.launcher.ended(GONE_SECONDS), f"the VMM still runs {GONE_SECONDS:g} s after Destroy")


@CHECKS.add("run.killed", "A VMM that is killed is reported, and Destroy works", level=1)
async def killed(session: Session) -> None:
    async with booted(session) as running:
        running.launcher.kill()
        state = await running.reaches(lambda s: s.phase in ENDED, "the end of a killed VMM")
        expect(
            state.end_reason not in (END_REASON_REQUESTED_SHUTDOWN, END_REASON_FORCED),
            f"a kill from outside is called {EndReason.Name(state.end_reason)}",
        )
        await session.client.destroy(running.machine.id, generation=1)


@CHECKS.add("run.adopt", "kill -9 of the driver harms no guest, and its next process adopts it", level=1)
async def adopt(session: Session) -> None:
    if session.driver is None:
        raise CheckSkippedError("the driver was not started by this program (--driver)")
    async with booted(session) as running:
        before = await running.state()
        await session.driver.kill()
        await asyncio.sleep(QUIET_SECONDS)
        expect(running.launcher.alive, f"the VMM ended with its driver, and said: {running.launcher.errors()}")
        await session.driver.start()
        await again(session)
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
            said = running.launcher.said
            expect(await running.launcher.hears(said, END_SECONDS), "after Adopt, the guest says nothing more")
        await running.done(session.client.stop(running.machine.id, generation=1, force=True))
        state = await running.state()
        expect(
            state.end_reason in (END_REASON_FORCED, END_REASON_UNKNOWN),
            f"after Adopt and a forced stop, the end reason is {EndReason.Name(state.end_reason)}",
        )


async def again(session: Session) -> None:
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
