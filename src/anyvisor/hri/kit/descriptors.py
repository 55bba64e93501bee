"""fd.sock: descriptors that travel beside the calls.

One SOCK_SEQPACKET message is one token (16 bytes) with exactly one descriptor (SCM_RIGHTS). The call names the token.
Either may arrive first: a call waits for its token, a token waits for its call. Tokens are used once and dropped,
their descriptors closed, after 10 seconds.
"""

import array
import asyncio
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anyvisor.hri.descriptors import TOKEN_BYTES, TOKEN_LIFE_SECONDS
from anyvisor.hri.errors import InvalidRequest, LimitReached
from anyvisor.hri.peers import PeerPolicy
from anyvisor.hri.v1.types_pb2 import DescriptorToken

MAX_PENDING: Final = 256
MAX_CONNECTIONS: Final = 8
MAX_TOKENS_PER_CALL: Final = 64
_ANCILLARY: Final = socket.CMSG_SPACE(4 * 4)


class Descriptors:
    """The descriptors of one call, by handle. Who takes one owns it; `close` ends those that nobody took."""

    def __init__(self, by_handle: Mapping[str, int]) -> None:
        self._fds = dict(by_handle)

    def __contains__(self, handle: str) -> bool:
        return handle in self._fds

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._fds))

    def __len__(self) -> int:
        return len(self._fds)

    def take(self, handle: str) -> int:
        """The descriptor number, now the caller's to close."""
        try:
            return self._fds.pop(handle)
        except KeyError:
            raise InvalidRequest(
                f"no descriptor came for {handle!r}; name its token in the call and send it over fd.sock"
            ) from None

    def take_socket(self, handle: str) -> socket.socket:
        """The same as a non-blocking socket."""
        connection = socket.socket(fileno=self.take(handle))
        connection.setblocking(False)
        return connection

    def close(self) -> None:
        """Close what was not taken."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


class DescriptorStore:
    """Tokens that came and were not yet named, and calls that wait for theirs."""

    def __init__(self, *, life: float = TOKEN_LIFE_SECONDS) -> None:
        self._life = life
        self._arrived: dict[bytes, tuple[int, asyncio.TimerHandle]] = {}
        self._awaited: dict[bytes, asyncio.Future[int]] = {}

    def __len__(self) -> int:
        return len(self._arrived)

    def put(self, token: bytes, fd: int) -> bool:
        """Keep the descriptor for the call that will name it; False (and closed) when there are too many or the
        token is in use."""
        waiter = self._awaited.pop(token, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(fd)
            return True
        if token in self._arrived or len(self._arrived) >= MAX_PENDING:
            os.close(fd)
            return False
        timer = asyncio.get_running_loop().call_later(self._life, self._drop, token)
        self._arrived[token] = (fd, timer)
        return True

    async def collect(self, tokens: Sequence[DescriptorToken]) -> Descriptors:
        """The descriptors of a call's tokens; all or none."""
        if len(tokens) > MAX_TOKENS_PER_CALL:
            raise LimitReached(f"{len(tokens)} descriptor tokens in one call; {MAX_TOKENS_PER_CALL} are allowed")
        found: dict[str, int] = {}
        try:
            async with asyncio.timeout(self._life):
                for token in tokens:
                    if token.handle in found:
                        raise InvalidRequest(f"two descriptor tokens name {token.handle!r}")
                    found[token.handle] = await self._take(token)
        except TimeoutError:
            Descriptors(found).close()
            raise InvalidRequest(
                "a descriptor that the call names did not arrive on fd.sock in time; send it and call again "
                "with a new operation id"
            ) from None
        except BaseException:
            Descriptors(found).close()
            raise
        return Descriptors(found)

    async def _take(self, token: DescriptorToken) -> int:
        if len(token.token) != TOKEN_BYTES:
            raise InvalidRequest(f"the token for {token.handle!r} has {len(token.token)} bytes, not {TOKEN_BYTES}")
        arrived = self._arrived.pop(token.token, None)
        if arrived is not None:
            fd, timer = arrived
            timer.cancel()
            return fd
        if token.token in self._awaited:
            raise InvalidRequest(f"the token for {token.handle!r} is named by another call")
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._awaited[token.token] = waiter
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                os.close(waiter.result())
            raise
        finally:
            self._awaited.pop(token.token, None)

    def _drop(self, token: bytes) -> None:
        fd, _ = self._arrived.pop(token)
        os.close(fd)

    def close(self) -> None:
        """Close everything that still waits."""
        for fd, timer in self._arrived.values():
            timer.cancel()
            os.close(fd)
        self._arrived.clear()
        for waiter in self._awaited.values():
            waiter.cancel()


class DescriptorServer:
    """The listening fd.sock. A connection that breaks the form is closed; the others go on."""

    def __init__(self, listener: socket.socket, store: DescriptorStore, peers: PeerPolicy) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._store = store
        self._peers = peers
        self._connections: set[socket.socket] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if not self._peers.allows(connection) or len(self._connections) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._connections.add(connection)
        self._loop.add_reader(connection, self._receive, connection)

    def _receive(self, connection: socket.socket) -> None:
        try:
            message, ancillary, flags, _ = connection.recvmsg(
                TOKEN_BYTES + 1, _ANCILLARY, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._end(connection)
            return
        fds = received_descriptors(ancillary)
        good = len(message) == TOKEN_BYTES and len(fds) == 1 and not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if not good:
            for fd in fds:
                os.close(fd)
            self._end(connection)
        elif not self._store.put(message, fds[0]):
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        self._connections.discard(connection)
        connection.close()

    def close(self) -> None:
        """Stop listening and drop the connections."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            self._end(connection)


def received_descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """The descriptor numbers in a message's control data."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
