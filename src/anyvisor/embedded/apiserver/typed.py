"""Does an applied configuration fit the types of its schema? What does not cannot be merged.

The sentences are those of the original's structured-merge-diff.
"""

from collections.abc import Iterator
from typing import Any, cast

from anyvisor.embedded.apiserver.fieldset import item_key
from anyvisor.embedded.apiserver.schema import ANYTHING, Node

Json = dict[str, Any]

_SCALARS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
}


def mistakes(node: Node, value: Any, path: str = "") -> Iterator[str]:
    """Yield a sentence for each value of a wrong type, unknown field and list item without its key."""
    if value is None:
        return
    if node.type in _SCALARS:
        name, kinds = _SCALARS[node.type]
        if not isinstance(value, kinds) or (isinstance(value, bool) and node.type != "boolean"):
            yield f"{path}: expected {name}, got {_got(name, value)}"
    elif node.type == "object":
        yield from _map_mistakes(node, value, path)
    elif node.type == "array":
        yield from _list_mistakes(node, value, path)


def _map_mistakes(node: Node, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{_go(value)}}}"
        return
    for name, item in sorted(cast("Json", value).items()):
        child = node.props.get(name) or node.extra
        if child is not None:
            yield from mistakes(child, item, f"{path}.{name}")
        elif not node.preserve:
            yield f"{path}.{name}: field not declared in schema"


def _list_mistakes(node: Node, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{_go(value)}}}"
        return
    seen: set[str] = set()
    for index, item in enumerate(cast("list[Any]", value)):
        element = item_key(node, item) if node.list_type in ("set", "map") else None
        if element is None and node.list_type == "map" and node.list_keys:
            yield (
                f"{path}: element {index}: associative list with keys has an element that omits all key fields "
                f"[{' '.join(map(_quoted, node.list_keys))}] (and doesn't have default values for any key fields)"
            )
            continue
        if element is not None and element in seen:
            yield f"{path}: duplicate entries for key {_key(element)}"
        if element is not None:
            seen.add(element)
        where = f"{path}{_key(element)}" if element is not None else f"{path}[{index}]"
        yield from mistakes(node.items or ANYTHING, item, where)


def _key(element: str) -> str:
    if element[0] == "v":
        return f"[={element[2:]}]"
    return "[" + ",".join(part.replace('"', "", 2).replace(":", "=", 1) for part in element[3:-1].split(",")) + "]"


def _got(wanted: str, value: Any) -> str:
    if wanted == "string":
        return _shown(value)
    if wanted == "boolean":
        return f"&{{{_go(value)}}}"
    return "bool" if isinstance(value, bool) else "string" if isinstance(value, str) else f"&{{{_go(value)}}}"


def _shown(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{_quoted(value)}}}"


def _go(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("Json", value).items()
        return "map[string]interface {}{" + ", ".join(f'"{key}":{_quoted(item)}' for key, item in items) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_quoted(item) for item in cast("list[Any]", value)) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else _go(value)
