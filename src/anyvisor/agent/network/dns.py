"""A relay for name queries: from the guest's gateway address to a resolver that only the host can reach.

It passes packets on and reads none of them but the query's number, which it replaces, so that an answer finds its
question. Everything is capped: the guest is hostile.
"""

import asyncio
import contextlib
import secrets
import socket
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, cast

PORT: Final = 53
MAX_UDP: Final = 4096
MAX_PENDING: Final = 256
MAX_CONNECTIONS: Final = 16
ANSWER_SECONDS: Final = 10.0
CHUNK: Final = 65536

Peer = tuple[str, int]


@dataclass(slots=True)
class Pending:
    """Questions under way: the number that we gave -> the guest's number and address. Sans I/O."""

    _asked: dict[int, tuple[bytes, Peer, float]] = field(default_factory=dict[int, tuple[bytes, Peer, float]])

    def question(self, packet: bytes, peer: Peer, now: float) -> bytes | None:
        """The packet to ask with, or None when it is too short or there are too many questions."""
        if len(packet) < 12:
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
        found = self._asked.pop(int.from_bytes(packet[:2], "big"), None) if len(packet) >= 12 else None
        if found is None:
            return None
        number, peer, _ = found
        return number + packet[2:], peer


class DnsRelay:
    """Relays until closed. Owns the two sockets; the resolver is asked from the agent's own network."""

    def __init__(self, udp: socket.socket, tcp: socket.socket, resolver: IPv4Address | IPv6Address) -> None:
        self._loop = asyncio.get_running_loop()
        self._udp, self._tcp, self._resolver = udp, tcp, resolver
        family = socket.AF_INET if resolver.version == 4 else socket.AF_INET6
        self._outside = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._outside.connect((str(resolver), PORT))
        self._pending = Pending()
        self._connections: set[asyncio.Task[None]] = set()
        self._loop.add_reader(udp, self._ask)
        self._loop.add_reader(self._outside, self._answer)
        self._loop.add_reader(tcp, self._accept)

    def close(self) -> None:
        """End; idempotent."""
        for each in (self._udp, self._outside, self._tcp):
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
                each.close()
        for task in self._connections:
            task.cancel()

    def _ask(self) -> None:
        with contextlib.suppress(OSError):
            packet, peer = self._udp.recvfrom(MAX_UDP)
            question = self._pending.question(packet, cast(Peer, peer), self._loop.time())
            if question is not None:
                self._outside.send(question)

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
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
            task = self._loop.create_task(self._relay(connection), name="name query over TCP")
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _relay(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(str(self._resolver), PORT)
                try:
                    await asyncio.gather(self._upwards(connection, writer), self._downwards(reader, connection))
                finally:
                    writer.close()

    async def _upwards(self, connection: socket.socket, writer: asyncio.StreamWriter) -> None:
        while data := await self._loop.sock_recv(connection, CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _downwards(self, reader: asyncio.StreamReader, connection: socket.socket) -> None:
        while data := await reader.read(CHUNK):
            await self._loop.sock_sendall(connection, data)
        connection.shutdown(socket.SHUT_WR)
