"""Asks node agents: over a unix socket on this machine, over mutual TLS elsewhere."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from yarl import URL

from anyvisor.api.meta import Json
from anyvisor.kube.connector import Connector

ASK_TIMEOUT: Final = 60.0
"""Seconds for one question; freezing a guest's file systems is the slowest."""
CONNECT_TIMEOUT: Final = 5.0
ANSWER_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of an answer; a picture of a large display is the largest."""
MESSAGE_LIMIT: Final = 1024 * 1024
"""Bytes of one websocket message."""
HEARTBEAT: Final = 30.0
MESSAGE_HEADER: Final = "x-anyvisor-message"
"""Where an agent that refuses a websocket says why: the body of such an answer is not read."""
MESSAGE_HEADER_LIMIT: Final = 500

_UNIX = "unix:"


class AgentError(Exception):
    """The agent could not be asked; the message says which and why."""


class StreamRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The agent answered the request for a stream with `status`; the message is its sentence, if it said one."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


class Agents:
    """Connections to the agents of all nodes; `tls` is for those elsewhere."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def ask(self, endpoint: str, method: str, path: str, body: Json | None = None) -> tuple[int, bytes, str]:
        """Send one request; returns status, body and content type of the answer. Raises AgentError."""
        data = msgspec.json.encode(body) if body is not None else None
        headers = {"content-type": "application/json"} if data is not None else {}
        try:
            async with asyncio.timeout(ASK_TIMEOUT):
                async with self._session(endpoint).request(
                    method, _url(endpoint, path), data=data, headers=headers, allow_redirects=False
                ) as answer:
                    return answer.status, await _read(answer), answer.content_type
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AgentError(f"the node agent at {endpoint} does not answer: {_cause(error)}") from error

    async def follow(self, endpoint: str, path: str) -> AsyncGenerator[bytes]:
        """Yield the body of a GET as it comes. Raises AgentError; an answer that is no success is one, too."""
        try:
            async with self._session(endpoint).get(_url(endpoint, path), allow_redirects=False) as answer:
                if answer.status != 200:
                    text = (await _read(answer)).decode("utf-8", "replace").strip()
                    raise AgentError(text[:500] or f"the node agent at {endpoint} answered {answer.status}")
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AgentError(f"the node agent at {endpoint} does not answer: {_cause(error)}") from error

    async def open(self, endpoint: str, path: str) -> aiohttp.ClientWebSocketResponse:
        """Open a stream. Raises StreamRefused and AgentError."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT * 2):
                return await self._session(endpoint).ws_connect(
                    _url(endpoint, path), max_msg_size=MESSAGE_LIMIT, heartbeat=HEARTBEAT, compress=0
                )
        except aiohttp.WSServerHandshakeError as error:
            said = error.headers.get(MESSAGE_HEADER, "") if error.headers is not None else ""
            raise StreamRefused(error.status, said[:MESSAGE_HEADER_LIMIT]) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise AgentError(f"the node agent at {endpoint} does not answer: {_cause(error)}") from error

    def _session(self, endpoint: str) -> aiohttp.ClientSession:
        session = self._sessions.get(endpoint)
        if session is None:
            session = self._sessions[endpoint] = aiohttp.ClientSession(
                connector=self._connector(endpoint),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"accept-encoding": "identity"},
            )
        return session

    def _connector(self, endpoint: str) -> aiohttp.BaseConnector:
        if endpoint.startswith(_UNIX):
            return aiohttp.UnixConnector(endpoint.removeprefix(_UNIX), limit=0)
        if not endpoint.startswith("https://"):
            raise AgentError(f"the agent endpoint {endpoint[:200]!r} is neither unix:/path nor https://host:port")
        if self._tls is None:
            raise AgentError(f"the agent at {endpoint} asks for TLS, and this gateway has no client certificate")
        return Connector(ssl=self._tls, limit=0)


def machine_path(uid: str, rest: str) -> str:
    """Return the path of something of a machine on its agent."""
    return f"/v1/machines/{uid}/{rest}"


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > ANSWER_LIMIT:
            raise aiohttp.ClientPayloadError(f"the answer has more than {ANSWER_LIMIT} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _url(endpoint: str, path: str) -> URL:
    base = "http://agent" if endpoint.startswith(_UNIX) else endpoint.rstrip("/")
    return URL(f"{base}{path}", encoded=True)


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__
