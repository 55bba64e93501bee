"""Level 4: what breaks harms one machine at most, is told, and is survived where it can be."""

import asyncio
import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable
from typing import Final

from anyvisor.hri.conformance.guests import again
from anyvisor.hri.conformance.launcher import Launcher
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.report_guest import ANSWER_SECONDS, ask, order
from anyvisor.hri.conformance.running import BOOT_SECONDS, ENDED, GONE_SECONDS, booted, launched
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.conformance.standing import FIRST, FULL, LOG_HANDLE, Standing, standing
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_REQUESTED_SHUTDOWN,
    PAUSE_REASON_IO_ERROR,
    PHASE_PAUSED,
    PHASE_RUNNING,
    EndReason,
    MachineState,
    Phase,
)

CHECKS = CheckList()
ANSWER_SOON: Final = 2.0
"""How long Inspect may take whatever the guest does."""
WRITTEN: Final = 2 << 20
FLOOD_BYTES: Final = 200_000
FLOOD_SECONDS: Final = 90.0
SPARE: Final = 24 << 20
FAULTS: Final = 5
FAULT_SECONDS: Final = 1.0
_OURS: Final = (END_REASON_REQUESTED_SHUTDOWN, END_REASON_FORCED)


@CHECKS.add(
    "protect.driver-crash", "A driver that dies before Start loses nothing: the next one adopts and starts", level=4
)
async def driver_crash(session: Session) -> None:
    if session.driver is None:
        raise CheckSkippedError("the driver was not started by this program (--driver)")
    async with launched(session) as running:
        await session.driver.kill()
        await session.driver.start()
        await again(session)
        expect(running.launcher.alive, f"the VMM ended with its driver, and said: {running.launcher.errors()}")
        tokens = await running.endpoint_tokens()
        handle = running.answer.handle
        await session.client.adopt(running.machine.id, handle, generation=1, tokens=tokens, pid=running.launcher.pid)
        await running.start()
        await running.launcher.listen()
        expect(await running.launcher.hears(0, BOOT_SECONDS), "adopted and started, the guest says nothing")
    _forget(session)


def _forget(session: Session) -> None:
    """The standing machine is not known to a driver's next process."""
    session.shared.pop("standing", None)
    session.shared.pop("target", None)


@CHECKS.add("protect.vmm-crash", "A VMM that crashes is told of, and harms no other machine", level=4)
async def vmm_crash(session: Session) -> None:
    async with booted(session) as other, booted(session) as running:
        await fault(running.launcher)
        state = await running.reaches(lambda s: s.phase in ENDED, "the end of a VMM that crashed")
        expect(state.end_reason not in _OURS, f"a crash is called {EndReason.Name(state.end_reason)}")
        expect(state.message, "the state of a crashed machine has no sentence for a person")
        beside = await other.state()
        expect(beside.phase == PHASE_RUNNING, f"another machine is then {Phase.Name(beside.phase)}")
        if session.talks:
            expect(await other.launcher.hears(other.launcher.said, ANSWER_SECONDS), "another guest fell silent")


async def fault(launcher: Launcher) -> None:
    """A fault of memory as the VMM would cause it itself: a program that takes the signal faults again at once."""
    for _ in range(FAULTS):
        if not launcher.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGSEGV)
        if await launcher.ended(FAULT_SECONDS):
            return


@CHECKS.add("protect.disk-full", "A full disk pauses the guest or is told to it, and loses nothing", level=4)
async def disk_full(session: Session) -> None:
    found = await standing(session)
    if not any(disk.id == FULL for disk in found.asked.disks):
        raise CheckSkippedError(found.materials.no_full or "the machine has no disk on a full file system")
    room = found.materials.full[f"{FULL}/0"]
    await _write_that_fails(session, found, FULL, room.make_room)


@CHECKS.add("protect.io-error", "An I/O error pauses the guest or is told to it, and loses nothing", level=4)
async def io_error(session: Session) -> None:
    found = await standing(session)
    pid = found.running.launcher.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 << 10, before[1]))
    await _write_that_fails(session, found, FIRST, lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, before))


async def _write_that_fails(session: Session, found: Standing, disk: str, repair: Callable[[], object]) -> None:
    session.needs("disk.serial")
    running = found.running
    name = (await ask(running)).disk(disk).get("name", "")
    expect(name, f"the guest has no disk with serial number {disk!r}")
    answer = asyncio.ensure_future(order(running, f"write {name} {WRITTEN}", "written|failed"))
    try:
        if session.claim("event.io-error") is None:
            word = await answer
            expect(word == "failed", f"the guest's write says {word or 'nothing'!r}, and the state tells nothing")
        else:
            await running.reaches(_io_paused, "that the guest is paused for an I/O error")
            expect(not answer.done(), "the guest was told of an error that only pauses it")
    finally:
        repair()
        state = await running.state()
        if state.phase == PHASE_PAUSED:
            await running.done(session.client.resume(running.machine.id, generation=1))
    if session.claim("event.io-error") is not None:
        word = await answer
        expect(word == "written", f"after the repair the guest's write says {word or 'nothing'!r}")
    await running.reaches(lambda s: s.phase == PHASE_RUNNING, "that the guest runs on after the repair")
    expect((await ask(running)).one("cpu"), "after the repair the guest does not answer")


def _io_paused(state: MachineState) -> bool:
    return state.phase == PHASE_PAUSED and state.pause_reason == PAUSE_REASON_IO_ERROR


@CHECKS.add("protect.log-flood", "A guest that floods a full log goes on, and its driver answers meanwhile", level=4)
async def log_flood(session: Session) -> None:
    found = await standing(session)
    running = found.running
    if LOG_HANDLE not in running.launcher.handles:
        raise CheckSkippedError(found.materials.no_full or "the driver claims no console.log")
    since = running.launcher.said
    await running.launcher.tell(f"head -c {FLOOD_BYTES} /dev/zero | tr '\\0' x; echo; echo REPORT flooded")
    worst = 0.0
    flooded = asyncio.ensure_future(running.launcher.reads(r"^REPORT flooded", FLOOD_SECONDS, since))
    while not flooded.done():
        begin = time.monotonic()
        state = await running.state()
        worst = max(worst, time.monotonic() - begin)
        expect(state.phase == PHASE_RUNNING, f"while it floods, the guest is {Phase.Name(state.phase)}")
        await asyncio.wait([flooded], timeout=0.5)
    if await flooded is None:
        fail(f"the guest stopped in its flood: {running.launcher.said - since} of {FLOOD_BYTES} bytes came")
    expect(worst < ANSWER_SOON, f"while a guest floods its console, Inspect took {worst:.1f} s")


@CHECKS.add("protect.memory", "A VMM that the kernel ends for lack of memory is told of", level=4)
async def memory(session: Session) -> None:
    found = await standing(session)
    if found.group is None:
        raise CheckSkippedError(str(session.shared.get("no-group", "no control group")))
    running = found.running
    found.group.limit(found.group.usage() + SPARE)
    await running.launcher.tell("fill 4096")
    state = await running.reaches(lambda s: s.phase in ENDED, "the end for lack of memory")
    expect(state.end_reason not in _OURS, f"an end for lack of memory is called {EndReason.Name(state.end_reason)}")
    await session.client.destroy(running.machine.id, generation=1)
    expect(await running.launcher.ended(GONE_SECONDS), "the VMM still runs after Destroy")
    _forget(session)
