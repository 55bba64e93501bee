"""Carries bytes between the client's websocket and the other end, until either ends; with back-pressure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web

SUBPROTOCOL: Final = "plain.kubevirt.io"
MESSAGE_LIMIT: Final = 1024 * 1024
HEARTBEAT: Final = 30.0

Websocket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


class End(Protocol):
    """The other end of a stream: chunks come from it, go to it, and it is closed."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def send(self, chunk: bytes) -> None: ...
    async def close(self) -> None: ...


async def upgrade(request: web.Request) -> web.WebSocketResponse:
    """Accept the client's websocket; its subprotocol is answered when it offers ours."""
    socket = web.WebSocketResponse(
        protocols=(SUBPROTOCOL,), max_msg_size=MESSAGE_LIMIT, heartbeat=HEARTBEAT, compress=False
    )
    await socket.prepare(request)
    return socket


async def splice(client: web.WebSocketResponse, other: End) -> None:
    """Carry bytes both ways until one side ends; both are closed then, the client with a clean close."""
    code = WSCloseCode.OK
    try:
        async with asyncio.TaskGroup() as group:
            first = _First(group)
            first.run(_pump(chunks(client), other.send))
            first.run(_pump(other, client.send_bytes))
    except* (aiohttp.ClientError, OSError):
        code = WSCloseCode.GOING_AWAY
    finally:
        with suppress(aiohttp.ClientError, OSError):
            await other.close()
        with suppress(aiohttp.ClientError, OSError):
            await client.close(code=code)


class _First:
    """Tasks of which the first to end ends the others."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, work: Awaitable[None]) -> None:
        self._tasks.append(self._group.create_task(self._until_first(work)))

    async def _until_first(self, work: Awaitable[None]) -> None:
        await work
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()


async def _pump(source: "End | AsyncIterator[bytes]", sink: Callable[[bytes], Awaitable[None]]) -> None:
    async for chunk in source:
        await sink(chunk)


async def chunks(socket: Websocket) -> AsyncIterator[bytes]:
    """Yield what a websocket sends, whatever the frame's type, until it closes; raises if it breaks."""
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            yield message.data
        elif message.type is WSMsgType.TEXT:
            yield message.data.encode()
        elif message.type is WSMsgType.ERROR:
            raise aiohttp.ClientConnectionError(f"the websocket broke: {socket.exception()}")


class WebsocketEnd:
    """A websocket to a node agent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in chunks(self._socket):
            yield chunk
        if self._socket.close_code not in (WSCloseCode.OK, None):
            raise aiohttp.ClientConnectionError(f"the node agent closed the stream with {self._socket.close_code}")

    async def send(self, chunk: bytes) -> None:
        await self._socket.send_bytes(chunk)

    async def close(self) -> None:
        await self._socket.close()
