"""Name queries of guests: what is known here is answered, all else is relayed to a resolver that the host reaches.

A relayed packet is passed on as it is but for the query's number, which is replaced, so that an answer finds its
question. Everything is capped: the guest is hostile.
"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, cast

PORT: Final = 53
MAX_UDP: Final = 4096
MAX_PENDING: Final = 256
MAX_CONNECTIONS: Final = 16
ANSWER_SECONDS: Final = 10.0
HEADER_BYTES: Final = 12

Peer = tuple[str, int]
Address = IPv4Address | IPv6Address
Upstream = Callable[[], Address | None]
"""The resolver to ask now; None when there is none."""
Local = Callable[[bytes, int], bytes | None]
"""Answers a query with at most so many bytes; None when it is not for us to answer."""
_SERVER_FAILURE: Final = 2


def nothing_local(_query: bytes, _limit: int) -> bytes | None:
    """Relay every query."""
    return None


def failure(query: bytes) -> bytes:
    """The answer when there is nobody to ask: the header alone, which says so."""
    flags = 0x8080 | (query[2] & 0x79) << 8 | _SERVER_FAILURE
    return query[:2] + flags.to_bytes(2, "big") + bytes(8)


@dataclass(slots=True)
class Pending:
    """Questions under way: the number that we gave -> the guest's number and address. Sans I/O."""

    _asked: dict[int, tuple[bytes, Peer, float]] = field(default_factory=dict[int, tuple[bytes, Peer, float]])

    def question(self, packet: bytes, peer: Peer, now: float) -> bytes | None:
        """The packet to ask with, or None when it is too short or there are too many questions."""
        if len(packet) < HEADER_BYTES:
            return None
        for number in [number for number, (_, _, asked) in self._asked.items() if now - asked > ANSWER_SECONDS]:
            del self._asked[number]
        if len(self._asked) >= MAX_PENDING:
            return None
        number = secrets.randbelow(1 << 16)
        while number in self._asked:
            number = (number + 1) % (1 << 16)
        self._asked[number] = (packet[:2], peer, now)
        return number.to_bytes(2, "big") + packet[2:]

    def reply(self, packet: bytes) -> tuple[bytes, Peer] | None:
        """The packet for the guest and where it goes, or None when nobody asked."""
        found = self._asked.pop(int.from_bytes(packet[:2], "big"), None) if len(packet) >= HEADER_BYTES else None
        if found is None:
            return None
        number, peer, _ = found
        return number + packet[2:], peer


class DnsRelay:
    """Answers until closed. Owns the two sockets; the resolver is asked from the agent's own network."""

    def __init__(
        self, udp: socket.socket, tcp: socket.socket, upstream: Upstream, local: Local = nothing_local
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._udp, self._tcp, self._upstream, self._local = udp, tcp, upstream, local
        self._outside: socket.socket | None = None
        self._asked: Address | None = None
        self._pending = Pending()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop.add_reader(udp, self._ask)
        self._loop.add_reader(tcp, self._accept)

    def close(self) -> None:
        """End; idempotent."""
        self._forget_outside()
        for each in (self._udp, self._tcp):
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
                each.close()
        for task in self._connections:
            task.cancel()

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            packet, peer = self._udp.recvfrom(MAX_UDP)
            if len(packet) < HEADER_BYTES:
                return
            answer = self._local(packet, MAX_UDP)
            outside = self._outside_socket() if answer is None else None
            if answer is None and outside is None:
                answer = failure(packet)
            if answer is not None:
                self._udp.sendto(answer, peer)
                return
            question = self._pending.question(packet, cast(Peer, peer), self._loop.time())
            if question is not None and outside is not None:
                outside.send(question)

    def _outside_socket(self) -> socket.socket | None:
        """Our socket to the resolver; another one when the host has another resolver than before."""
        wanted = self._upstream()
        if self._outside is None or wanted != self._asked:
            self._forget_outside()
            if wanted is not None:
                family = socket.AF_INET if wanted.version == 4 else socket.AF_INET6
                self._outside = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
                self._outside.connect((str(wanted), PORT))
                self._loop.add_reader(self._outside, self._answer)
            self._asked = wanted
        return self._outside

    def _forget_outside(self) -> None:
        if self._outside is not None:
            self._loop.remove_reader(self._outside)
            self._outside.close()
            self._outside = None

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            if self._outside is not None:
                reply = self._pending.reply(self._outside.recv(MAX_UDP))
                if reply is not None:
                    self._udp.sendto(*reply)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._tcp.accept()
            if len(self._connections) >= MAX_CONNECTIONS:
                connection.close()
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._converse(connection), name="name query over TCP")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _converse(self, connection: socket.socket) -> None:
        """Answer the queries of one connection, each of which stands behind its length."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(sock=connection)
                try:
                    while True:
                        query = await _framed(reader)
                        answer = self._local(query, 0xFFFF) if len(query) >= HEADER_BYTES else b""
                        answer = await self._relayed(query) if answer is None else answer
                        writer.write(len(answer).to_bytes(2, "big") + answer)
                        await writer.drain()
                finally:
                    writer.close()

    async def _relayed(self, query: bytes) -> bytes:
        resolver = self._upstream()
        if resolver is None:
            return failure(query)
        reader, writer = await asyncio.open_connection(str(resolver), PORT)
        try:
            writer.write(len(query).to_bytes(2, "big") + query)
            return await _framed(reader)
        finally:
            writer.close()


async def _framed(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
