"""HTTP/1.1 as a command needs it of the instance's own server: one request after the other on one connection.

Python's `http.client` reads headers by its parser for e-mail, whose import takes longer than a whole short call.
"""

import socket
import ssl
from collections.abc import Mapping
from typing import Final, Protocol

_LINE: Final = 64 * 1024
_HEADERS: Final = 200
_PIECE: Final = 64 * 1024


class ProtocolError(OSError):
    """The other side does not speak HTTP, or went away in the middle of an answer."""


class Stream(Protocol):
    """What an answer is read from, as a socket's file."""

    def readline(self, size: int, /) -> bytes: ...
    def read1(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


class Response:
    """One answer; its body is read once, as it comes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        version, _, rest = _line(stream).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ProtocolError("the answer is not HTTP")
        self.status = int(rest[:3])
        self.headers = _headers(stream)
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length", "")
        self._left = int(length) if length.isdecimal() else None
        """Bytes of the body, or of the present chunk, that are still to come; None = until the connection ends."""
        if self._chunked or self.status in (204, 304):
            self._left = 0
        self._ended = not self._chunked and self._left == 0

    def piece(self, most: int = _PIECE) -> bytes:
        """What of the body is there, at least a byte; empty at its end."""
        if self._ended or (self._chunked and self._left == 0 and not self._next_chunk()):
            return b""
        data = self._stream.read1(most if self._left is None else min(most, self._left))
        if not data and self._left is not None:
            raise ProtocolError("the answer ended too early")
        if self._left is not None:
            self._left -= len(data)
        if self._left == 0 and self._chunked:
            _line(self._stream)  # what ends a chunk
        self._ended = not data or (self._left == 0 and not self._chunked)
        return data

    def read(self) -> bytes:
        """All that is left of the body."""
        return b"".join(iter(self.piece, b""))

    def _next_chunk(self) -> bool:
        size = _line(self._stream).partition(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError as error:
            raise ProtocolError("the answer is not HTTP") from error
        if self._left == 0:
            _headers(self._stream)
            self._ended = True
        return not self._ended


def _line(stream: Stream) -> bytes:
    line = stream.readline(_LINE)
    if not line.endswith(b"\n"):
        raise ProtocolError("the answer ended too early")
    return line.rstrip(b"\r\n")


def _headers(stream: Stream) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(_HEADERS):
        line = _line(stream)
        if not line:
            return found
        name, _, value = line.partition(b":")
        found[name.decode("latin-1").lower()] = value.decode("latin-1").strip()
    raise ProtocolError("the answer has too many headers")


class Connection:
    """To one server at an IPv4 address, made anew when the last answer ended it."""

    def __init__(self, host: str, port: int, seconds: float, context: ssl.SSLContext) -> None:
        self._host, self._port, self._seconds, self._context = host, port, seconds, context
        self._socket: ssl.SSLSocket | None = None
        self._stream: Stream | None = None
        self._last: Response | None = None

    def ask(self, method: str, target: str, body: str | None, headers: Mapping[str, str]) -> Response:
        """Send a request; its answer, whose body must be read before the next.

        Raises:
            OSError: no connection, or it broke.
        """
        if self._last is not None and self._last.headers.get("connection", "").lower() == "close":
            self.close()
        connection, stream = self._connected()
        content = (body or "").encode()
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}:{self._port}", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(content)}")
        connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1") + content)
        self._last = Response(stream)
        return self._last

    def wait_without_end(self) -> None:
        """Let an answer take as long as it likes."""
        self._connected()[0].settimeout(None)

    def _connected(self) -> tuple[ssl.SSLSocket, Stream]:
        if self._socket is None or self._stream is None:
            # An address, and as bytes: names would load the tables of international ones.
            plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                plain.settimeout(self._seconds)
                plain.connect((self._host, self._port))
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = self._context.wrap_socket(plain, server_hostname=self._host.encode())
            except BaseException:
                plain.close()
                raise
            self._stream = self._socket.makefile("rb")
        return self._socket, self._stream

    def close(self) -> None:
        """End the connection; idempotent."""
        if self._stream is not None:
            self._stream.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = self._last = None
