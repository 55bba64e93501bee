"""The event monitor's stream, without I/O: pretty-printed JSON objects with blank lines between them.

The VMM writes without waiting, so a stream that nobody read may begin or break off anywhere. An object begins with a
line `{` and ends with a line `}`; what lies outside of these, or is no event, is skipped and counted, and whoever reads
must then ask the VMM for its state.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

MAX_EVENT: Final = 16 * 1024
MAX_WORD: Final = 256


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `seconds` counts from the start of the VMM's process: it is no wall clock."""

    source: str
    name: str
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0


class EventReader:
    """Turns received bytes into events. `lost` counts what could not be read."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._object: bytearray | None = None
        self._between = True
        self.lost = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete now."""
        found: list[Event] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._line += piece
            line = bytes(self._line)
            self._line.clear()
            event = self._take(line)
            if event is not None:
                found.append(event)
        self._line += rest
        if len(self._line) > MAX_EVENT:
            self._line.clear()
            self._drop()
        return found

    def _take(self, line: bytes) -> Event | None:
        if line == b"{":
            if self._object is not None:
                self.lost += 1
            self._object = bytearray(line)
            self._between = True
            return None
        if self._object is None:
            if line and self._between:
                self._drop()
            return None
        self._object += line
        if len(self._object) > MAX_EVENT:
            self._drop()
            return None
        if line != b"}":
            return None
        event = _event(bytes(self._object))
        self._object = None
        if event is None:
            self.lost += 1
        return event

    def _drop(self) -> None:
        """Skip to the next object; counted once."""
        self.lost += 1
        self._object = None
        self._between = False


def _event(text: bytes) -> Event | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    fields = cast("dict[str, Any]", found)
    source, name = fields.get("source"), fields.get("event")
    if not isinstance(source, str) or not isinstance(name, str):
        return None
    return Event(source[:MAX_WORD], name[:MAX_WORD], _words(fields.get("properties")), _seconds(fields))


def _words(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    pairs = cast("dict[str, Any]", value)
    return {key[:MAX_WORD]: item[:MAX_WORD] for key, item in pairs.items() if isinstance(item, str)}


def _seconds(fields: Mapping[str, Any]) -> float:
    stamp = fields.get("timestamp")
    if not isinstance(stamp, dict):
        return 0.0
    parts = cast("dict[str, Any]", stamp)
    seconds, nanos = parts.get("secs"), parts.get("nanos")
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        return 0.0
    return seconds + nanos / 1e9
