"""HTTP/1.1 as Cloud Hypervisor speaks it, without I/O: requests out, responses in, everything from it capped.

Its server refuses chunked bodies and answers in order. A response of the HTTP layer itself (`Server: Firecracker API`)
means that the two ends no longer agree where a request begins: one oversized request draws many of them.
"""

# ruff: noqa: N818 - the names say what happened

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

MAX_REQUEST_BODY: Final = 51_200
"""Bytes; the limit of releases up to v53, which answer a larger one several times over."""
MAX_HEAD: Final = 8 * 1024
MAX_BODY: Final = 8 * 1024 * 1024
MAX_PATH: Final = 64
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_LENGTH: Final = re.compile(rb"\d{1,9}")


class ProtocolError(Exception):
    """The peer does not speak the protocol (any more); the connection cannot be used again."""


class RequestTooLarge(Exception):
    """The server would refuse the body."""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. `errors` is the chain of an error, outermost first; it may be empty."""

    status: int
    body: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the call did what was asked."""
        return 200 <= self.status < 300

    @property
    def errors(self) -> tuple[str, ...]:
        """The error chain of the body, whatever its shape."""
        if self.ok:
            return ()
        try:
            found: Any = json.loads(self.body)
        except (ValueError, RecursionError):
            return (self.body[:400].decode(errors="replace"),) if self.body else ()
        if isinstance(found, dict):
            found = [cast("dict[str, Any]", found).get("error", "")]
        items = cast("list[Any]", found) if isinstance(found, list) else [found]
        return tuple(str(item)[:400] for item in items[:32])

    def json(self) -> dict[str, Any]:
        """The body as an object; raises ProtocolError."""
        try:
            found: Any = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("the body is no JSON") from error
        if not isinstance(found, dict):
            raise ProtocolError("the body is no JSON object")
        return cast("dict[str, Any]", found)


def request(method: str, path: str, body: Any = None) -> bytes:
    """One whole request, to be sent in one piece. Raises RequestTooLarge."""
    content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
    if len(content) > MAX_REQUEST_BODY:
        raise RequestTooLarge(
            f"the request has {len(content)} bytes and {MAX_REQUEST_BODY} are allowed; "
            "take disks, network interfaces or queues away"
        )
    head = f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode("ascii") + b"\r\n" + content


class ResponseReader:
    """Turns received bytes into responses, in order."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[int, int] | None = None

    def feed(self, data: bytes) -> list[Response]:
        """The responses that are complete now. Raises ProtocolError, after which the reader is of no use."""
        self._buffer += data
        found: list[Response] = []
        while (response := self._next()) is not None:
            found.append(response)
        return found

    def _next(self) -> Response | None:
        if self._head is None:
            self._head = self._read_head()
            if self._head is None:
                return None
        status, length = self._head
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._head = None
        return Response(status, body)

    def _read_head(self) -> tuple[int, int] | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise ProtocolError("the head of an answer does not end")
            return None
        if end > MAX_HEAD:
            raise ProtocolError("the head of an answer is too long")
        lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        match = _STATUS.fullmatch(lines[0])
        if match is None:
            raise ProtocolError(f"this is no answer of HTTP: {lines[0][:80]!r}")
        return int(match[1]), _body_length(lines[1:])


def _body_length(lines: list[bytes]) -> int:
    length = 0
    for line in lines:
        name, _, value = line.partition(b":")
        match name.strip().lower(), value.strip():
            case b"server", b"Firecracker API":
                raise ProtocolError("the server refused the request before it read it")
            case b"transfer-encoding", _:
                raise ProtocolError("the answer is chunked")
            case b"content-length", value if _LENGTH.fullmatch(value) and int(value) <= MAX_BODY:
                length = int(value)
            case b"content-length", _:
                raise ProtocolError("the length of an answer cannot be used")
            case _:
                pass
    return length
