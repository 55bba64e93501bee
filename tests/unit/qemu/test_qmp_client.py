"""The QMP client against a peer that answers, refuses, is silent, talks rubbish, or leaves."""

import asyncio
import time

import pytest

from anyvisor.drivers.qemu.qmp import Event, QmpClient, QmpClosed, QmpRefused, QmpTimeout, client
from tests.unit.qemu.peer import GREETING, Peer


class Owner:
    """What a session is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ended = asyncio.Event()

    async def open(self, peer: Peer) -> QmpClient:
        return await QmpClient.open(peer.theirs, self.events.append, self.ended.set)


async def test_negotiates_without_waiting_for_the_greeting(peer: Peer) -> None:
    session = await Owner().open(peer)
    greeting = asyncio.create_task(session.greet(("cont", None)))
    await peer.command("qmp_capabilities")
    await peer.command("cont")
    await peer.say({"event": "RESUME"}, GREETING, {"return": {}, "id": 1}, {"return": {}, "id": 2})
    assert await greeting == "9.1.0"
    session.close()


async def test_answers_may_be_large_and_events_come_between(peer: Peer) -> None:
    owner = Owner()
    session = await owner.open(peer)
    running = asyncio.create_task(session.execute("query-qmp-schema"))
    command = await peer.command("query-qmp-schema")
    await peer.say({"event": "STOP"}, {"return": ["x" * 1000] * 2000, "id": command["id"]}, {"event": "RESUME"})
    assert len(await running) == 2000
    assert [event.name for event in owner.events] == ["STOP", "RESUME"]
    session.close()


async def test_refusal_is_an_error_with_the_reason(peer: Peer) -> None:
    session = await Owner().open(peer)
    running = asyncio.create_task(session.execute("device_add", {"driver": "x"}))
    await peer.refuse("device_add", "no such device")
    with pytest.raises(QmpRefused, match="QEMU refused device_add: no such device"):
        await running
    session.close()


async def test_silence_is_a_timeout_and_a_late_answer_harms_nobody(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "COMMAND_SECONDS", 0.05)
    session = await Owner().open(peer)
    began = time.monotonic()
    with pytest.raises(QmpTimeout, match="did not answer query-status"):
        await session.execute("query-status")
    assert time.monotonic() - began < 5
    monkeypatch.setattr(client, "COMMAND_SECONDS", 10.0)
    late = await peer.command("query-status")
    running = asyncio.create_task(session.execute("query-name"))
    await peer.say({"return": "late", "id": late["id"]})
    await peer.answer("query-name", {"name": "m1"})
    assert await running == {"name": "m1"}
    session.close()


async def test_end_of_the_peer_fails_what_waits_and_is_told_once(peer: Peer) -> None:
    owner = Owner()
    session = await owner.open(peer)
    running = asyncio.create_task(session.execute("quit"))
    await peer.command("quit")
    peer.hang_up()
    with pytest.raises(QmpClosed):
        await running
    await asyncio.wait_for(owner.ended.wait(), 5)
    with pytest.raises(QmpClosed):
        await session.execute("query-status")
    session.send("cont")
    assert session.closed


async def test_rubbish_ends_the_session_with_the_cause(peer: Peer) -> None:
    owner = Owner()
    session = await owner.open(peer)
    running = asyncio.create_task(session.execute("query-status"))
    await peer.command("query-status")
    await peer.say_bytes(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(QmpClosed, match="given up: no JSON"):
        await running
    await asyncio.wait_for(owner.ended.wait(), 5)


async def test_leaving_is_not_an_end(peer: Peer) -> None:
    owner = Owner()
    session = await owner.open(peer)
    session.close()
    await asyncio.wait_for(session.wait_closed(), 5)
    assert not owner.ended.is_set()


async def test_no_greeting_is_a_timeout(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "GREETING_SECONDS", 0.05)
    session = await Owner().open(peer)
    with pytest.raises(QmpTimeout, match="did not greet"):
        await session.greet()
    session.close()
