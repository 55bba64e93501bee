"""Other ends of streams for tests."""

import asyncio
from collections.abc import AsyncIterator


class TcpEnd:
    """A connected stream socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self._reader.read(64 * 1024):
            yield chunk

    async def send(self, chunk: bytes) -> None:
        self._writer.write(chunk)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
