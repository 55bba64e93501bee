"""A QMP session over a connected socket: commands with deadlines, events by callback, an end that is noticed."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from anyvisor.drivers.qemu.qmp.protocol import Event, Failure, Greeting, Message, ProtocolError, QmpCore, Reply
from anyvisor.hri.errors import DeadlineExceeded, VmmFailed

GREETING_SECONDS: Final = 30.0
"""QEMU greets once its machine is built; on a busy node that takes a while."""
COMMAND_SECONDS: Final = 10.0
DEADLINES: Final[Mapping[str, float]] = {"cont": 30.0, "stop": 30.0, "quit": 30.0, "system_reset": 30.0}
"""Commands that wait for the block layer get longer. Seconds."""


Command = tuple[str, Mapping[str, Any] | None]
"""A command's name and arguments."""


class QmpClosed(VmmFailed):
    """QEMU closed the channel: its process has ended, or is about to."""


class QmpTimeout(DeadlineExceeded):
    """No answer in time. The command may have been carried out: ask for the state, never repeat blindly."""


class QmpRefused(VmmFailed):
    """QEMU answered a command with an error."""

    def __init__(self, command: str, failure: Failure) -> None:
        super().__init__(f"QEMU refused {command}: {failure.description}")
        self.kind = failure.kind
        self.description = failure.description


class QmpClient(asyncio.Protocol):
    """One session. Made by `open`; `on_event` and `on_closed` are called from the event loop and must not block."""

    def __init__(self, on_event: Callable[[Event], None], on_closed: Callable[[], None]) -> None:
        self._core = QmpCore()
        self._on_event = on_event
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._names: dict[int, str] = {}
        self._greeting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._beside: socket.socket | None = None
        """The same connection, for commands that carry a descriptor: a transport cannot send one."""
        self._cause = "QEMU closed its control channel"

    @classmethod
    async def open(
        cls, connection: socket.socket, on_event: Callable[[Event], None], on_closed: Callable[[], None]
    ) -> "QmpClient":
        """Take over a connected stream socket."""
        loop = asyncio.get_running_loop()
        beside = connection.dup()
        try:
            _, client = await loop.create_connection(lambda: cls(on_event, on_closed), sock=connection)
        except BaseException:
            beside.close()
            raise
        client._beside = beside
        return client

    async def greet(self, *commands: Command) -> str:
        """Negotiate, and run `commands` with no round trip in between; returns QEMU's version.

        QEMU works through its input in order, so nothing is gained by waiting for the greeting first.
        """
        pending = [self._send(name, arguments) for name, arguments in (("qmp_capabilities", None), *commands)]
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                version = await self._greeting
                for future in pending:
                    await future
        except TimeoutError:
            raise QmpTimeout(f"QEMU did not greet within {GREETING_SECONDS:g} s", retry="backoff") from None
        finally:
            for future in pending:
                future.cancel()
        return version

    async def execute(self, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return its value."""
        return await self._outcome(name, self._send(name, arguments))

    async def execute_with(self, descriptor: int, name: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command that takes a descriptor (`add-fd`); ours stays ours."""
        transport = self._transport
        if transport is None or self._beside is None or self._ended.is_set():
            raise QmpClosed(self._cause)
        if transport.get_write_buffer_size():
            raise QmpTimeout(f"QEMU does not read its control channel, so {name} could not be sent", retry="backoff")
        number, data = self._core.command(name, arguments)
        future = self._expect(number, name)
        try:
            sent = socket.send_fds(self._beside, [data], [descriptor])
        except OSError as error:
            future.cancel()
            raise QmpClosed(f"{name} could not be sent: {error.strerror}") from error
        if sent < len(data):
            transport.write(data[sent:])
        return await self._outcome(name, future)

    async def _outcome(self, name: str, future: asyncio.Future[Any]) -> Any:
        seconds = DEADLINES.get(name, COMMAND_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise QmpTimeout(f"QEMU did not answer {name} within {seconds:g} s", retry="backoff") from None
        finally:
            future.cancel()

    def send(self, name: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Run a command whose outcome shows in events alone."""
        if not self._ended.is_set():
            self._send(name, arguments).add_done_callback(_observed)

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._ended.is_set()

    async def wait_closed(self) -> None:
        """Return when the session is over."""
        await self._ended.wait()

    def close(self) -> None:
        """Leave, without a word to QEMU and without `on_closed`."""
        self._on_closed = _nothing
        if self._transport is not None:
            self._transport.abort()

    def _send(self, name: str, arguments: Mapping[str, Any] | None = None) -> asyncio.Future[Any]:
        if self._transport is None or self._ended.is_set():
            raise QmpClosed(self._cause)
        number, data = self._core.command(name, arguments)
        future = self._expect(number, name)
        self._transport.write(data)
        return future

    def _expect(self, number: int, name: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._names[number] = name
        return future

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods alone

    def data_received(self, data: bytes) -> None:
        """Cut and dispatch; end the session at the first thing that is not QMP."""
        try:
            for message in self._core.feed(data):
                self._dispatch(message)
        except ProtocolError as error:
            self._cause = f"QEMU's control channel was given up: {error}"
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all that waits, then tell the owner once."""
        self._ended.set()
        if self._beside is not None:
            self._beside.close()
        for future in (*self._waiting.values(), self._greeting):
            if not future.done():
                future.set_exception(QmpClosed(self._cause))
                future.add_done_callback(_observed)
        self._waiting.clear()
        _observed(self._greeting)
        self._on_closed()

    def _dispatch(self, message: Message) -> None:
        match message:
            case Event():
                self._on_event(message)
            case Greeting():
                if not self._greeting.done():
                    self._greeting.set_result(message.version)
            case Reply():
                future = self._waiting.pop(message.number, None)
                self._names.pop(message.number, None)
                if future is not None and not future.done():
                    future.set_result(message.value)
            case Failure():
                self._fail(message)

    def _fail(self, failure: Failure) -> None:
        future = self._waiting.pop(failure.number, None)
        name = self._names.pop(failure.number, "a command")
        if future is not None and not future.done():
            future.set_exception(QmpRefused(name, failure))
            future.add_done_callback(_observed)


def _observed(future: asyncio.Future[Any]) -> None:
    """Mark an exception as seen: who waits gets it, and nobody has to."""
    if future.done() and not future.cancelled():
        future.exception()


def _nothing() -> None:
    """What `on_closed` becomes when we leave ourselves."""
