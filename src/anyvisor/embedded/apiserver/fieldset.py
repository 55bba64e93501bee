"""Sets of fields, as `managedFields` writes them (FieldsV1), and how they follow from objects and schemas.

A set is a nested dict: `"."` marks the path itself as a member, every other key is one path element:
`f:NAME` a field, `k:{...}` an item of a list-map by its keys, `v:VALUE` an item of a set. On the wire a member
without children is written `{}`. Rules: KEP-555 and the structured-merge-diff rules that it names.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from anyvisor.embedded.apiserver.schema import ANYTHING, UNSET, Node
from anyvisor.embedded.apiserver.values import same

Json = dict[str, Any]
FieldSet = dict[str, Any]
SELF = "."
_encode = msgspec.json.Encoder(order="deterministic").encode
MEMBER: FieldSet = {}
"""The value of the `"."` key."""
LEAF: FieldSet = {SELF: MEMBER}
"""A path with none below it. Sets share it and other parts: none is changed once it is made."""


def from_wire(fields: Json) -> FieldSet:
    """Read FieldsV1."""
    if not fields:
        return LEAF
    return {key: MEMBER if key == SELF else from_wire(value) for key, value in fields.items()}


def read_root(fields: Json) -> FieldSet:
    """Read the FieldsV1 of a whole object, where `{}` is the empty set."""
    return from_wire(fields) if fields else {}


def to_wire(fields: FieldSet) -> Json:
    """Write FieldsV1."""
    if len(fields) == 1 and SELF in fields:
        return {}
    return {key: {} if key == SELF or value is LEAF else to_wire(value) for key, value in fields.items()}


def union(a: FieldSet, b: FieldSet) -> FieldSet:
    if not a:
        return b
    if not b:
        return a
    result = dict(a)
    for key, value in b.items():
        mine = result.get(key)
        result[key] = value if mine is None or key == SELF else union(mine, value)
    return result


def difference(a: FieldSet, b: FieldSet) -> FieldSet:
    """Return the members of `a` that are no members of `b`."""
    if not b:
        return a
    result: FieldSet = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            result[key] = value
        elif key != SELF:
            rest = difference(value, other)
            if rest:
                result[key] = rest
    return result


def intersection(a: FieldSet, b: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for key, value in a.items():
        other = b.get(key)
        if other is None:
            continue
        if key == SELF:
            result[key] = MEMBER
        else:
            common = intersection(value, other)
            if common:
                result[key] = common
    return result


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """Yield the members as the paths that conflict messages show, such as `.spec.containers[name="a"].image`."""
    for key in sorted(fields):
        if key == SELF:
            yield prefix
        else:
            yield from paths(fields[key], prefix + _readable(key))


def _readable(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys: Json = msgspec.json.decode(rest)
        return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in sorted(keys.items())) + "]"
    return f"[={rest}]"


def item_key(node: Node, item: Any) -> str | None:
    """Return the path element of a list item; None when the item lacks what identifies it."""
    if node.list_type == "set":
        return "v:" + _encode(item).decode()
    if not isinstance(item, dict):
        return None
    keys: Json = {}
    for name in sorted(node.list_keys):
        value = cast("Json", item).get(name, UNSET)
        if value is UNSET:
            child = node.items.props.get(name) if node.items is not None else None
            value = child.default if child is not None else UNSET
        if value is not UNSET:
            keys[name] = value
    if not keys:
        return None
    return "k:" + _encode(keys).decode()


def child_of(node: Node, key: str) -> Node:
    return node.props.get(key) or node.extra or ANYTHING


def is_granular_map(node: Node, value: Any) -> bool:
    return isinstance(value, dict) and not node.atomic


def is_granular_list(node: Node, value: Any) -> bool:
    return isinstance(value, list) and node.list_type in ("set", "map")


def of_object(node: Node, value: Any, *, root: bool = True) -> FieldSet:
    """Return the set of fields that an applied configuration owns."""
    if is_granular_map(node, value) and value:
        result: FieldSet = {}
        for key, item in cast("Json", value).items():
            fields = of_object(child_of(node, key), item, root=False)
            declared = key in node.props or (node.type == "" and node.preserve)
            if not declared and SELF not in fields:
                fields = {SELF: MEMBER, **fields}
            if fields:
                result[f"f:{key}"] = fields
        return result
    if is_granular_list(node, value):
        result = {}
        for item in cast("list[Any]", value):
            element = item_key(node, item)
            if element is None:
                return LEAF
            below = of_object(node.items or ANYTHING, item, root=False) if node.list_type == "map" else {}
            result[element] = {SELF: MEMBER, **below}
        return result
    return {} if root else LEAF


def everything(node: Node, value: Any) -> FieldSet:
    """Return every path of a value, containers included: what appears, or goes, with it."""
    result: FieldSet = {SELF: MEMBER}
    if is_granular_map(node, value):
        for key, item in cast("Json", value).items():
            result[f"f:{key}"] = everything(child_of(node, key), item) if isinstance(item, dict | list) else LEAF
    elif is_granular_list(node, value):
        for item in cast("list[Any]", value):
            element = item_key(node, item)
            if element is None:
                return LEAF
            result[element] = everything(node.items or ANYTHING, item) if node.list_type == "map" else LEAF
    return result


def compare(node: Node, old: Any, new: Any) -> tuple[FieldSet, FieldSet]:
    """Return the fields that were added or changed, and those that were removed."""
    if same(old, new):
        return {}, {}
    if is_granular_map(node, old) and is_granular_map(node, new):
        return _compare_maps(node, old, new)
    if is_granular_list(node, old) and is_granular_list(node, new):
        before, after = _by_key(node, old), _by_key(node, new)
        if before is not None and after is not None:
            return _compare_items(node, before, after)
    if isinstance(new, dict | list) and not isinstance(old, dict if isinstance(new, dict) else list):
        return everything(node, new), everything(node, old)
    return LEAF, {}


def _compare_maps(node: Node, old: Json, new: Json) -> tuple[FieldSet, FieldSet]:
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, value in new.items():
        child = child_of(node, key)
        if key not in old:
            changed[f"f:{key}"] = everything(child, value)
            continue
        before = old[key]
        if same(before, value):
            continue
        more, less = compare(child, before, value)
        if more:
            changed[f"f:{key}"] = more
        if less:
            removed[f"f:{key}"] = less
    for key, value in old.items():
        if key not in new:
            removed[f"f:{key}"] = everything(child_of(node, key), value)
    return changed, removed


def _by_key(node: Node, items: list[Any]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for item in items:
        element = item_key(node, item)
        if element is None or element in found:
            return None
        found[element] = item
    return found


def _compare_items(node: Node, old: Json, new: Json) -> tuple[FieldSet, FieldSet]:
    items = node.items or ANYTHING
    changed: FieldSet = {}
    removed: FieldSet = {}
    for element, value in new.items():
        if element not in old:
            changed[element] = everything(items, value)
        elif node.list_type == "map":
            more, less = compare(items, old[element], value)
            if more:
                changed[element] = more
            if less:
                removed[element] = less
    for element, value in old.items():
        if element not in new:
            removed[element] = everything(items, value)
    return changed, removed
