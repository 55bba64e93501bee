"""The functions that rules may call: CEL's own, and Kubernetes' for strings, lists, regex, url, ip and quantity."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

import jsonschema_rs

from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.values import (
    MAX_SIZE,
    Optional,
    Quantity,
    TypeValue,
    checked,
    compare,
    equal,
    is_number,
    type_of,
)

Function = Callable[..., Any]
_DURATION = re.compile(r"([-+]?)((?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+|0)")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError(f"no such overload: expected a string, not {type_of(value)}")
    return value


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise CelError(f"no such overload: expected a list, not {type_of(value)}")
    return cast("list[Any]", value)


def size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(cast("str", value))
    raise CelError(f"no such overload: size({type_of(value)})")


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
    return value if isinstance(value, bytes) else _text(value).encode()


def to_timestamp(value: Any) -> datetime:
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    except ValueError as error:
        raise CelError(f"cannot read the timestamp {value!r}") from error


def to_duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(_text(value))
    if match is None:
        raise CelError(f"cannot read the duration {value!r}")
    total = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(match[2]))
    return timedelta(seconds=-total if match[1] == "-" else total)


# -- regular expressions: tests by an engine of linear time, searches by Python's -------------------------------


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> Callable[[Any], bool]:
    try:
        return jsonschema_rs.validator_for({"pattern": pattern}).is_valid
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled") from error


def matches(value: Any, pattern: Any) -> bool:
    return _pattern(_text(pattern))(_text(value))


def _compiled(pattern: Any) -> re.Pattern[str]:
    try:
        return re.compile(_text(pattern))
    except re.error as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled: {error}") from error


def find(value: Any, pattern: Any) -> str:
    match = _compiled(pattern).search(_text(value))
    return match[0] if match else ""


def find_all(value: Any, pattern: Any, limit: int = -1) -> list[Any]:
    found = [match[0] for match in _compiled(pattern).finditer(_text(value))]
    return found if limit < 0 else found[:limit]


# -- strings ----------------------------------------------------------------------------------------------------


def char_at(value: Any, at: int) -> str:
    text = _text(value)
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def substring(value: Any, start: int, end: int | None = None) -> str:
    text = _text(value)
    last = len(text) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise CelError(f"index out of range: {start}, {last}")
    return text[start:last]


def index_of(value: Any, part: Any, start: int = 0) -> int:
    if isinstance(value, str):
        return value.find(_text(part), start)
    for at, item in enumerate(_items(value)):
        if equal(item, part):
            return at
    return -1


def last_index_of(value: Any, part: Any) -> int:
    if isinstance(value, str):
        return value.rfind(_text(part))
    items = _items(value)
    for at in range(len(items) - 1, -1, -1):
        if equal(items[at], part):
            return at
    return -1


def split(value: Any, separator: Any, limit: int = -1) -> list[Any]:
    text = _text(value)
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return list(text.split(_text(separator), limit - 1 if limit > 0 else -1))


def replace(value: Any, old: Any, new: Any, limit: int = -1) -> str:
    text = _text(value).replace(_text(old), _text(new), limit)
    if len(text) > MAX_SIZE:
        raise CelError("the result is too long")
    return text


def join(value: Any, separator: str = "") -> str:
    return separator.join(_text(item) for item in _items(value))


def string_contains(value: Any, part: Any) -> bool:
    if isinstance(value, Optional):
        raise CelError("no such overload: optional.contains")
    return _text(part) in _text(value)


def _ascii(value: Any, change: Callable[[str], str]) -> str:
    return "".join(change(char) if char.isascii() else char for char in _text(value))


# -- lists ------------------------------------------------------------------------------------------------------


def is_sorted(value: Any) -> bool:
    items = _items(value)
    return all(compare("<=", items[at], items[at + 1]) for at in range(len(items) - 1))


def total(value: Any) -> Any:
    items = _items(value)
    if any(not is_number(item) and not isinstance(item, timedelta) for item in items):
        raise CelError("no such overload: sum of something that is no number")
    return sum(items[1:], items[0]) if items else 0


def extreme(operator: str) -> Function:
    def pick(value: Any, *rest: Any) -> Any:
        items = _items(value) if not rest else [value, *rest]
        if not items:
            raise CelError("min or max called on an empty list")
        best = items[0]
        for item in items[1:]:
            if compare(operator, item, best):
                best = item
        return best

    return pick


def flatten(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in _items(value):
        found.extend(cast("list[Any]", item) if isinstance(item, list) else [item])
    return found


def distinct(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in _items(value):
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


# -- quantities, addresses, urls --------------------------------------------------------------------------------


def quantity(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    try:
        return Quantity(parse_quantity(_text(value)).exact)
    except QuantityError as error:
        raise CelError(f"cannot read the quantity {value!r}") from error


def _is(parse: Function) -> Function:
    def test(value: Any) -> bool:
        try:
            parse(value)
        except CelError:
            return False
        return True

    return test


def _compared(a: Any, b: Any) -> int:
    one, two = quantity(a).amount, quantity(b).amount
    return (one > two) - (one < two)


def _other(value: Any) -> Fraction:
    return Fraction(value) if isinstance(value, int) else quantity(value).amount


def _as_integer(value: Any) -> int:
    amount = quantity(value).amount
    if amount.denominator != 1:
        raise CelError("the quantity is no integer")
    return checked(int(amount))


def to_ip(value: Any) -> Any:
    try:
        return ipaddress.ip_address(_text(value)) if isinstance(value, str) else value
    except ValueError as error:
        raise CelError(f"cannot read the IP address {value!r}") from error


def to_cidr(value: Any) -> Any:
    try:
        if isinstance(value, str) and "/" not in value:
            raise CelError(f"cannot read the CIDR {value!r}")
        return ipaddress.ip_interface(_text(value)).network if isinstance(value, str) else value
    except ValueError as error:
        raise CelError(f"cannot read the CIDR {value!r}") from error


def _contains_ip(network: Any, address: Any) -> bool:
    return to_ip(address) in to_cidr(network)


def _contains_cidr(network: Any, other: Any) -> bool:
    outer, inner = to_cidr(network), to_cidr(other)
    return outer.version == inner.version and inner.subnet_of(outer)


def to_url(value: Any) -> SplitResult:
    if isinstance(value, SplitResult):
        return value
    text = _text(value)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise CelError(f"cannot read the URL {text!r}") from error
    if not (parts.scheme or text.startswith("/")) or " " in text:
        raise CelError(f"cannot read the URL {text!r}")
    return parts


# -- optionals --------------------------------------------------------------------------------------------------


def _optional(value: Any) -> Optional:
    if not isinstance(value, Optional):
        raise CelError(f"no such overload: expected an optional, not {type_of(value)}")
    return value


def _value(value: Any) -> Any:
    found = _optional(value)
    if not found.present:
        raise CelError("optional.none() dereference")
    return found.value


def _or_value(value: Any, default: Any) -> Any:
    found = _optional(value)
    return found.value if found.present else default


def _or(value: Any, other: Any) -> Any:
    return value if _optional(value).present else other


def _link_local_multicast(value: Any) -> bool:
    address = to_ip(value)
    return address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")


def _global_unicast(value: Any) -> bool:
    address = to_ip(value)
    return not (address.is_multicast or address.is_loopback or address.is_unspecified or address.is_link_local)


def _clock(part: str, seconds: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, timedelta):
            return int(value.total_seconds() // seconds)
        return int(getattr(to_timestamp(value), part))

    return read


_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "size": size,
    "int": to_int,
    "uint": to_uint,
    "double": to_double,
    "string": to_string,
    "bool": to_bool,
    "bytes": to_bytes,
    "timestamp": to_timestamp,
    "duration": to_duration,
    "dyn": lambda value: value,
    "type": lambda value: TypeValue(type_of(value)),
    "quantity": quantity,
    "isQuantity": _is(quantity),
    "ip": to_ip,
    "isIP": _is(to_ip),
    "cidr": to_cidr,
    "isCIDR": _is(to_cidr),
    "url": to_url,
    "isURL": _is(to_url),
}
FUNCTIONS: Mapping[str, Function] = {**_FUNCTIONS, "matches": matches}
"""Functions by name."""

_ON_ONE: Mapping[str, Callable[[Any], Any]] = {
    "size": size,
    "lowerAscii": lambda value: _ascii(value, str.lower),
    "upperAscii": lambda value: _ascii(value, str.upper),
    "trim": lambda value: _text(value).strip(),
    "reverse": lambda value: _text(value)[::-1],
    "isSorted": is_sorted,
    "sum": total,
    "flatten": flatten,
    "distinct": distinct,
    "asInteger": _as_integer,
    "isInteger": _is(_as_integer),
    "asApproximateFloat": lambda value: float(quantity(value).amount),
    "sign": lambda value: _compared(value, Quantity(Fraction(0))),
    "family": lambda value: to_ip(value).version,
    "isUnspecified": lambda value: to_ip(value).is_unspecified,
    "isLoopback": lambda value: to_ip(value).is_loopback,
    "isLinkLocalMulticast": _link_local_multicast,
    "isLinkLocalUnicast": lambda value: to_ip(value).is_link_local,
    "isGlobalUnicast": _global_unicast,
    "prefixLength": lambda value: to_cidr(value).prefixlen,
    "masked": to_cidr,
    "ip": lambda value: to_cidr(value).network_address,
    "getScheme": lambda value: to_url(value).scheme,
    "getHost": lambda value: to_url(value).netloc.rpartition("@")[2],
    "getHostname": lambda value: to_url(value).hostname or "",
    "getPort": lambda value: str(to_url(value).port or ""),
    "getEscapedPath": lambda value: to_url(value).path,
    "getQuery": lambda value: parse_qs(to_url(value).query, keep_blank_values=True),
    "getFullYear": lambda value: to_timestamp(value).year,
    "getMonth": lambda value: to_timestamp(value).month - 1,
    "getDayOfMonth": lambda value: to_timestamp(value).day - 1,
    "getDate": lambda value: to_timestamp(value).day,
    "getHours": _clock("hour", 3600),
    "getMinutes": _clock("minute", 60),
    "getSeconds": _clock("second", 1),
    "hasValue": lambda value: _optional(value).present,
    "value": _value,
}
_ON_TWO: Mapping[str, Callable[[Any, Any], Any]] = {
    "startsWith": lambda value, part: _text(value).startswith(_text(part)),
    "endsWith": lambda value, part: _text(value).endswith(_text(part)),
    "contains": string_contains,
    "matches": matches,
    "find": find,
    "charAt": char_at,
    "lastIndexOf": last_index_of,
    "isGreaterThan": lambda a, b: _compared(a, b) > 0,
    "isLessThan": lambda a, b: _compared(a, b) < 0,
    "compareTo": _compared,
    "add": lambda a, b: Quantity(quantity(a).amount + _other(b)),
    "sub": lambda a, b: Quantity(quantity(a).amount - _other(b)),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "orValue": _or_value,
    "or": _or,
}
METHODS: Mapping[str, Function] = {
    **_ON_ONE,
    **_ON_TWO,
    "findAll": find_all,
    "indexOf": index_of,
    "replace": replace,
    "split": split,
    "substring": substring,
    "join": join,
    "min": extreme("<"),
    "max": extreme(">"),
}
"""Methods by name; the first argument is the target."""
