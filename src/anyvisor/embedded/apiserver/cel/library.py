"""The functions that rules may call: CEL's own, and Kubernetes' for strings, lists, regex, url, ip and quantity."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any, cast
from urllib.parse import parse_qs

from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.embedded.apiserver.cel.conversions import (
    to_bool,
    to_bytes,
    to_double,
    to_duration,
    to_int,
    to_string,
    to_timestamp,
    to_uint,
)
from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.networks import (
    contains_cidr,
    contains_ip,
    global_unicast,
    link_local_multicast,
    to_cidr,
    to_ip,
    to_url,
)
from anyvisor.embedded.apiserver.cel.strings import (
    change_ascii,
    char_at,
    find,
    find_all,
    index_of,
    join,
    last_index_of,
    matches,
    replace,
    split,
    string_contains,
    substring,
)
from anyvisor.embedded.apiserver.cel.values import (
    Optional,
    Quantity,
    TypeValue,
    as_items,
    as_text,
    checked,
    compare,
    equal,
    is_number,
    type_of,
)

Function = Callable[..., Any]


def size(value: Any) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(cast("str", value))
    raise CelError(f"no such overload: size({type_of(value)})")


def is_sorted(value: Any) -> bool:
    items = as_items(value)
    return all(compare("<=", items[at], items[at + 1]) for at in range(len(items) - 1))


def total(value: Any) -> Any:
    items = as_items(value)
    if any(not is_number(item) and not isinstance(item, timedelta) for item in items):
        raise CelError("no such overload: sum of something that is no number")
    return sum(items[1:], items[0]) if items else 0


def extreme(operator: str) -> Function:
    def pick(value: Any, *rest: Any) -> Any:
        items = as_items(value) if not rest else [value, *rest]
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
    for item in as_items(value):
        found.extend(cast("list[Any]", item) if isinstance(item, list) else [item])
    return found


def distinct(value: Any) -> list[Any]:
    found: list[Any] = []
    for item in as_items(value):
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def quantity(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    try:
        return Quantity(parse_quantity(as_text(value)).exact)
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
    "lowerAscii": lambda value: change_ascii(value, str.lower),
    "upperAscii": lambda value: change_ascii(value, str.upper),
    "trim": lambda value: as_text(value).strip(),
    "reverse": lambda value: as_text(value)[::-1],
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
    "isLinkLocalMulticast": link_local_multicast,
    "isLinkLocalUnicast": lambda value: to_ip(value).is_link_local,
    "isGlobalUnicast": global_unicast,
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
    "startsWith": lambda value, part: as_text(value).startswith(as_text(part)),
    "endsWith": lambda value, part: as_text(value).endswith(as_text(part)),
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
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
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
