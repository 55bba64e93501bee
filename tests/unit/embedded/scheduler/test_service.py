"""The scheduler's loop against an API server on loopback."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from anyvisor.embedded.scheduler.service import Scheduler
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.http import HttpTransport
from tests.fakekube import FakeServer, serve

Json = dict[str, Any]

ROOM = {"allocatable": {"cpu": "2", "memory": "2Gi", "pods": "10"}}


def asks(memory: str) -> Json:
    return {"containers": [{"resources": {"requests": {"memory": memory}}}]}


@asynccontextmanager
async def scheduling(*nodes: str) -> AsyncGenerator[FakeServer]:
    async with serve(FakeServer()) as server:
        for name in nodes:
            server.put("nodes", name, "", status=ROOM)
        transport = HttpTransport(ClientConfig(server.url))
        client = Client(transport)
        async with EventRecorder(client, "scheduler") as events:
            task = asyncio.create_task(Scheduler(client, events).run())
            yield server
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await transport.close()


def node_of(server: FakeServer, name: str) -> str:
    return server.objects["pods"][f"default/{name}"].get("spec", {}).get("nodeName", "")


def said(server: FakeServer, name: str) -> list[tuple[str, str, str]]:
    conditions = server.objects["pods"][f"default/{name}"].get("status", {}).get("conditions", [])
    return [(one["type"], one["reason"], one["message"]) for one in conditions]


async def test_pods_are_bound_and_events_say_so() -> None:
    async with scheduling("n1", "n2") as server:
        server.put("pods", "a", spec=asks("1Gi"), status={"phase": "Pending"})
        await server.until(lambda: node_of(server, "a") == "n1")
        server.put("pods", "b", spec=asks("1Gi"))
        await server.until(lambda: node_of(server, "b") == "n2")
        await server.until(lambda: len(server.objects["events"]) == 2)
        messages = {event["message"] for event in server.objects["events"].values()}
    assert messages == {"Successfully assigned default/a to n1", "Successfully assigned default/b to n2"}


async def test_what_waits_at_a_start_is_placed_by_priority() -> None:
    async with serve(FakeServer()) as server:
        server.put("nodes", "n1", "", status=ROOM)
        server.put("priorityclasses", "high", "", value=1000)
        for number, name in enumerate(("", "high", "", "high")):
            server.put("pods", f"p{number}", spec={**asks("1Gi"), "priorityClassName": name})
        server.put("pods", "odd", spec={**asks("1Mi"), "priorityClassName": "none"})
        transport = HttpTransport(ClientConfig(server.url))
        client = Client(transport)
        async with EventRecorder(client, "scheduler") as events:
            task = asyncio.create_task(Scheduler(client, events).run())
            await server.until(
                lambda: bool(said(server, "p0")) and bool(said(server, "p2")) and bool(said(server, "odd"))
            )
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await transport.close()
    assert [node_of(server, f"p{number}") for number in range(4)] == ["", "n1", "", "n1"]
    assert said(server, "odd")[0][2] == "no PriorityClass with name none was found."


async def test_many_pods_at_once_never_overfill_a_node() -> None:
    async with scheduling("n1", "n2") as server:
        for number in range(6):
            server.put("pods", f"p{number}", spec=asks("1Gi"))
        await server.until(lambda: sum(bool(said(server, f"p{number}")) for number in range(6)) == 2)
        nodes = sorted(node_of(server, f"p{number}") for number in range(6))
    assert nodes == ["", "", "n1", "n1", "n2", "n2"]


async def test_a_pod_that_fits_nowhere_says_why_once_and_goes_when_there_is_room() -> None:
    async with scheduling("n1") as server:
        server.put("pods", "big", spec={"nodeName": "n1", **asks("2Gi")}, status={"phase": "Running"})
        server.put("pods", "waits", spec=asks("1Gi"))
        await server.until(lambda: bool(said(server, "waits")))
        sentence = "0/1 nodes are available: 1 Insufficient memory."
        assert said(server, "waits") == [("PodScheduled", "Unschedulable", sentence)]
        server.put("nodes", "n1", "", status={**ROOM, "conditions": [{"type": "Ready", "status": "True"}]})
        server.put("pods", "big", spec={"nodeName": "n1", **asks("2Gi")}, status={"phase": "Succeeded"})
        await server.until(lambda: node_of(server, "waits") == "n1")
    patches = [call for call in server.calls if call[0] == "PATCH" and call[1].endswith("/waits/status")]
    assert len(patches) == 1


async def test_a_new_node_takes_what_waits() -> None:
    async with scheduling() as server:
        server.put("pods", "a", spec=asks("1Gi"))
        await server.until(lambda: bool(said(server, "a")))
        server.put("nodes", "n1", "", status=ROOM)
        await server.until(lambda: node_of(server, "a") == "n1")


async def test_pods_of_another_scheduler_say_that_nobody_serves_them() -> None:
    async with scheduling("n1") as server:
        server.put("pods", "a", spec={"schedulerName": "mine"})
        await server.until(lambda: bool(said(server, "a")))
        assert "no scheduler named 'mine' runs here" in said(server, "a")[0][2]
        assert node_of(server, "a") == ""


async def test_gated_and_dying_pods_are_left_alone() -> None:
    async with scheduling("n1") as server:
        server.put("pods", "gated", spec={"schedulingGates": [{"name": "g"}]})
        server.put("pods", "dying", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        server.put("pods", "last")
        await server.until(lambda: node_of(server, "last") == "n1")
        assert (node_of(server, "gated"), node_of(server, "dying")) == ("", "")


async def test_a_refused_binding_gives_the_room_back() -> None:
    async with scheduling("n1") as server:
        await server.until(lambda: sum(call[2].get("watch") == "true" for call in server.calls) >= 3)
        server.failures.append((409, {"reason": "Conflict", "message": "not now"}, {}))
        server.put("pods", "a", spec=asks("2Gi"))
        await server.until(lambda: node_of(server, "a") == "n1")
