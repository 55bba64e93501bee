"""A `kube.transport.Transport` into a server of the same process, bound to one identity.

Requests take the same way as those from a socket: authorization, admission and audit are not shortened.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from anyvisor.embedded.apiserver.identity import ApiRequest, ApiResponse, Identity
from anyvisor.kube.transport import Request

Handle = Callable[[ApiRequest], Awaitable[ApiResponse]]


class InProcessResponse:
    """The answer of an in-process request."""

    def __init__(self, response: ApiResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        if self._response.stream is None:
            return self._response.body
        return b"".join([chunk async for chunk in self._response.stream])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._response.stream is None:
            yield self._response.body
            return
        async for chunk in self._response.stream:
            yield chunk

    async def close(self) -> None:
        close = getattr(self._response.stream, "aclose", None)
        if close is not None:
            await close()


class InProcessTransport:
    """Sends requests to a handler as one user."""

    def __init__(self, handle: Handle, identity: Identity) -> None:
        self._handle = handle
        self._identity = identity.with_authenticated()

    async def send(self, request: Request) -> InProcessResponse:
        return InProcessResponse(await self._handle(ApiRequest(request, self._identity)))

    async def close(self) -> None:
        return
