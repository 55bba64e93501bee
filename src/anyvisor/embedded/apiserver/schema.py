"""Structural schemas: prune unknown fields, set defaults, and find every mistake.

The same compiled form drives pruning, defaulting, validation, strategic merge and server-side apply, for custom
resources and for built-in kinds. Rules: Kubernetes' "structural schema" chapter and KEP-1693 (null handling).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

Json = dict[str, Any]
UNSET: Any = object()
"""Stands where a schema states no default."""

Resolver = Callable[[str], "Node"]


@dataclass(slots=True, eq=False)
class Node:
    """One compiled level of a schema."""

    type: str = ""
    """`object`, `array`, `string`, `integer`, `number`, `boolean`, `int-or-string`, or empty for anything."""
    props: dict[str, "Node"] = field(default_factory=dict[str, "Node"])
    extra: "Node | None" = None
    """Schema of the values of a map (`additionalProperties`)."""
    items: "Node | None" = None
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    preserve: bool = False
    embedded: bool = False
    nullable: bool = False
    default: Any = UNSET
    patch_key: str = ""
    patch_strategy: str = ""
    raw: Json = field(default_factory=dict[str, Any])
    defaulted: bool = False
    """Whether this level or one below states a default."""
    ruled: bool = False
    """Whether this level or one below has validation rules in CEL."""
    special: bool = False
    """Whether this level or one below has a rule that a JSON Schema does not carry: formats, unique list items."""


ANYTHING = Node(preserve=True)


def compile_schema(schema: Json, resolve: Resolver | None = None) -> Node:
    """Compile an OpenAPI v3 schema; `resolve` answers `$ref`s."""
    if "allOf" in schema and "type" not in schema and resolve is not None and len(schema["allOf"]) == 1:
        inner = compile_schema(schema["allOf"][0], resolve)
        node = copy.copy(inner)
        _marks(node, schema)
        return node
    reference = schema.get("$ref")
    if reference is not None:
        return resolve(reference) if resolve is not None else ANYTHING
    node = Node()
    fill(node, schema, resolve)
    return node


def fill(node: Node, schema: Json, resolve: Resolver | None = None) -> None:
    """Fill a node in place, so that a recursive type can refer to it before it is complete."""
    node.raw = schema
    node.type = schema.get("type", "")
    node.nullable = bool(schema.get("nullable"))
    node.default = schema.get("default", UNSET)
    _marks(node, schema)
    if schema.get("x-kubernetes-int-or-string"):
        node.type = "int-or-string"
    for name, child in schema.get("properties", {}).items():
        node.props[name] = compile_schema(child, resolve)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        node.extra = compile_schema(cast("Json", extra), resolve)
    elif extra is True:
        node.extra = ANYTHING
    items = schema.get("items")
    if isinstance(items, dict):
        node.items = compile_schema(cast("Json", items), resolve)
    if not node.type and not node.props:
        node.preserve = True
    children = [*node.props.values(), *(child for child in (node.extra, node.items) if child is not None)]
    node.ruled = bool(schema.get("x-kubernetes-validations")) or any(child.ruled for child in children)
    node.special = "format" in schema or node.list_type in ("set", "map") or any(child.special for child in children)
    node.defaulted = node.default is not UNSET or any(
        child.defaulted or child.default is not UNSET for child in children
    )


def _marks(node: Node, schema: Json) -> None:
    node.list_type = schema.get("x-kubernetes-list-type", node.list_type)
    node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", node.list_keys))
    node.atomic = schema.get("x-kubernetes-map-type", "atomic" if node.atomic else "") == "atomic"
    node.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields", node.preserve))
    node.embedded = bool(schema.get("x-kubernetes-embedded-resource", node.embedded))
    node.patch_key = schema.get("x-kubernetes-patch-merge-key", node.patch_key)
    node.patch_strategy = schema.get("x-kubernetes-patch-strategy", node.patch_strategy)


EMBEDDED_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(node: Node, value: Any, path: str = "", unknown: list[str] | None = None) -> None:
    """Remove, in place, fields that the schema does not know and nulls that it does not allow.

    The paths of unknown fields are appended to `unknown`, in the form that Kubernetes' warnings use.
    """
    if isinstance(value, dict):
        _prune_object(node, cast("Json", value), path, unknown)
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(cast("list[Any]", value)):
            prune(node.items, item, f"{path}[{index}]", unknown)


def _prune_object(node: Node, value: Json, path: str, unknown: list[str] | None) -> None:
    props, extra = node.props, node.extra
    dead: list[str] = []
    for key, item in value.items():
        child = props.get(key)
        if child is None:
            child = extra
        if child is None:
            if not node.preserve and not (node.embedded and key in EMBEDDED_FIELDS):
                dead.append(key)
                if unknown is not None:
                    unknown.append(f"{path}.{key}" if path else key)
            continue
        if item is None:
            if not child.nullable and not child.preserve:
                dead.append(key)
        elif item.__class__ is dict or item.__class__ is list:
            prune(child, item, f"{path}.{key}" if path else key, unknown)
    for key in dead:
        del value[key]


def set_defaults(node: Node, value: Any) -> None:
    """Set, in place, the defaults of fields that are absent."""
    if not node.defaulted:
        return
    if isinstance(value, dict):
        obj = cast("Json", value)
        for key, child in node.props.items():
            if child.default is not UNSET and (key not in obj or (obj[key] is None and not child.nullable)):
                obj[key] = copy.deepcopy(child.default)
            if child.defaulted and key in obj:
                set_defaults(child, obj[key])
        if node.extra is not None and node.extra.defaulted:
            for key, item in obj.items():
                if key not in node.props:
                    set_defaults(node.extra, item)
    elif isinstance(value, list) and node.items is not None:
        for item in cast("list[Any]", value):
            set_defaults(node.items, item)
