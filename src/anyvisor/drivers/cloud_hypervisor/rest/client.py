"""The thin shell over `protocol`: one connected unix socket, one request at a time, descriptors beside a request.

The VMM serves all requests from one loop, so a slow call delays every other. A call whose deadline passed keeps its
place: its answer is still awaited, and dropped when it comes. The connection was given by the agent and cannot be
made anew here, so it ends only when the VMM closes it or breaks the protocol.
"""

# ruff: noqa: N818 - the names say what happened

import array
import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from anyvisor.drivers.cloud_hypervisor.rest.protocol import ProtocolError, Response, ResponseReader, request

CALL_SECONDS: Final = 10.0
"""Ample for every local call (they take milliseconds), with a margin for a loaded node."""
CHUNK: Final = 1 << 16


class RestError(Exception):
    """A call without a useful answer; the subclasses say why."""


class RestClosed(RestError):
    """The VMM is gone, or its answers cannot be understood any more."""


class RestTimeout(RestError):
    """No answer in time. It says nothing about the VMM: it may be busy."""


class RestRefused(RestError):
    """The VMM answered with an error; `errors` is its chain, outermost first."""

    def __init__(self, path: str, response: Response) -> None:
        self.path = path
        self.status = response.status
        self.errors = response.errors
        said = ": ".join(error for error in self.errors if error != "Error from API")
        super().__init__(said or f"{path} was answered by status {response.status}")

    def says(self, text: str) -> bool:
        """Whether any error of the chain contains the text."""
        return any(text in error for error in self.errors)


class RestClient:
    """Calls of one VMM's API. `on_closed(ended)` is called once, when the connection is lost: `ended` when the VMM
    closed it, not when its answers could not be understood, which says nothing about the guest."""

    def __init__(self, connection: socket.socket, on_closed: Callable[[bool], None]) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._on_closed = on_closed
        self._reader = ResponseReader()
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[Response] | None = None
        self._closed = asyncio.Event()
        self._why = "the VMM closed the control channel"
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._receive)

    @property
    def closed(self) -> bool:
        """Whether no call can be made any more."""
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        """Until the VMM is gone."""
        await self._closed.wait()

    async def get(self, path: str, *, seconds: float = CALL_SECONDS) -> dict[str, Any]:
        """The object at `path`."""
        response = await self._call(request("GET", path), path, (), seconds)
        return self._decode(response)

    async def put(
        self, path: str, body: Any = None, *, descriptors: Sequence[int] = (), seconds: float = CALL_SECONDS
    ) -> dict[str, Any]:
        """Do `path`; the answer's object, empty where there is none.

        The descriptors are copied to the VMM. Raises RestRefused, RestTimeout, RestClosed, RequestTooLarge.
        """
        response = await self._call(request("PUT", path, body), path, descriptors, seconds)
        return self._decode(response) if response.body else {}

    def _decode(self, response: Response) -> dict[str, Any]:
        try:
            return response.json()
        except ProtocolError as error:
            self._lose(str(error))
            raise RestClosed(self._why) from error

    async def _call(self, message: bytes, path: str, descriptors: Sequence[int], seconds: float) -> Response:
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
                answer = await self._begin(message, descriptors)
                response = await asyncio.shield(answer)
        except TimeoutError:
            raise RestTimeout(f"{path} had no answer within {seconds:g} s") from None
        if not response.ok:
            raise RestRefused(path, response)
        return response

    async def _begin(self, message: bytes, descriptors: Sequence[int]) -> asyncio.Future[Response]:
        """Send; the turn is given back by the answer, also when nobody waits for it any more."""
        if self.closed:
            self._turn.release()
            raise RestClosed(self._why)
        answer: asyncio.Future[Response] = self._loop.create_future()
        answer.add_done_callback(self._answered)
        self._answer = answer
        try:
            rest = message[self._send_first(message, descriptors) :]
            if rest:
                await self._loop.sock_sendall(self._socket, rest)
        except OSError as error:
            self._lose(f"the control channel broke: {error.strerror}", ended=True)
        except asyncio.CancelledError:
            self._lose("a request was cut off")
            raise
        return answer

    def _send_first(self, message: bytes, descriptors: Sequence[int]) -> int:
        """The descriptors must be in the message with which the request begins."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        return self._socket.sendmsg([message], rights, socket.MSG_NOSIGNAL)

    def _answered(self, answer: asyncio.Future[Response]) -> None:
        if self._answer is answer:
            self._answer = None
        self._turn.release()
        if not answer.cancelled():
            answer.exception()  # an abandoned call's error is nobody's

    def _receive(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f"the control channel broke: {error.strerror}", ended=True)
            return
        if not data:
            self._lose("the VMM closed the control channel", ended=True)
            return
        try:
            for response in self._reader.feed(data):
                if self._answer is None or self._answer.done():
                    raise ProtocolError("an answer came that nobody asked for")
                self._answer.set_result(response)
        except ProtocolError as error:
            self._lose(str(error))

    def _lose(self, why: str, *, ended: bool = False) -> None:
        if not self.closed:
            self._why = why
            self.close()
            self._on_closed(ended)

    def close(self) -> None:
        """Let go of the connection. The VMM does not care."""
        if self.closed:
            return
        self._closed.set()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RestClosed(self._why))


async def closed_within(client: RestClient, seconds: float) -> bool:
    """Wait for the VMM's end; False when it still answers after `seconds`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await client.wait_closed()
    return client.closed
