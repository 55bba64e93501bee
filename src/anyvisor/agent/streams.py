"""What all streams of the agent's HTTP interface share: refusals, the upgrade to a websocket, and carrying bytes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Final

from aiohttp import WSMsgType, web

PING_SECONDS: Final = 30.0
CHUNK_BYTES: Final = 64 * 1024
MESSAGE_BYTES: Final = 1024 * 1024
"""Bytes of a client's message: a clipboard may be in it."""
MESSAGE_HEADER: Final = "x-anyvisor-message"
"""Carries a refusal's sentence: who asks for a websocket does not get to read the body of a refusal."""


def refusal(kind: type[web.HTTPException], sentence: str) -> web.HTTPException:
    """An answer to be raised in the place of an upgrade."""
    line = " ".join(sentence.encode("ascii", "replace").decode().split())
    return kind(text=f"{sentence}\n", headers={MESSAGE_HEADER: line})


class Clients:
    """Who uses the streams of one kind of one machine: at most `limit`, and all sent away together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._present: set[asyncio.Future[str]] = set()

    def enter(self) -> asyncio.Future[str] | None:
        """A new client, as the reason why it must go, once there is one; None when there are too many."""
        if len(self._present) >= self._limit:
            return None
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._present.add(ended)
        return ended

    def __len__(self) -> int:
        return len(self._present)

    def leave(self, ended: asyncio.Future[str]) -> None:
        """Forget a client."""
        self._present.discard(ended)

    def close(self, why: str) -> None:
        """The machine is gone."""
        for ended in self._present:
            if not ended.done():
                ended.set_result(why)


async def upgrade(request: web.Request, message_bytes: int) -> web.WebSocketResponse:
    """Accept a websocket. What protocol the client offers is accepted as it is: the gateway settled it."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = tuple(word.strip() for word in offered.split(",") if word.strip())
    websocket = web.WebSocketResponse(heartbeat=PING_SECONDS, max_msg_size=message_bytes, protocols=protocols)
    await websocket.prepare(request)
    return websocket


async def chunks(websocket: web.WebSocketResponse) -> AsyncGenerator[bytes]:
    """What the client sends, whatever the frame's type, until it leaves."""
    async for message in websocket:
        if message.type is WSMsgType.BINARY:
            yield message.data
        elif message.type is WSMsgType.TEXT:
            yield message.data.encode()


async def carry(
    websocket: web.WebSocketResponse, connection: socket.socket, ended: asyncio.Future[str], *, datagrams: bool = False
) -> str:
    """Carry bytes both ways, with back-pressure, until a side ends or the client is sent away; returns why."""
    outgoing = asyncio.ensure_future(_to_client(connection, websocket, datagrams))
    incoming = asyncio.ensure_future(_from_client(websocket, connection, datagrams))
    try:
        await asyncio.wait((outgoing, incoming, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (outgoing, incoming):
            task.cancel()
        await asyncio.gather(outgoing, incoming, return_exceptions=True)
    return ended.result() if ended.done() else ""


async def _to_client(connection: socket.socket, websocket: web.WebSocketResponse, datagrams: bool) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while True:
            try:
                data = await loop.sock_recv(connection, CHUNK_BYTES)
            except ConnectionRefusedError:
                if datagrams:  # an answer to an earlier datagram: nobody listened then
                    continue
                raise
            if not data and not datagrams:
                return
            await websocket.send_bytes(data)


async def _from_client(websocket: web.WebSocketResponse, connection: socket.socket, datagrams: bool) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        async for data in chunks(websocket):
            if datagrams:  # also an empty one; one that finds no room is lost, as on a network
                with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                    connection.send(data)
            else:
                await loop.sock_sendall(connection, data)
