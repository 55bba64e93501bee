"""Reading raw JSON objects, for whoever needs no typed model of them: it imports next to nothing, as commands must."""

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
"""One JSON object, as decoded; never re-encoded from a typed model."""


def object_at(obj: Mapping[str, Any], *path: str) -> Json:
    """The JSON object at a path, or an empty one where anything on the way is absent or no object."""
    here: Any = obj
    for step in path:
        if not isinstance(here, dict):
            return {}
        here = cast("Json", here).get(step)
    return cast("Json", here) if isinstance(here, dict) else {}


def list_at(obj: Mapping[str, Any], *path: str) -> list[Any]:
    """The JSON array at a path, or an empty one."""
    found = object_at(obj, *path[:-1]).get(path[-1]) if path else None
    return cast("list[Any]", found) if isinstance(found, list) else []


def text_at(obj: Mapping[str, Any], *path: str) -> str:
    """The string at a path, or an empty one."""
    found = object_at(obj, *path[:-1]).get(path[-1]) if path else None
    return found if isinstance(found, str) else ""


def conditions(obj: Mapping[str, Any]) -> list[Json]:
    """`status.conditions`, or an empty list."""
    return list_at(obj, "status", "conditions")


def condition(obj: Mapping[str, Any], type_: str) -> Json | None:
    """The condition of a type, if it is there."""
    return next((entry for entry in conditions(obj) if entry.get("type") == type_), None)
