"""What carries a request to an API server: HTTPS (`kube.http`) or an in-process call of the embedded server.

Both carry the same requests, so a component cannot tell which home it runs in.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `path` is already percent-encoded and `query` is the raw query string."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names in lower case."""
    body: bytes = b""


class Response(Protocol):
    """An answer whose body is read whole, or chunk by chunk as it comes (a watch)."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    async def read(self) -> bytes:
        """Return the rest of the body and release the connection."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None:
        """Release the connection; also ends a watch. May be called twice."""
        ...


class Transport(Protocol):
    """A connection to one API server with one identity."""

    async def send(self, request: Request) -> Response:
        """Send `request`; returns once the status and headers are there.

        Raises `kube.errors.Unreachable` when no answer comes. An error status is an answer.
        """
        ...

    async def close(self) -> None: ...
