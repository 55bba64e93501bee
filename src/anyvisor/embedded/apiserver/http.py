"""The HTTP shell: sockets, TLS, authentication by certificate or token, and bytes in and out. No rules of the API."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from anyvisor.embedded.apiserver.codec import MAX_BODY
from anyvisor.embedded.apiserver.config import PAGES, Pages
from anyvisor.embedded.apiserver.identity import ANONYMOUS, ApiRequest, ApiResponse, Identity
from anyvisor.embedded.apiserver.impersonation import SEPARATOR
from anyvisor.embedded.apiserver.respond import error_response
from anyvisor.embedded.apiserver.status import StatusError, too_large
from anyvisor.kube.transport import Request

GZIP_BYTES = 128 << 10
HEADER_BYTES = 32 << 10
KEEPALIVE_SECONDS = 120.0
HEADER_SECONDS = 30.0
LINGER_SECONDS = 2.0
"""How long what a refused client still sends is read, so that it sees the answer."""
WRITE_SECONDS = 60.0
"""How long a client may take none of what is sent to it."""
WRITE_BYTES = 256 << 10
MAX_GROUPS = 64
_SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that is gone without a word is noticed within a minute, also where nothing is sent (idle watches)."""

Handle = Callable[[ApiRequest], Awaitable[ApiResponse]]
Upgrade = Callable[[web.Request, Identity], Awaitable[web.StreamResponse | None]]
TokenLookup = Callable[[str], Identity | None]


def certificate_identity(certificate: Mapping[str, Any] | None) -> Identity | None:
    """Return the user of a verified client certificate: CN is the name, each O a group."""
    if not certificate:
        return None
    user = ""
    groups: list[str] = []
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                user = value
            elif name == "organizationName":
                groups.append(value)
    return Identity(user, tuple(groups[:MAX_GROUPS])).with_authenticated() if user else None


class _Server(web.Server):
    """Ends connections whose first request does not arrive in time (slow clients that hold sockets open)."""

    def __init__(self, handler: Callable[..., Any], **options: Any) -> None:
        super().__init__(handler, **options)
        self._waiting: dict[Any, asyncio.TimerHandle] = {}

    def __call__(self) -> Any:
        protocol = super().__call__()
        timer = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._give_up, protocol)
        self._waiting[protocol] = timer
        return protocol

    def _give_up(self, protocol: Any) -> None:
        if self._waiting.pop(protocol, None) is not None and protocol.transport is not None:
            protocol.force_close()

    def heard(self, protocol: Any) -> None:
        """Note that a request of this connection arrived."""
        timer = self._waiting.pop(protocol, None)
        if timer is not None:
            timer.cancel()


class Shell:
    """Serves a handler on sockets."""

    def __init__(self, handle: Handle, upgrade: Upgrade, lookup: TokenLookup, pages: Pages | None = None) -> None:
        self._handle = handle
        self._upgrade = upgrade
        self._lookup = lookup
        self._pages = pages
        self._runner: web.ServerRunner | None = None
        self._sites: list[web.SockSite] = []
        self._server: _Server | None = None

    async def start(self) -> None:
        """Make the shell ready to listen."""
        server = _Server(
            self._serve,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            auto_decompress=True,
        )
        self._server = server
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()

    async def listen(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serve on a bound socket."""
        assert self._runner is not None
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            for option in _SOCKET_OPTIONS:
                sock.setsockopt(*option)  # accepted connections inherit them
        site = web.SockSite(self._runner, sock, ssl_context=tls, backlog=1024)
        await site.start()
        self._sites.append(site)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _identity(self, request: web.BaseRequest) -> Identity:
        transport = request.transport
        found = certificate_identity(transport.get_extra_info("peercert")) if transport is not None else None
        if found is not None:
            return found
        header = request.headers.get("Authorization", "")
        if header[:7].lower() == "bearer ":
            return self._lookup(header[7:].strip()) or ANONYMOUS
        token = self._pages.token(request) if self._pages is not None else ""
        return (self._lookup(token) if token else None) or ANONYMOUS

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._server is not None:
            self._server.heard(request.protocol)
        if self._pages is not None and request.path.startswith(PAGES):
            return await self._pages.serve(request)
        identity = self._identity(request)
        if "upgrade" in request.headers.get("Connection", "").lower():
            answer = await self._upgrade(request, identity)  # pyright: ignore[reportArgumentType]
            if answer is not None:
                return answer
        try:
            body = b"" if identity is ANONYMOUS else await self._body(request)
        except StatusError as error:
            return await _plain(error_response(error), request)
        response = await self._handle(ApiRequest(_request(request, body), identity))
        if response.stream is None:
            return await _send(await _plain(response, request), request)
        return await self._stream(request, response)

    async def _body(self, request: web.BaseRequest) -> bytes:
        if not request.body_exists:
            return b""
        if (request.content_length or 0) > MAX_BODY:
            raise too_large("the request body", MAX_BODY)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(HEADER_SECONDS):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MAX_BODY:
                        raise too_large("the request body", MAX_BODY)
                    parts.append(chunk)
        except TimeoutError as error:
            raise StatusError(408, "Timeout", "the request body did not arrive in time") from error
        except HttpProcessingError as error:
            raise StatusError(400, "BadRequest", f"cannot read the request body: {error.message}") from error
        return b"".join(parts)

    async def _stream(self, request: web.BaseRequest, response: ApiResponse) -> web.StreamResponse:
        assert response.stream is not None
        answer = web.StreamResponse(status=response.status, headers=response.headers)
        answer.enable_chunked_encoding()
        try:
            await answer.prepare(request)
            async for chunk in response.stream:
                await _write(answer, chunk)
            await answer.write_eof()
        except (ConnectionResetError, ConnectionAbortedError):
            pass
        except TimeoutError:
            _cut(request)
        finally:
            close = getattr(response.stream, "aclose", None)
            if close is not None:
                with suppress(RuntimeError):
                    await close()
        return answer


async def _send(answer: web.Response, request: web.BaseRequest) -> web.StreamResponse:
    """Send a whole answer; large ones in parts, so that a client which reads nothing is noticed."""
    body = answer.body
    if not isinstance(body, bytes) or len(body) <= WRITE_BYTES:
        return answer
    stream = web.StreamResponse(status=answer.status, headers=answer.headers)
    stream.content_length = len(body)
    try:
        await stream.prepare(request)
        if request.method != "HEAD":
            view = memoryview(body)
            for start in range(0, len(body), WRITE_BYTES):
                await _write(stream, view[start : start + WRITE_BYTES])
        await stream.write_eof()
    except (ConnectionResetError, ConnectionAbortedError):
        pass
    except TimeoutError:
        _cut(request)
    return stream


async def _write(answer: web.StreamResponse, chunk: bytes | memoryview) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await answer.write(chunk)


def _cut(request: web.BaseRequest) -> None:
    """End a connection whose client does not read: what waits for it would stay in memory."""
    if request.transport is not None:
        request.transport.abort()


def lower_headers(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers with lower-case names; the values of a repeated one are joined by SEPARATOR."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}{SEPARATOR}{value}" if lower in headers else value
    return headers


def _request(request: web.BaseRequest, body: bytes) -> Request:
    path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
    return Request(request.method, path, query, lower_headers(request), body)


async def _plain(response: ApiResponse, request: web.BaseRequest) -> web.Response:
    body = response.body
    headers = response.headers
    if len(body) > GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers = {**headers, "content-encoding": "gzip", "vary": "Accept-Encoding"}
    return web.Response(body=body, status=response.status, headers=headers)
