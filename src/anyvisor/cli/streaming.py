"""What the commands with a stream share: a websocket to the instance, and carrying bytes over it."""

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from anyvisor.cli.api import SUBRESOURCES, client_context
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import Instance

if TYPE_CHECKING:
    import asyncio

    import aiohttp

PROTOCOL = "plain.kubevirt.io"
CHUNK = 64 * 1024
MESSAGE_LIMIT = 1 << 20
SENTENCE_HEADER = "x-anyvisor-message"
"""Where a refusal of a websocket says why."""


class StreamRefusedError(CommandError):
    """The instance refused the stream with HTTP `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def vmi_path(namespace: str, name: str, rest: str) -> str:
    """The path of a subresource of a running VM."""
    return f"{SUBRESOURCES}/namespaces/{quote(namespace)}/virtualmachineinstances/{quote(name)}/{rest}"


@asynccontextmanager
async def connected(of: Instance, path: str) -> AsyncGenerator["aiohttp.ClientWebSocketResponse"]:
    """Open the stream at `path`.

    Raises:
        StreamRefusedError: with the instance's own sentence.
        CommandError: the instance does not answer.
    """
    import aiohttp

    url = f"https://127.0.0.1:{of.api_port}{path}"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_context(of))) as session:
        try:
            stream = await session.ws_connect(url, protocols=[PROTOCOL], max_msg_size=MESSAGE_LIMIT)
        except aiohttp.WSServerHandshakeError as error:
            said = error.headers.get(SENTENCE_HEADER, "") if error.headers is not None else ""
            raise StreamRefusedError(error.status, said or f"refused with HTTP {error.status}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise CommandError(f"the instance does not answer ({error}): `anyvisor up --detach` starts it") from error
        async with stream:
            yield stream


class Sink(Protocol):
    """Where bytes go, as to an `asyncio.StreamWriter`."""

    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


async def splice(reader: "asyncio.StreamReader", writer: Sink, stream: "aiohttp.ClientWebSocketResponse") -> None:
    """Carry bytes both ways until either side ends."""
    import asyncio

    async def send() -> None:
        while data := await reader.read(CHUNK):
            await stream.send_bytes(data)

    async def receive() -> None:
        async for message in stream:
            data = content(message)
            writer.write(data)
            await writer.drain()

    tasks = [asyncio.ensure_future(send()), asyncio.ensure_future(receive())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def content(message: "aiohttp.WSMessage") -> bytes:
    """The bytes of a message, whatever its type."""
    data = message.data
    return data if isinstance(data, bytes) else str(data or "").encode()


async def close(writer: "asyncio.StreamWriter") -> None:
    """Close a connection whose other end may be gone."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
