"""The guest's serial console: drained always, replayed to who comes later, written by one at a time.

The VMM's endpoint serves one client, and a guest stalls when nobody reads it, so the agent is that client from the
first byte on. All memory is bounded: a guest that floods costs its readers the oldest output and nobody else
anything.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from typing import Final

from anyvisor.agent import linux

log = logging.getLogger(__name__)

REPLAY_BYTES: Final = 64 * 1024
CLIENT_BYTES: Final = 256 * 1024
CHUNK_BYTES: Final = 64 * 1024
SHARED_CLIENTS: Final = 16
"""Clients that read one console beside the one who writes."""
LOG_BYTES: Final = 1024 * 1024
"""The log is moved away before it has this size."""
_LOST: Final = b"\r\n[output was lost here: the reader was too slow]\r\n"

_BUFFER: Final = memoryview(bytearray(CHUNK_BYTES))
"""What all consoles are read into, by one event loop: a fresh one for a few bytes each time leaves holes in memory."""


class _Bounded:
    """The newest bytes of a stream, at most `limit` and a quarter: in one piece, as many guests write byte by byte."""

    def __init__(self, limit: int) -> None:
        self._data = bytearray()
        self._limit = limit

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._data)

    def append(self, data: bytes | memoryview) -> bool:
        """Keep `data`; True when something older was dropped for it."""
        self._data += data
        if len(self._data) <= self._limit + self._limit // 4:
            return False
        del self._data[: -self._limit]
        return True

    def take(self) -> bytes:
        """All that is kept, and forget it."""
        data, self._data = bytes(self._data), bytearray()
        return data

    def peek(self) -> bytes:
        """All that is kept, at most the limit."""
        return bytes(self._data[-self._limit :])


class ConsoleClient:
    """One reader, and perhaps the writer, of a console."""

    def __init__(self, console: "Console", first: bytes) -> None:
        self._console = console
        self._pending = _Bounded(CLIENT_BYTES)
        self._lost = False
        self._wake = asyncio.Event()
        self.closed = ""
        """Why no more will come, as a sentence; empty while more may."""
        if first:
            self.push(first)

    def push(self, data: bytes) -> None:
        """Output of the guest."""
        self._lost = self._pending.append(data) or self._lost
        self._wake.set()

    def end(self, why: str) -> None:
        """No more will come."""
        self.closed = self.closed or why
        self._wake.set()

    async def read(self) -> bytes:
        """What came since the last call; b"" when the client was closed and all was read."""
        while not self._pending.size and not self.closed:
            self._wake.clear()
            await self._wake.wait()
        data = self._pending.take()
        if self._lost:
            self._lost = False
            return _LOST + data
        return data

    async def write(self, data: bytes) -> None:
        """Give input to the guest, as fast as it takes it; dropped while another client writes."""
        if self._console.writer is self:
            await self._console.write(data)

    def close(self) -> None:
        """The reader goes."""
        self._console.leave(self)


class Console:
    """One console of one machine, over all connections to the VMM."""

    def __init__(self, noted: Callable[[int], None] = lambda _count: None, replay: bytes = b"") -> None:
        self._noted = noted
        self._replay = _Bounded(REPLAY_BYTES)
        self._interactive: ConsoleClient | None = None
        self._shared: list[ConsoleClient] = []
        """Those who read beside the one who writes, and wait for their turn."""
        self._followers: set[ConsoleClient] = set()
        self._connection: socket.socket | None = None
        self._ended: Callable[[], None] = lambda: None
        self._copy: Callable[[bytes], None] = lambda _data: None
        if replay:
            self._replay.append(replay)

    @property
    def connected(self) -> bool:
        """Whether the VMM's end is open."""
        return self._connection is not None

    @property
    def clients(self) -> int:
        """How many read it now, the log's readers apart."""
        return len(self._shared) + (1 if self._interactive is not None else 0)

    @property
    def writer(self) -> ConsoleClient | None:
        """Whose input reaches the guest."""
        return self._interactive

    def attach(
        self,
        connection: socket.socket,
        ended: Callable[[], None],
        copy: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        """Drain this connection from now on; `ended` is called when the VMM closes it, `copy` with all output."""
        self.detach()
        connection.setblocking(False)
        self._connection = connection
        self._ended = ended
        self._copy = copy
        asyncio.get_running_loop().add_reader(connection, self._drain)

    def detach(self) -> None:
        """Close the connection to the VMM; clients stay."""
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection)
            self._connection.close()
            self._connection = None

    def _drain(self) -> None:
        assert self._connection is not None
        try:
            data = bytes(_BUFFER[: self._connection.recv_into(_BUFFER)])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.detach()
            self._ended()
            return
        self._replay.append(data)
        self._copy(data)
        self._noted(len(data))
        for client in self._readers():
            client.push(data)

    def _readers(self) -> tuple[ConsoleClient, ...]:
        return (*self._followers, *self._shared, *((self._interactive,) if self._interactive else ()))

    def open(self) -> ConsoleClient:
        """A new interactive client, after what came last; the one before is closed."""
        if self._interactive is not None:
            self._interactive.end("another client opened this console")
        self._interactive = ConsoleClient(self, self._replay.peek())
        return self._interactive

    def share(self) -> ConsoleClient | None:
        """A new client beside the others, after what came last: the first writes, all read. None when too many do."""
        if len(self._shared) >= SHARED_CLIENTS:
            return None
        client = ConsoleClient(self, self._replay.peek())
        if self._interactive is None:
            self._interactive = client
        else:
            self._shared.append(client)
        return client

    def follow(self) -> ConsoleClient:
        """A client that only reads, beside all others, from now on."""
        client = ConsoleClient(self, b"")
        self._followers.add(client)
        return client

    def leave(self, client: ConsoleClient) -> None:
        """Forget a client; who has shared the console longest writes after the one who did."""
        self._followers.discard(client)
        if client in self._shared:
            self._shared.remove(client)
        if self._interactive is client:
            self._interactive = self._shared.pop(0) if self._shared else None

    async def write(self, data: bytes) -> None:
        """Give input to the guest; dropped when the VMM's end is closed."""
        if self._connection is None:
            return
        try:
            await asyncio.get_running_loop().sock_sendall(self._connection, data)
        except OSError as error:
            log.debug("input to a console was dropped: %s", error)

    def close(self, why: str) -> None:
        """The machine is gone."""
        self.detach()
        for client in self._readers():
            client.end(why)
        self._followers.clear()
        self._shared.clear()
        self._interactive = None


class SerialLog:
    """The file that the VMM appends to, in the launcher's directory; moved away before it fills that.

    `keep` stores the older part. What the guest writes between the copy and the truncation is lost: appending goes
    on at any time, and nothing that the agent does may stop it.
    """

    def __init__(self, descriptor: int, keep: Callable[[bytes], None], limit: int = LOG_BYTES) -> None:
        self._descriptor = descriptor
        self._keep = keep
        self._limit = limit
        self._since = 0

    @classmethod
    def create(cls, directory: int, name: str, owner: tuple[int, int], keep: Callable[[bytes], None]) -> "SerialLog":
        """Make the file; raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            _check_regular(descriptor, name)
            if os.geteuid() == 0:
                os.fchown(descriptor, *owner)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, keep)

    @classmethod
    def adopt(cls, directory: int, name: str, keep: Callable[[bytes], None]) -> "SerialLog":
        """Open the file of a machine that runs; its directory is hostile. Raises OSError."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = linux.openat2(directory, name, flags)
        try:
            _check_regular(descriptor, name)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, keep)

    @property
    def descriptor(self) -> int:
        """Ours, for reading."""
        return self._descriptor

    def for_vmm(self) -> int:
        """A descriptor that can only append; the caller's to close."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{self._descriptor}", flags)

    def read(self, limit: int = LOG_BYTES) -> bytes:
        """The newest part of the file."""
        size = os.fstat(self._descriptor).st_size
        return os.pread(self._descriptor, limit, max(size - limit, 0))

    def append(self, data: bytes) -> None:
        """Write for a VMM that does not; what a full disk does not take is lost."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, data)

    def noted(self, count: int) -> None:
        """The guest wrote about `count` bytes more."""
        self._since += count
        if self._since >= self._limit // 4:
            self._since = 0
            self.rotate_when_large()

    def rotate_when_large(self) -> None:
        """Move the content away when the file is half full."""
        try:
            if os.fstat(self._descriptor).st_size > self._limit // 2:
                self._keep(self.read())
                os.ftruncate(self._descriptor, 0)
        except OSError as error:
            log.warning("the serial log cannot be moved away: %s", error)

    def close(self) -> None:
        """Close our descriptor."""
        os.close(self._descriptor)


def _check_regular(descriptor: int, name: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(f"{name} in the launcher's directory is no regular file")
