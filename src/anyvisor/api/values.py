"""Reading JSON that may be of any shape: the wanted kind of value, or that kind's empty value, and never an error."""

from typing import Any, cast

Obj = dict[str, Any]

WIDEST = 2**64


def mapping(value: Any) -> Obj:
    """The value if it is a JSON object, else a new empty one."""
    return cast(Obj, value) if type(value) is dict else {}


def items(value: Any) -> list[Obj]:
    """The value as a list of objects; members of another kind read as empty objects, so that indexes hold."""
    if type(value) is not list:
        return []
    members = cast(list[Any], value)
    for member in members:
        if type(member) is not dict:
            return [mapping(m) for m in members]
    return cast(list[Obj], members)


def text(value: Any) -> str:
    """The value if it is a string, else the empty string."""
    return value if type(value) is str else ""


def integer(value: Any) -> int:
    """The value if it is an integer (a boolean is none), else 0; beyond 64 bits, the end of that range."""
    return min(max(value, -WIDEST), WIDEST) if type(value) is int else 0
