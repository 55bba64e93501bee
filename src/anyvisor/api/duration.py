"""Durations as Go writes them (`1h30m`, `500ms`): whole nanoseconds, within 64 bits."""

import re
from typing import Final

MICROSECOND: Final = 1000
MILLISECOND: Final = 1000 * MICROSECOND
SECOND: Final = 1000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
MAX: Final = 2**63 - 1
MAX_TEXT: Final = 128

_UNITS: Final = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART: Final = re.compile(r"([0-9]+)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)|\.([0-9]+)(ns|us|µs|μs|ms|s|m|h)")


class DurationError(ValueError):
    """The text is no duration. `cause` says why; the message names the text and the accepted form."""

    def __init__(self, text: str, cause: str) -> None:
        shown = text if len(text) <= 64 else text[:61] + "..."
        super().__init__(f"{shown!r} is not a duration: {cause}; write numbers with units, as 300ms, 90s or 1h30m")
        self.text = text
        self.cause = cause


def parse_duration(text: str) -> int:
    """The nanoseconds of a duration; raises `DurationError`."""
    if len(text) > MAX_TEXT:
        raise DurationError(text, f"it is longer than {MAX_TEXT} characters")
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if body == "0":
        return 0
    if not body:
        raise DurationError(text, "it is empty")
    total = position = 0
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            raise DurationError(text, f"{body[position:]!r} is no number with a unit")
        whole, part, unit, only, only_unit = match.groups()
        scale = _UNITS[unit or only_unit]
        fraction = part or only or ""
        total += int(whole or 0) * scale + (int(fraction) * scale // 10 ** len(fraction) if fraction else 0)
        position = match.end()
    if total > MAX + (sign < 0):
        raise DurationError(text, "it is beyond 292 years")
    return sign * total


def duration_seconds(text: str) -> float:
    """The seconds of a duration, for timers; raises `DurationError`."""
    return parse_duration(text) / SECOND


def format_duration(nanoseconds: int) -> str:
    """The text that Go gives a duration: `1h30m0s`, `1.5s`, `2ms`."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < SECOND:
        unit = next(unit for unit in ("ms", "µs", "ns") if rest >= _UNITS[unit])
        return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, seconds = divmod(rest, MINUTE)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if hours or minutes else ""
    return f"{sign}{text}{_decimal(seconds, SECOND)}s"


def _decimal(value: int, scale: int) -> str:
    whole, part = divmod(value, scale)
    digits = str(part).zfill(len(str(scale)) - 1).rstrip("0") if part else ""
    return f"{whole}.{digits}" if digits else str(whole)
