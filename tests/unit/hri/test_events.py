"""The event log, and watching over the wire."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.hri.errors import LimitReached
from anyvisor.hri.fake.faults import Faults
from anyvisor.hri.kit.core import KitLimits
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.v1.machine_pb2 import Event
from anyvisor.hri.v1.machine_spec_pb2 import Machine

Start = Callable[..., Awaitable[Any]]


@given(count=st.integers(0, 60), kept=st.integers(1, 20), asked=st.integers(0, 70))
def test_a_log_gives_all_events_from_a_number_on_or_none(count: int, kept: int, asked: int):
    async def body() -> None:
        log = EventLog("boot", max_events=kept)
        for _ in range(count):
            log.append(Event(machine_id="m"), 1)
        got = log.since(asked)
        wanted = list(range(asked, count + 1))
        possible = 1 <= asked <= count + 1 and len(wanted) <= kept
        assert (None if got is None else [e.sequence for e in got]) == (wanted if possible else None)

    asyncio.run(body())


async def test_a_log_is_bounded_in_bytes():
    log = EventLog("boot", max_bytes=10_000)
    for _ in range(100):
        log.append(Event(machine_id="m" * 1000), 1)
    assert log.since(1) is None
    assert 1 <= len(log.since(log.head - 8) or []) <= 9


async def collect(stream: Any, count: int) -> list[Event]:
    found: list[Event] = []
    async with aclosing(stream) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_a_new_watcher_gets_the_whole_then_what_follows(serve: Start):
    served = await serve()
    for name in ("a", "b"):
        await served.client.prepare(Machine(id=name), [], generation=1)
    head = served.server.core.log.head
    async with aclosing(served.client.watch()) as events:
        first = [await anext(events) for _ in range(3)]
        await served.client.start("a", generation=1)
        following = [await anext(events) for _ in range(3)]
    assert [(e.kind, e.machine_id, e.sequence) for e in first] == [
        (Event.KIND_RESYNC, "a", head),
        (Event.KIND_RESYNC, "b", head),
        (Event.KIND_SYNCED, "", head),
    ]
    assert [e.sequence for e in following] == [head + 1, head + 2, head + 3]


async def test_a_watcher_resumes_where_it_was(serve: Start):
    served = await serve()
    await served.client.prepare(Machine(id="a"), [], generation=1)
    boot = served.server.core.boot_id
    await served.client.start("a", generation=1)
    events = await collect(served.client.watch(boot, 2), served.server.core.log.head - 1)
    assert [e.sequence for e in events] == list(range(2, served.server.core.log.head + 1))
    assert all(e.kind in (Event.KIND_STATE, Event.KIND_OPERATION) for e in events)


@pytest.mark.parametrize(("boot", "sequence"), [("another", 1), ("", 999), ("", 0)])
async def test_a_watcher_that_cannot_resume_gets_the_whole(serve: Start, boot: str, sequence: int):
    served = await serve()
    await served.client.prepare(Machine(id="a"), [], generation=1)
    events = await collect(served.client.watch(boot or served.server.core.boot_id, sequence), 2)
    assert [e.kind for e in events] == [Event.KIND_RESYNC, Event.KIND_SYNCED]


async def test_watchers_are_bounded(serve: Start):
    served = await serve(limits=KitLimits(watchers=1))
    async with aclosing(served.client.watch()) as events:
        await anext(events)
        with pytest.raises(LimitReached):
            await anext(served.client.watch())


async def test_the_resuming_watch_treats_a_gap_as_a_loss(serve: Start):
    served = await serve(Faults(gaps=3))
    seen: list[Event] = []
    async with aclosing(served.client.events()) as events:
        async for event in events:
            seen.append(event)
            if event.kind == Event.KIND_SYNCED:
                if sum(e.kind == Event.KIND_SYNCED for e in seen) == 2:
                    break
                await served.client.prepare(Machine(id="a"), [], generation=1)
                await served.client.start("a", generation=1)
    assert seen[-2].kind == Event.KIND_RESYNC
    assert seen[-2].machine_id == "a"


async def test_a_flood_of_progress_reaches_a_watcher_without_gaps(serve: Start):
    served = await serve(Faults(flood=200))
    await served.client.prepare(Machine(id="a"), [], generation=1)
    async with aclosing(served.client.watch(served.server.core.boot_id, 1)) as events:
        await served.client.start("a", generation=1)
        head = served.server.core.log.head
        numbers = [(await anext(events)).sequence for _ in range(head)]
    assert numbers == list(range(1, head + 1))
    assert head > 200
