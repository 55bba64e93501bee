"""Connections that fail leave the descriptors of others alone."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Generator

import aiohttp
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from anyvisor.kube.connector import KEEPALIVE_OPTIONS, Connector

RESET = struct.pack("ii", 1, 0)


@contextlib.contextmanager
def resetting() -> Generator[tuple[int, list[int]]]:
    """A server that resets most connections in their handshake; its port, and descriptors that somebody else closed."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    stolen: list[int] = []

    def serve() -> None:
        held: list[socket.socket] = []
        for number in range(10**6):
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            if number % 5:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                connection.close()
                continue
            held.append(connection)
            if len(held) > 30:
                _end(held.pop(0), stolen)
        for connection in held:
            _end(connection, stolen)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], stolen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _end(connection: socket.socket, stolen: list[int]) -> None:
    try:
        os.close(connection.detach())
    except OSError as error:
        stolen.append(error.errno or 0)


def test_a_handshake_that_fails_closes_no_other_descriptor() -> None:
    context = ssl.create_default_context()

    async def connect_often(port: int) -> int:
        async with aiohttp.ClientSession(connector=Connector(ssl=context, limit=0)) as session:

            async def connect(number: int) -> bool:
                try:
                    async with asyncio.timeout(0.02 * (number % 5) + 0.001 * number):
                        await session.get(f"https://127.0.0.1:{port}/")
                except (aiohttp.ClientConnectionError, TimeoutError):
                    return True
                return False

            return sum([sum(await asyncio.gather(*map(connect, range(60)))) for _ in range(20)])

    with resetting() as (port, stolen):
        failed = uvloop.run(connect_often(port))
    assert (failed, stolen) == (1200, [])


async def test_connections_are_kept_alive_and_every_address_is_tried() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    class Resolver(AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            del family
            numeric = socket.AI_NUMERICHOST
            return [
                ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=numeric)
                for each in ("127.0.0.2", "127.0.0.1")
            ]

        async def close(self) -> None: ...

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        aiohttp.ClientSession(connector=Connector(resolver=Resolver())) as session,
        session.get(f"http://server.example:{port}/") as response,
    ):
        assert response.connection is not None
        assert response.connection.transport is not None
        made = response.connection.transport.get_extra_info("socket")
        found = [made.getsockopt(level, option) for level, option, _ in KEEPALIVE_OPTIONS]
        assert found == [value for _, _, value in KEEPALIVE_OPTIONS]
    await ended.wait()
