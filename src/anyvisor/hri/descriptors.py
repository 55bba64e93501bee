"""Sending a descriptor beside a call: one SOCK_SEQPACKET message is one token with one descriptor."""

import asyncio
import os
import socket

from anyvisor.hri.v1.types_pb2 import DescriptorToken

TOKEN_BYTES = 16
TOKEN_LIFE_SECONDS = 10.0


class DescriptorSender:
    """A connection to a driver's fd.sock, made on demand and again after the driver's restart."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._connection: socket.socket | None = None
        self._lock = asyncio.Lock()

    async def send(self, handle: str, fd: int) -> DescriptorToken:
        """Send a copy of `fd`; raises OSError when the driver does not take it."""
        token = os.urandom(TOKEN_BYTES)
        async with self._lock:
            fresh = self._connection is None
            try:
                await self._send(token, fd)
            except OSError:
                self.close()
                if fresh:
                    raise
                await self._send(token, fd)
        return DescriptorToken(handle=handle, token=token)

    async def _send(self, token: bytes, fd: int) -> None:
        if self._connection is None:
            self._connection = await self._connect()
        connection = self._connection
        while True:
            try:
                socket.send_fds(connection, [token], [fd], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                await _writable(connection)

    async def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, self._path)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


async def _writable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(connection, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(connection)
