"""Values that JSON does not have, and the operators on all values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any, cast

from anyvisor.embedded.apiserver.cel.errors import CelError

MAX_SIZE = 1 << 20
"""Length of a string or list that an expression may build."""
_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be absent."""

    value: Any = None
    present: bool = False


@dataclass(frozen=True, slots=True)
class Quantity:
    """A Kubernetes quantity, compared by its amount."""

    amount: Fraction


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The answer of `type()`."""

    name: str


def type_of(value: Any) -> str:
    """Return CEL's name of a value's type."""
    match value:
        case None:
            return "null_type"
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list():
            return "list"
        case dict():
            return "map"
        case datetime():
            return "google.protobuf.Timestamp"
        case timedelta():
            return "google.protobuf.Duration"
        case TypeValue():
            return "type"
        case _:
            return type(cast("object", value)).__name__.lower()


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(a: Any, b: Any) -> bool:
    """Compare as CEL does: numbers by value, everything else only with its own type."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a == b
    if isinstance(a, list) and isinstance(b, list):
        left, right = cast("list[Any]", a), cast("list[Any]", b)
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(a, dict) and isinstance(b, dict):
        one, two = cast("dict[Any, Any]", a), cast("dict[Any, Any]", b)
        return one.keys() == two.keys() and all(equal(value, two[key]) for key, value in one.items())
    return bool(a == b)


def checked(value: int) -> int:
    """Return the number if it fits 64 bits."""
    if not _LOW <= value <= _HIGH:
        raise CelError("integer overflow")
    return value


def contains(container: Any, value: Any) -> bool:
    """The `in` operator."""
    if isinstance(container, dict):
        return not isinstance(value, list | dict) and value in cast("dict[Any, Any]", container)
    if isinstance(container, list):
        return any(equal(item, value) for item in cast("list[Any]", container))
    raise _no_operator("in", value, container)


def _no_operator(operator: str, a: Any, b: Any) -> CelError:
    return CelError(f"no such overload: {type_of(a)} {operator} {type_of(b)}")


def add(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int) and is_number(a) and is_number(b):
        return checked(a + b)
    if isinstance(a, float) and isinstance(b, float):
        return a + b
    for kind in (str, bytes, list):
        if isinstance(a, kind) and isinstance(b, kind):
            left, right = cast("list[Any]", a), cast("list[Any]", b)
            if len(left) + len(right) > MAX_SIZE:
                raise CelError("the result is too long")
            return left + right
    if isinstance(b, timedelta) and isinstance(a, datetime | timedelta):
        return a + b
    raise _no_operator("+", a, b)


def arithmetic(operator: str, a: Any, b: Any) -> Any:
    """The operators - * / % on numbers (and - on times)."""
    if operator == "-" and isinstance(b, datetime | timedelta) and isinstance(a, datetime | timedelta):
        return cast("Any", a) - b
    if isinstance(a, float) and isinstance(b, float) and operator != "%":
        return _doubles(operator, a, b)
    if is_number(a) and is_number(b) and isinstance(a, int) and isinstance(b, int):
        return _integers(operator, a, b)
    raise _no_operator(operator, a, b)


def _doubles(operator: str, a: float, b: float) -> float:
    if operator == "-":
        return a - b
    if operator == "*":
        return a * b
    return a / b if b else math.copysign(math.inf, a) if a else math.nan


def _integers(operator: str, a: int, b: int) -> int:
    if operator == "-":
        return checked(a - b)
    if operator == "*":
        return checked(a * b)
    if b == 0:
        raise CelError("division by zero" if operator == "/" else "modulus by zero")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return checked(quotient) if operator == "/" else a - quotient * b


_COMPARABLE: Sequence[type] = (str, bytes, datetime, timedelta)


def compare(operator: str, a: Any, b: Any) -> bool:
    """The operators < <= > >=."""
    same = any(isinstance(a, kind) and isinstance(b, kind) for kind in _COMPARABLE)
    if isinstance(a, bool) and isinstance(b, bool):
        same = True
    if not (same or (is_number(a) and is_number(b))):
        raise _no_operator(operator, a, b)
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]


RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
        "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
    }
)  # fmt: skip
_ESCAPES = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def unescape(name: str) -> str:
    """Return the field that an escaped name in a rule stands for (`foo__dash__bar`, `__namespace__`)."""
    if name.startswith("__") and name.endswith("__") and name[2:-2] in RESERVED:
        return name[2:-2]
    for escape, text in _ESCAPES.items():
        name = name.replace(escape, text)
    return name


def select(value: Any, name: str) -> Any:
    """Return a field. Raises CelError when there is none."""
    if isinstance(value, Optional):
        return select_optional(value, name)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if name in fields:
            return fields[name]
        plain = unescape(name)
        if plain in fields:
            return fields[plain]
        raise CelError(f"no such key: {name}")
    raise CelError(f"type '{type_of(value)}' does not support field selection")


def select_optional(value: Any, key: Any) -> Optional:
    """The operators `.?` and `[?]`."""
    if isinstance(value, Optional):
        if not value.present:
            return value
        value = value.value
    try:
        return Optional(index(value, key), present=True)
    except CelError:
        return Optional()


def has(value: Any, name: str) -> bool:
    """The macro `has()`."""
    if isinstance(value, Optional):
        return value.present and has(value.value, name)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return name in fields or unescape(name) in fields
    raise CelError(f"type '{type_of(value)}' does not support field selection")


def index(value: Any, key: Any) -> Any:
    """The operator `[]`."""
    if isinstance(value, Optional):
        return select_optional(value, key)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if not isinstance(key, int) or isinstance(key, bool) or not 0 <= key < len(items):
            raise CelError(f"index out of bounds: {key}")
        return items[key]
    if isinstance(value, dict):
        mapping = cast("Mapping[Any, Any]", value)
        if isinstance(key, list | dict) or key not in mapping:
            return select(cast("dict[str, Any]", value), key) if isinstance(key, str) else _missing(key)
        return mapping[key]
    raise CelError(f"type '{type_of(value)}' does not support indexing")


def _missing(key: Any) -> Any:
    raise CelError(f"no such key: {key}")


def as_text(value: Any) -> str:
    """Return a string. Raises `CelError` for another value."""
    if not isinstance(value, str):
        raise CelError(f"no such overload: expected a string, not {type_of(value)}")
    return value


def as_items(value: Any) -> list[Any]:
    """Return a list. Raises `CelError` for another value."""
    if not isinstance(value, list):
        raise CelError(f"no such overload: expected a list, not {type_of(value)}")
    return cast("list[Any]", value)
