"""QMP without I/O: bytes in, messages out. https://www.qemu.org/docs/master/interop/qmp-spec.html

The stream is one JSON object per line. Events may come anywhere, also before the greeting. Whatever breaks the form
ends the session: a VMM is as little to be trusted as the guest that may have taken it over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

MAX_LINE_BYTES: Final = 16 << 20
"""The largest reply seen (the schema) has some hundred kilobytes."""
MAX_TEXT: Final = 4096
"""Characters of an error or version text that are kept."""

Json = dict[str, Any]


class ProtocolError(Exception):
    """The other side does not speak QMP."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """QEMU's first words."""

    version: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The value of a command."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """A command that QEMU refused."""

    number: int
    kind: str
    description: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in QEMU or in the guest."""

    name: str
    data: Json


Message = Greeting | Reply | Failure | Event


class QmpCore:
    """One session: numbers the commands, cuts the stream into messages."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._last = 0
        self._max = max_line_bytes

    def command(self, name: str, arguments: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        """The bytes of a command, and the number that its outcome will carry."""
        self._last += 1
        request: Json = {"execute": name, "id": self._last}
        if arguments:
            request["arguments"] = dict(arguments)
        return self._last, msgspec.json.encode(request) + b"\n"

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are whole now. Raises ProtocolError."""
        self._buffer += data
        messages: list[Message] = []
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[:end]).strip()
            del self._buffer[: end + 1]
            self._searched = 0
            if len(line) > self._max:
                raise ProtocolError(f"a line of {len(line)} bytes; {self._max} are allowed")
            if line:
                messages.append(_parse(line))
        self._searched = len(self._buffer)
        if self._searched > self._max:
            raise ProtocolError(f"a line of more than {self._max} bytes")
        return messages


def _parse(line: bytes) -> Message:
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(f"no JSON: {line[:80]!r}") from error
    if not isinstance(raw, dict):
        raise ProtocolError(f"no object: {line[:80]!r}")
    message = cast(Json, raw)
    if isinstance(name := message.get("event"), str):
        data = message.get("data")
        return Event(name, cast(Json, data) if isinstance(data, dict) else {})
    if "QMP" in message:
        return Greeting(_version(message))
    number = message.get("id")
    if "return" in message:
        return Reply(number if isinstance(number, int) else 0, message["return"])
    if isinstance(error := message.get("error"), dict):
        details = cast(Json, error)
        return Failure(
            number if isinstance(number, int) else 0,
            str(details.get("class", ""))[:MAX_TEXT],
            str(details.get("desc", ""))[:MAX_TEXT],
        )
    raise ProtocolError(f"neither greeting, event nor reply: {line[:80]!r}")


def _version(message: Json) -> str:
    try:
        numbers = message["QMP"]["version"]["qemu"]
        return ".".join(str(int(numbers[part])) for part in ("major", "minor", "micro"))
    except (KeyError, TypeError, ValueError):
        raise ProtocolError("a greeting without a version") from None
