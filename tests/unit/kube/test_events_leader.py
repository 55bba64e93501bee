"""The event recorder and leader election, over HTTP."""

import asyncio

from anyvisor.kube.client import Client
from anyvisor.kube.events import BURST, SIMILAR, EventKey, EventKind, EventRecorder, FloodFilter, Reference
from anyvisor.kube.leader import Elector, Terms
from tests.fakekube import FakeServer

POD = Reference("v1", "Pod", "default", "a", "uid-a")
QUICK = Terms(duration=1, renew=0.05, deadline=0.5, retry=0.02)


def key(message: str, reason: str = "R") -> EventKey:
    return EventKey(POD, EventKind.WARNING, reason, message)


async def test_a_repeated_event_is_one_event_with_a_count(server: FakeServer, client: Client) -> None:
    def counted() -> int:
        return sum(event["count"] for event in server.objects["events"].values())

    for total in (0, 3):
        # The second recorder is that of a restarted process: it goes on with the events that are there.
        async with EventRecorder(client, "controller", "host-1") as events:
            events.record(POD, EventKind.WARNING, "FailedCreate", "no room")
            await server.until(lambda total=total: counted() == total + 1)
            events.record(POD, EventKind.WARNING, "FailedCreate", "no room")
            events.record(POD, EventKind.NORMAL, "Created", "made it")
            await server.until(lambda total=total: counted() == total + 3)
    found = sorted(server.objects["events"].values(), key=lambda event: event["reason"])
    assert [(event["reason"], event["type"], event["count"]) for event in found] == [
        ("Created", "Normal", 2),
        ("FailedCreate", "Warning", 4),
    ]
    assert found[1]["involvedObject"]["uid"] == "uid-a"
    assert found[1]["source"] == {"component": "controller", "host": "host-1"}


async def test_a_namespace_that_is_gone_does_not_stop_the_recorder(server: FakeServer, client: Client) -> None:
    server.failures.append((403, {"reason": "Forbidden", "message": "being terminated"}, {}))
    async with EventRecorder(client, "controller") as events:
        events.record(POD, EventKind.NORMAL, "First", "x")
        await server.until(lambda: len(server.calls) == 1)
        events.record(POD, EventKind.NORMAL, "Second", "x")
        await server.until(lambda: bool(server.objects["events"]))
    assert [event["reason"] for event in server.objects["events"].values()] == ["Second"]


def test_an_event_on_a_long_name_has_a_name_that_is_accepted() -> None:
    long = Reference("v1", "Pod", "default", "a" * 235 + "." + "b" * 17, "uid")
    name = EventKey(long, EventKind.NORMAL, "R", "m").name("c")
    assert len(name) <= 253
    assert ".." not in name


async def test_what_was_recorded_last_is_written_before_the_end(server: FakeServer, client: Client) -> None:
    async with EventRecorder(client, "controller") as events:
        for number in range(5):
            events.record(POD, EventKind.NORMAL, f"Last{number}", "x")
    assert len(server.objects["events"]) == 5


def test_floods_are_folded() -> None:
    flood = FloodFilter()
    kept = [flood.admit(key(f"m{number:02}"), 0.0) for number in range(SIMILAR + 3)]
    assert [found.message for found in kept[:SIMILAR] if found] == [f"m{number:02}" for number in range(SIMILAR)]
    assert {found.message for found in kept[SIMILAR:] if found} == {
        "(combined from similar events): more messages like: m00"
    }
    assert flood.admit(key("m00"), 0.0) == key("m00")
    assert flood.admit(key("new"), 700.0) == key("new")


def test_an_object_has_a_budget_that_grows_back() -> None:
    flood = FloodFilter()
    assert all(flood.admit(key("m"), 0.0) for _ in range(BURST))
    assert flood.admit(key("m"), 1.0) is None
    assert flood.admit(key("m"), 301.0) == key("m")


async def test_one_candidate_leads_and_the_other_follows_when_it_leaves(server: FakeServer, client: Client) -> None:
    order: list[str] = []
    leave, led = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        order.append("first")
        led.set()
        await leave.wait()
        order.append("first ends")

    async def second() -> None:
        order.append("second")

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(Elector(client, "default", "lease", "one", QUICK).run(first))
        await led.wait()
        group.create_task(Elector(client, "default", "lease", "two", QUICK).run(second))
        await server.until(lambda: sum(call[0] == "PATCH" for call in server.calls) >= 2)
        assert order == ["first"]
        leave.set()
    assert order == ["first", "first ends", "second"]
    lease = server.objects["leases"]["default/lease"]["spec"]
    assert (lease["holderIdentity"], lease["leaseTransitions"]) == ("", 1)


async def test_a_leader_that_lost_its_lease_stops_leading(server: FakeServer, client: Client) -> None:
    leading, stopped = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        leading.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(Elector(client, "default", "lease", "one", QUICK).run(lead))
    async with asyncio.timeout(10):
        await leading.wait()
        server.put("leases", "lease", spec={"holderIdentity": "thief", "leaseDurationSeconds": 3600})
        await stopped.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert server.objects["leases"]["default/lease"]["spec"]["holderIdentity"] == "thief"


async def test_the_lease_of_a_dead_leader_runs_out(server: FakeServer, client: Client) -> None:
    server.put("leases", "lease", spec={"holderIdentity": "dead", "leaseDurationSeconds": 1})
    led = asyncio.Event()

    async def lead() -> None:
        led.set()

    async with asyncio.timeout(10):
        await Elector(client, "default", "lease", "one", QUICK).run(lead)
    assert led.is_set()
