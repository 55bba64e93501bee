"""Reading JSON of unknown shape: what is missing, null or of another type reads as empty."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

Json = dict[str, Any]


def as_object(value: Any) -> Json:
    """Return the value if it is an object, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[Json]:
    """Return the objects in a list; other items are left out."""
    return [cast("Json", item) for item in as_list(value) if isinstance(item, dict)]


def lookup(obj: Any, path: Sequence[str]) -> Any:
    """Follow field names; None when one is missing."""
    for name in path:
        if not isinstance(obj, dict):
            return None
        obj = cast("Json", obj).get(name)
    return obj


def objects_at(obj: Any, *path: str) -> list[Json]:
    return as_objects(lookup(obj, path))


def same(one: Any, other: Any) -> bool:
    """Say whether two JSON values are equal; Python alone takes `true` for 1."""
    return one == other and (_encode(one) == _encode(other) or _same_types(one, other))


_encode = msgspec.json.Encoder().encode


def _same_types(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return all(_same_types(value, right[name]) for name, value in left.items())
    if isinstance(one, list):
        pairs = zip(cast("list[Any]", one), cast("list[Any]", other), strict=True)
        return all(_same_types(left, right) for left, right in pairs)
    return isinstance(one, bool) == isinstance(other, bool)
