"""The HTTPS transport: requests to an API server elsewhere, with one identity."""

import base64
import os
import ssl
import time
from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from anyvisor.kube.config import ClientConfig
from anyvisor.kube.connector import Connector
from anyvisor.kube.errors import Unreachable
from anyvisor.kube.transport import Request, Response

TOKEN_LIFE = 60.0
"""Seconds for which a token read from a file is used; the kubelet rotates it long before it expires."""
CONNECT_TIMEOUT = 10.0
KEEPALIVE = 60.0
CHUNK = 256 * 1024
USER_AGENT = "anyvisor"


class HttpTransport:
    """A pool of connections to `config.server`; use within one event loop, close at the end."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._token = config.token
        self._token_read = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        """Send one request; a 401 with a token that was rotated meanwhile is tried once more."""
        response = await self._send(request)
        if response.status == 401 and self._config.token_file is not None:
            before = self._token
            self._token_read = float("-inf")
            if self._bearer() != before:
                await response.close()
                return await self._send(request)
        return response

    async def close(self) -> None:
        """Close all connections, watches included."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, request: Request) -> "_HttpResponse":
        url = f"{self._config.server}{request.path}" + (f"?{request.query}" if request.query else "")
        headers = {**request.headers, **self._authorization()}
        try:
            answer = await self._open().request(
                request.method,
                URL(url, encoded=True),
                data=request.body or None,
                headers=headers,
                allow_redirects=False,
                server_hostname=self._config.server_name,
                proxy=self._config.proxy,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(f"{self._config.server} does not answer: {error}") from error
        return _HttpResponse(answer)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = Connector(
                ssl=tls_context(self._config),
                limit=0,
                keepalive_timeout=KEEPALIVE,
                ttl_dns_cache=30,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
                headers={"user-agent": USER_AGENT, "accept-encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("content-type",),
                read_bufsize=CHUNK,
            )
        return self._session

    def _authorization(self) -> dict[str, str]:
        token = self._bearer()
        if token:
            return {"authorization": f"Bearer {token}"}
        if self._config.username is not None:
            pair = f"{self._config.username}:{self._config.password or ''}"
            return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return {}

    def _bearer(self) -> str | None:
        path = self._config.token_file
        if path is not None and time.monotonic() - self._token_read > TOKEN_LIFE:
            try:
                self._token = path.read_text().strip()
            except OSError as error:
                if self._token is None:
                    raise Unreachable(f"the token {path} cannot be read: {error.strerror}") from error
            self._token_read = time.monotonic()
        return self._token


class _HttpResponse:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in answer.headers.items()}

    async def read(self) -> bytes:
        try:
            return await self._answer.read()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the connection broke while an answer was read: {error}") from error
        finally:
            self._answer.release()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the connection broke while a stream was read: {error}") from error

    async def close(self) -> None:
        self._answer.close()


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """Build the TLS side of `config`: its roots, and the client certificate if there is one."""
    context = ssl.create_default_context(cadata=config.ca.decode() if config.ca else None)
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate and config.key:
        _load_pair(context, config.certificate, config.key)
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Hand the pair to OpenSSL through memory: `ssl` reads files only, and a key belongs in none."""
    fd = os.memfd_create("client-pair", os.MFD_CLOEXEC)
    try:
        os.write(fd, certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
