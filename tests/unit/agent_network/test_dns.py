"""The name relay: its books, and queries over UDP and TCP against a resolver of the test."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from ipaddress import IPv4Address

import pytest

from anyvisor.agent.network import dns
from anyvisor.agent.network.dns import ANSWER_SECONDS, MAX_PENDING, DnsRelay, Pending

LOCAL = b"\x12\x34" + bytes(10) + b"answered here"
QUERY = b"\x12\x34" + bytes(10) + b"question"


def test_answers_find_their_question_with_its_own_number() -> None:
    pending = Pending()
    first = pending.question(QUERY, ("10.0.2.2", 1000), 0.0)
    second = pending.question(QUERY, ("10.0.2.2", 1001), 0.0)
    assert first is not None
    assert second is not None
    assert first[:2] != second[:2]
    assert pending.reply(second[:2] + b"x" * 12) == (b"\x12\x34" + b"x" * 12, ("10.0.2.2", 1001))
    assert pending.reply(second[:2] + b"x" * 12) is None, "an answer counts once"
    assert pending.reply(first[:2] + b"y" * 12) == (b"\x12\x34" + b"y" * 12, ("10.0.2.2", 1000))


def test_questions_are_capped_and_forgotten() -> None:
    pending = Pending()
    asked = [pending.question(QUERY, ("10.0.2.2", 1), 0.0) for _ in range(MAX_PENDING + 1)]
    assert asked[-1] is None
    assert None not in asked[:-1]
    assert pending.question(QUERY, ("10.0.2.2", 1), ANSWER_SECONDS + 1) is not None
    assert pending.question(b"short", ("10.0.2.2", 1), 0.0) is None
    assert pending.reply(b"x") is None


@pytest.fixture
async def relay(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[int, int]]:
    """Ports of a relay (UDP, TCP), in front of a resolver that answers in capitals."""
    loop = asyncio.get_running_loop()
    resolver_tcp = socket.create_server(("127.0.0.1", 0))
    port = resolver_tcp.getsockname()[1]
    resolver_udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    resolver_udp.bind(("127.0.0.1", port))
    monkeypatch.setattr(dns, "PORT", port)

    def answer() -> None:
        packet, peer = resolver_udp.recvfrom(4096)
        resolver_udp.sendto(packet[:2] + packet[2:].upper(), peer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(2)
        writer.write(size + (await reader.readexactly(int.from_bytes(size, "big"))).upper())
        writer.close()

    loop.add_reader(resolver_udp, answer)
    server = await asyncio.start_server(serve, sock=resolver_tcp)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    udp.bind(("127.0.0.1", 0))
    tcp = socket.create_server(("127.0.0.1", 0))
    tcp.setblocking(False)
    opened = DnsRelay(udp, tcp, lambda: IPv4Address("127.0.0.1"), lambda query, _: LOCAL if b"ours" in query else None)
    yield udp.getsockname()[1], tcp.getsockname()[1]
    opened.close()
    opened.close()
    loop.remove_reader(resolver_udp)
    resolver_udp.close()
    server.close()
    await server.wait_closed()


async def ask(port: int, query: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)) as guest:
        guest.connect(("127.0.0.1", port))
        await loop.sock_sendall(guest, query)
        return await asyncio.wait_for(loop.sock_recv(guest, 4096), 5)


async def test_udp(relay: tuple[int, int]) -> None:
    assert await ask(relay[0], QUERY) == QUERY[:12] + b"QUESTION"
    assert await ask(relay[0], QUERY + b"ours") == LOCAL


async def test_tcp_takes_several_queries_on_one_connection(relay: tuple[int, int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay[1])
    for query, answer in ((b"query over tcp", b"QUERY OVER TCP"), (QUERY + b"ours", LOCAL)):
        writer.write(len(query).to_bytes(2, "big") + query)
        size = int.from_bytes(await asyncio.wait_for(reader.readexactly(2), 5), "big")
        assert await asyncio.wait_for(reader.readexactly(size), 5) == answer
    writer.close()
    await writer.wait_closed()


async def test_without_a_resolver_the_guest_hears_so_at_once() -> None:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    udp.bind(("127.0.0.1", 0))
    tcp = socket.create_server(("127.0.0.1", 0))
    tcp.setblocking(False)
    opened = DnsRelay(udp, tcp, lambda: None)
    try:
        answer = await ask(udp.getsockname()[1], QUERY)
    finally:
        opened.close()
    assert answer[:2] == QUERY[:2]
    assert answer[2] & 0x80, "it is an answer"
    assert answer[3] & 0x0F == 2, "server failure"
