"""CEL's conversions between types."""

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.values import as_text, checked, type_of

_DURATION = re.compile(r"([-+]?)((?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+|0)")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def to_int(value: Any) -> int:
    if isinstance(value, bool):
        raise CelError("no such overload: int(bool)")
    if isinstance(value, datetime):
        return int(value.timestamp())
    try:
        return checked(int(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise CelError(f"cannot convert {type_of(value)} to int") from error


def to_uint(value: Any) -> int:
    number = to_int(value)
    if number < 0:
        raise CelError("unsigned integer overflow")
    return number


def to_double(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise CelError(f"cannot convert {type_of(value)} to double") from error


def to_string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode(errors="replace")
        case timedelta():
            return f"{value.total_seconds():g}s"
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case str() | int() | float():
            return str(value)
        case _:
            if hasattr(value, "geturl"):
                return str(value.geturl())
            if isinstance(
                value, ipaddress.IPv4Address | ipaddress.IPv6Address | ipaddress.IPv4Network | ipaddress.IPv6Network
            ):
                return str(value)
            raise CelError(f"cannot convert {type_of(value)} to string")


def to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}
    if isinstance(value, str) and value.lower() in known:
        return known[value.lower()]
    raise CelError(f"cannot convert {type_of(value)} to bool")


def to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else as_text(value).encode()


def to_timestamp(value: Any) -> datetime:
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(as_text(value))
    except ValueError as error:
        raise CelError(f"cannot read the timestamp {value!r}") from error


def to_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(as_text(value))
    if match is None:
        raise CelError(f"cannot read the duration {value!r}")
    total = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(match[2]))
    return timedelta(seconds=-total if match[1] == "-" else total)
