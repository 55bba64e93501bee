"""Reading untrusted JSON without ever raising.

Objects are normally checked against their schema before they come here, yet an offline check or a webhook may see
anything. Each reader gives the wanted kind of value, or that kind's empty value for everything else, which is
also how the API treats an absent field.
"""

import marshal
from typing import Any, cast

from anyvisor.api.values import WIDEST, Obj, integer, items, mapping, text

__all__ = ["Obj", "clone", "enabled", "integer", "items", "mapping", "shown", "strings", "text", "texts"]

_SHOWN = 256


def strings(value: Any) -> list[str]:
    """The strings of a list; members of another kind read as empty strings."""
    if type(value) is not list:
        return []
    return [text(member) for member in cast(list[Any], value)]


def texts(value: Any) -> dict[str, str]:
    """The members of an object as strings, as labels are."""
    return {key: text(member) for key, member in mapping(value).items()}


def shown(value: Any) -> str:
    """A value of any kind as it may stand in a message."""
    if value is None:
        return "missing"
    if type(value) is str:
        return repr(value[:_SHOWN])
    if type(value) in (bool, float):
        return str(value).lower()
    if type(value) is int:
        return str(value) if abs(value) <= WIDEST else "a number beyond all bounds"
    return "a list" if type(value) is list else "an object"


def enabled(state: Any) -> bool:
    """Whether a feature state object is switched on: present and not explicitly off."""
    return state is not None and mapping(state).get("enabled") is not False


def clone(value: Any) -> Any:
    """A deep copy of a JSON value."""
    try:
        # marshal copies plain data several times faster than any loop here; its nesting is limited.
        return marshal.loads(marshal.dumps(value))  # noqa: S302 -- what it loads, it has just written
    except ValueError:
        return _clone_deep(value)


def _clone_deep(value: Any) -> Any:
    """The same without recursion, for nesting that would exhaust a stack."""
    root: list[Any] = [value]
    pending: list[tuple[Any, Any]] = [(root, 0)]
    while pending:
        holder, key = pending.pop()
        child = holder[key]
        if type(child) is dict:
            copied = dict(cast(Obj, child))
            holder[key] = copied
            pending.extend((copied, name) for name, member in copied.items() if type(member) in _CONTAINERS)
        elif type(child) is list:
            listed = list(cast(list[Any], child))
            holder[key] = listed
            pending.extend((listed, index) for index, member in enumerate(listed) if type(member) in _CONTAINERS)
    return root[0]


_CONTAINERS = (dict, list)
