"""Clients that are slow, silent or greedy: they end, or wait for themselves, and nobody else notices."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from anyvisor.embedded.apiserver import http
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.transport import Request
from tests.contract.apiserver.inside import ADMIN, CMS, Json, call, watch

PATIENCE = 30.0
TOKEN = "a-token-of-the-tests"


@dataclass
class Loopback:
    """A server that listens without TLS, and short limits."""

    server: ApiServer
    port: int

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def answer(self) -> int:
        """The status of a request on a new connection."""
        reader, writer = await self.connect()
        writer.write(head("GET", "/readyz"))
        line = await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()
        return int(line.split()[1])


def head(method: str, path: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *more, "", ""]
    return "\r\n".join(lines).encode()


@pytest.fixture
async def loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Loopback]:
    monkeypatch.setattr(http, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(http, "KEEPALIVE_SECONDS", 0.3)
    monkeypatch.setattr(http, "WRITE_SECONDS", 0.3)
    config = ServerConfig(tmp_path / "s.db", static_tokens={TOKEN: ADMIN})
    listener = socket.create_server(("127.0.0.1", 0))
    async with ApiServer(config) as server:
        await server.serve(listener)
        yield Loopback(server, listener.getsockname()[1])


def reading(writer: asyncio.StreamWriter) -> asyncio.ReadTransport:
    return cast("asyncio.ReadTransport", writer.transport)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What is read until the server ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        head("GET", "/readyz") + b"GET /api HTTP/1.1\r\nX-Slow: ",
    ],
    ids=["nothing", "half of a first request", "half of a second request"],
)
async def test_who_sends_no_whole_request_in_time_is_cut_off(loopback: Loopback, sent: bytes):
    reader, writer = await loopback.connect()
    writer.write(sent)
    dripping = asyncio.create_task(drip(writer))
    await ended(reader)
    dripping.cancel()
    assert await loopback.answer() == 200
    writer.close()


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send one byte of a header now and then, as slow-loris does."""
    while not writer.is_closing():
        if writer.transport.get_write_buffer_size() == 0:
            writer.write(b"a")
        await asyncio.sleep(0.05)


async def test_a_body_that_does_not_come_is_answered_and_ends(loopback: Loopback):
    reader, writer = await loopback.connect()
    writer.write(head("POST", CMS, "Content-Type: application/json", "Content-Length: 1000") + b'{"meta')
    answer = await ended(reader)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive in time" in answer
    writer.close()


async def test_nobody_sends_a_body_without_saying_who_they_are(loopback: Loopback):
    reader, writer = await loopback.connect()
    writer.write(head("POST", CMS, "Content-Length: 1000").replace(TOKEN.encode(), b"wrong"))
    line = await asyncio.wait_for(reader.readline(), PATIENCE)
    assert line.startswith(b"HTTP/1.1 401 "), "answered before the body is there"
    writer.close()


async def test_a_reader_that_does_not_read_is_cut_off_and_costs_no_memory(loopback: Loopback):
    transport = loopback.server.inprocess(ADMIN)
    reader, writer = await loopback.connect(limit=1024)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer.write(head("GET", f"{CMS}?watch=true"))
    assert (await asyncio.wait_for(reader.readline(), PATIENCE)).startswith(b"HTTP/1.1 200 ")
    reading(writer).pause_reading()
    big = {"data": {"k": "x" * 500_000}}
    for number in range(20):
        await call(transport, "POST", CMS, {"metadata": {"name": f"c{number}"}, **big})
    async with asyncio.timeout(PATIENCE):
        while await watching(loopback.server):
            await asyncio.sleep(0.05)
    writer.close()
    assert await loopback.answer() == 200


async def eventually_connected(loopback: Loopback, count: int) -> list[Any]:
    """The sockets of the server's connections, once there are so many."""
    served = loopback.server._shell._server
    assert served is not None
    async with asyncio.timeout(PATIENCE):
        while len(served.connections) != count:
            await asyncio.sleep(0.05)
    transports = [connection.transport for connection in served.connections]
    return [transport.get_extra_info("socket") for transport in transports if transport is not None]


async def watching(server: ApiServer) -> int:
    response = await server.inprocess(ADMIN).send(Request("GET", "/metrics"))
    lines = (await response.read()).decode().splitlines()
    return int(float(next(line for line in lines if line.startswith("apiserver_registered_watchers ")).split()[1]))


async def test_a_list_that_nobody_reads_ends(loopback: Loopback):
    transport = loopback.server.inprocess(ADMIN)
    big = {"data": {"k": "x" * 500_000}}
    for number in range(40):
        await call(transport, "POST", CMS, {"metadata": {"name": f"c{number}"}, **big})
    reader, writer = await loopback.connect(limit=1024)
    writer.write(head("GET", CMS))
    await asyncio.wait_for(reader.readline(), PATIENCE)
    reading(writer).pause_reading()
    await eventually_connected(loopback, 0)
    reading(writer).resume_reading()
    body = await ended(reader)
    assert len(body) < 20_000_000, "the rest was not kept for it"
    writer.close()


async def test_sockets_notice_a_peer_that_is_gone(loopback: Loopback):
    reader, writer = await loopback.connect()
    (accepted,) = await eventually_connected(loopback, 1)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    writer.close()
    await ended(reader)


class Slow:
    """Admission that waits while it is told to: requests in progress."""

    phase: Literal["mutating", "validating"] = "validating"

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        if request.name.startswith("slow"):
            await self.gate.wait()
        return ALLOWED


async def test_a_user_with_a_hundred_slow_requests_makes_nobody_wait(tmp_path: Path):
    slow = Slow()
    config = ServerConfig(tmp_path / "s.db", admission=[slow], max_running=8, max_requests_per_user=100)
    async with ApiServer(config) as server:
        greedy, modest = server.inprocess(ADMIN), server.inprocess(Identity("modest", ("system:masters",)))
        sent = [
            asyncio.create_task(call(greedy, "POST", CMS, {"metadata": {"name": f"slow-{number}"}}))
            for number in range(100)
        ]
        await asyncio.sleep(0)
        for number in range(20):
            status, _ = await asyncio.wait_for(
                call(modest, "POST", CMS, {"metadata": {"name": f"m{number}"}}), PATIENCE
            )
            assert status == 201
        assert not any(task.done() for task in sent)
        status, answer = await call(greedy, "GET", CMS)
        assert (status, answer["reason"]) == (429, "TooManyRequests")
        slow.gate.set()
        answers: list[tuple[int, Json]] = await asyncio.gather(*sent)
        assert [status for status, _ in answers] == [201] * 100


async def test_one_user_has_half_of_the_watches_at_most(tmp_path: Path):
    async with ApiServer(ServerConfig(tmp_path / "s.db", max_watches=4)) as server:
        greedy, modest = server.inprocess(ADMIN), server.inprocess(Identity("modest", ("system:masters",)))
        streams = [await watch(greedy, ""), await watch(greedy, "")]
        response = await greedy.send(Request("GET", CMS, "watch=true"))
        assert response.status == 429
        assert "end some of them" in json.loads(await response.read())["message"]
        streams += [await watch(modest, ""), await watch(modest, "")]
        for stream in streams:
            await stream.close()
