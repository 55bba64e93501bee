"""Level 0: the event stream."""

import asyncio
from contextlib import aclosing

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import Session, expect
from anyvisor.hri.v1.machine_pb2 import Event

CHECKS = CheckList()

SECONDS = 10.0


async def _collect(
    session: Session, boot_id: str, sequence: int, until: Event.Kind, machine_id: str = ""
) -> list[Event]:
    """Events from a number on, until one of a kind (and machine) came."""
    found: list[Event] = []
    async with asyncio.timeout(SECONDS), aclosing(session.client.watch(boot_id, sequence)) as stream:
        async for event in stream:
            found.append(event)
            if event.kind == until and event.machine_id == machine_id:
                break
    return found


@CHECKS.add("events.resync", "Without a known past, the stream begins with each machine's whole state, then SYNCED")
async def resync(session: Session) -> None:
    async with session.prepared() as (machine, _):
        for boot_id, sequence, what in (
            ("", 0, "from 0"),
            ("another-boot", 1, "of another boot id"),
            (session.info.boot_id, 1 << 60, "of a number that is not there yet"),
        ):
            events = await _collect(session, boot_id, sequence, Event.KIND_SYNCED)
            kinds = {event.kind for event in events[:-1]}
            expect(kinds <= {Event.KIND_RESYNC}, f"a watch {what} begins with {kinds}")
            named = [event.machine_id for event in events[:-1]]
            expect(machine.id in named, f"a watch {what} does not name machine {machine.id}")
            expect(len(named) == len(set(named)), f"a watch {what} names a machine twice")
            expect(
                all(event.boot_id == session.info.boot_id for event in events),
                f"a watch {what} has events of another boot id than GetInfo",
            )


@CHECKS.add("events.sequence", "Events are numbered without gaps")
async def sequence(session: Session) -> None:
    begin = (await _collect(session, "", 0, Event.KIND_SYNCED))[-1].sequence + 1
    for _ in range(6):
        async with session.prepared():
            pass
    async with session.prepared() as (machine, _):
        pass
    events = await _collect(session, session.info.boot_id, begin, Event.KIND_REMOVED, machine.id)
    numbers = [event.sequence for event in events]
    wanted = list(range(begin, begin + len(numbers)))
    expect(numbers == wanted, f"expected numbers {wanted[:20]}, got {numbers[:20]}")
    expect(all(event.time_unix_nano for event in events), "an event has no time")


@CHECKS.add("events.resume", "A watch that resumes gets what it missed, and nothing else")
async def resume(session: Session) -> None:
    begin = (await _collect(session, "", 0, Event.KIND_SYNCED))[-1].sequence + 1
    async with session.prepared() as (machine, _):
        first = await _collect(session, session.info.boot_id, begin, Event.KIND_STATE, machine.id)
    again = await _collect(session, session.info.boot_id, begin, Event.KIND_REMOVED, machine.id)
    expect(again[: len(first)] == first, "the same numbers bring other events the second time")
    expect(again[-1].machine_id == machine.id, "the end of the machine is not reported as REMOVED")
    expect(
        all(event.kind not in (Event.KIND_RESYNC, Event.KIND_SYNCED) for event in again),
        "a resumed watch began anew, though nothing was lost",
    )
