"""From the agent's sockets to what libvirt streams: consoles by its protocol, displays by a descriptor of QEMU's.

The agent hands over a listening socket for each endpoint. A client's connection outlives the daemon's: when the daemon
comes back, the stream is opened anew.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

import libvirt

from anyvisor.drivers.libvirt.connection import Connection
from anyvisor.hri.errors import HriError

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 * 1024
BUFFER_BYTES: Final = 1024 * 1024
"""Output that waits for a client; what comes when it is full is lost to that client, and the guest goes on."""
RETRY_SECONDS: Final = 1.0
_EVENTS: Final = libvirt.VIR_STREAM_EVENT_READABLE | libvirt.VIR_STREAM_EVENT_ERROR | libvirt.VIR_STREAM_EVENT_HANGUP

Attend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Relay:
    """One endpoint: a listening socket, and a task for each client."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend
        self._clients: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, listener: socket.socket) -> None:
        """Serve clients of `listener`, which is ours from now on."""
        self._server = await asyncio.start_unix_server(self._accepted, sock=listener)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            await self._attend(reader, writer)
        except (OSError, HriError) as error:
            log.info("a client's stream ended: %s", error)
        finally:
            self._clients.discard(task)
            writer.close()

    def close(self) -> None:
        """Serve nobody any more."""
        if self._server is not None:
            self._server.close()
        for task in self._clients:
            task.cancel()


class ConsoleStream:
    """An open console of a domain; what it says goes to `on_data`, on the loop."""

    def __init__(self, stream: libvirt.virStream, on_data: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()

    def begin(self, domain: libvirt.virDomain, device: str) -> None:
        """Open it; runs in a thread. Whoever had it before loses it: the agent knows that there is one client."""
        domain.openConsole(device, self._stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
        self._stream.eventAddCallback(_EVENTS, self._on_event, None)

    def _on_event(self, _stream: libvirt.virStream, _events: int, _: Any) -> None:
        """Runs on the thread of events."""
        while True:
            try:
                data = cast("bytes | int", self._stream.recv(CHUNK_BYTES))
            except libvirt.libvirtError:
                data = b""
            if isinstance(data, int):  # -2: nothing more for now
                return
            if not data:
                with contextlib.suppress(libvirt.libvirtError):
                    self._stream.eventRemoveCallback()
                self._call(self.ended.set)
                return
            self._call(self._on_data, data)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    def send(self, data: bytes) -> None:
        """Give the guest input; runs in a thread."""
        while data:
            sent = self._stream.send(data)
            if sent <= 0:
                return
            data = data[sent:]

    def end(self) -> None:
        """Let go of it; runs in a thread."""
        with contextlib.suppress(libvirt.libvirtError):
            if not self.ended.is_set():
                self._stream.eventRemoveCallback()
            self._stream.abort()


def console(connection: Connection, domain: str, device: str) -> Relay:
    """A relay for the serial console `device` (libvirt's alias) of a domain."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def on_data(data: bytes) -> None:
            if writer.transport.get_write_buffer_size() < BUFFER_BYTES:
                writer.write(data)

        while not reader.at_eof():
            changed = connection.changed
            try:
                stream = await _open_console(connection, domain, device, on_data)
            except HriError as error:
                log.info("console of %s: %s", domain, error)
                if connection.changed is changed and not await _is_active(connection, domain):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_SECONDS):
                        await changed.wait()
                continue
            await _carry_input(connection, reader, stream)

    return Relay(attend)


async def _open_console(
    connection: Connection, domain: str, device: str, on_data: Callable[[bytes], None]
) -> ConsoleStream:
    raw = await connection.call(lambda opened: opened.newStream(libvirt.VIR_STREAM_NONBLOCK))
    stream = ConsoleStream(raw, on_data)
    await connection.on_domain(domain, lambda found: stream.begin(found, device))
    return stream


async def _is_active(connection: Connection, domain: str) -> bool:
    try:
        return bool(await connection.on_domain(domain, lambda found: found.isActive()))
    except HriError:
        return connection.lost


async def _carry_input(connection: Connection, reader: asyncio.StreamReader, stream: ConsoleStream) -> None:
    """Client -> guest, until the client leaves, the stream ends, or the daemon goes (which no stream tells)."""
    ends = [asyncio.create_task(stream.ended.wait()), asyncio.create_task(connection.changed.wait())]
    try:
        while True:
            reading = asyncio.create_task(reader.read(CHUNK_BYTES))
            await asyncio.wait((reading, *ends), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            data = reading.result()
            if not data:
                return
            await connection.in_thread(partial(stream.send, data))
    finally:
        for each in ends:
            each.cancel()
        await connection.in_thread(stream.end)


def display(connection: Connection, domain: str) -> Relay:
    """A relay for the display of a domain; each client gets a connection of its own to QEMU."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        descriptor = await connection.on_domain(domain, lambda found: found.openGraphicsFD(0))
        theirs = await asyncio.open_unix_connection(sock=_socket(descriptor))
        try:
            directions = [asyncio.create_task(_copy(reader, theirs[1])), asyncio.create_task(_copy(theirs[0], writer))]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in directions:
                    each.cancel()
        finally:
            theirs[1].close()

    return Relay(attend)


def _socket(descriptor: int) -> socket.socket:
    try:
        connected = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    connected.setblocking(False)
    return connected


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
