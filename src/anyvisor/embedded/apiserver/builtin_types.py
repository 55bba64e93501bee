"""The compiled types of the built-in kinds, made from the type table when they are first used."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema_rs

from anyvisor.embedded.apiserver.schema import ANYTHING, Node, fill
from anyvisor.embedded.apiserver.typetable import REF, closure, messages, openapi_name, openapi_schema

Json = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


@cache
def _node(name: str) -> Node:
    node = Node()
    _loading[name] = node
    fill(node, openapi_schema(name), _resolve)
    return node


_loading: dict[str, Node] = {}


@cache
def _by_definition() -> dict[str, str]:
    return {REF + openapi_name(name): name for name in messages()}


def _resolve(reference: str) -> Node:
    name = _by_definition().get(reference)
    if name is None:
        return ANYTHING
    return _loading.get(name) or _node(name)


@cache
def kind_node(name: str) -> Node:
    """Return the compiled schema of a top-level kind of the type table, such as `core.v1.Pod`."""
    node = Node()
    fill(node, openapi_schema(name, kind=True), _resolve)
    return node


def object_meta() -> Node:
    """Return the compiled schema of `metadata`."""
    return _resolve(REF + openapi_name("meta.v1.ObjectMeta"))


def is_metadata(value: Any) -> bool:
    """Say, fast, whether a value has the types of `metadata`."""
    return _fast_types("meta.v1.ObjectMeta", kind=False)(value)


def has_types(name: str, value: Any) -> bool:
    """Say, fast, whether an object has the types of a built-in kind."""
    return _fast_types(name, kind=True)(value)


@cache
def _fast_types(name: str, *, kind: bool) -> Callable[[Any], bool]:
    definitions: Json = {}
    for message in closure(name):
        if not messages()[message].unwrapped:
            definitions[openapi_name(message)] = _types_only(openapi_schema(message))
    root = _types_only(openapi_schema(name, kind=kind))
    return jsonschema_rs.validator_for({**root, "$defs": definitions}).is_valid


def _types_only(schema: Json) -> Json:
    result: Json = {}
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string", "number"]
    elif "type" in schema:
        result["type"] = schema["type"]
    if "$ref" in schema:
        result["$ref"] = "#/$defs/" + schema["$ref"].removeprefix(REF)
    if "allOf" in schema:
        result["allOf"] = [_types_only(item) for item in schema["allOf"]]
    if "properties" in schema:
        result["properties"] = {name: _types_only(item) for name, item in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            result[name] = _types_only(schema[name])
    return result


def table_name(group: str, version: str, kind: str) -> str:
    """Return the type table's name of a built-in kind."""
    package = {"": "core", _RBAC: "rbac"}.get(group, group.split(".")[0])
    return f"{package}.{version}.{kind}"
