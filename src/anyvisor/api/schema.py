"""Structural OpenAPI schemas, as custom resource definitions need them, from the typed models.

Descriptions are the docstrings of classes and fields in the models' source, so that reading an object costs nothing
for them: only this module, which only the generator of the definitions imports, parses the source.
"""

import ast
import inspect
import sys
import types
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec

from anyvisor.api import core
from anyvisor.api.meta import Json, LabelSelector, Model, ObjectMeta
from anyvisor.api.wire import Schema

_SCALARS: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean", float: "number"}

# Objects that server-side apply owns whole, as Kubernetes marks them.
_ATOMIC: Final[frozenset[type]] = frozenset(
    {
        LabelSelector,
        core.LocalObjectReference,
        core.NodeSelector,
        core.NodeSelectorTerm,
        core.ObjectFieldSelector,
        core.ResourceFieldSelector,
        core.TypedLocalObjectReference,
    }
)
_OPAQUE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final[Json] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}


def root_schema(model: type[Model]) -> Json:
    """The schema of a whole kind; the server knows `metadata` itself."""
    schema = object_schema(model)
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def object_schema(model: type[Model]) -> Json:
    """The schema of a model."""
    if model is ObjectMeta:
        return {"type": "object"}
    texts = descriptions(model.__module__)
    properties: Json = {}
    required: list[str] = []
    for field in msgspec.structs.fields(model):
        facts = _facts(field.type)
        if any(fact.hidden for fact in facts):
            continue
        schema = _value_schema(field.type)
        text = texts.get((model.__name__, field.name))
        if text:
            schema["description"] = text
        properties[field.encode_name] = schema
        if field.required:
            required.append(field.encode_name)
    result: Json = {"type": "object"}
    if text := texts.get((model.__name__,)):
        result["description"] = text
    if properties:
        result["properties"] = dict(sorted(properties.items()))
    if required:
        result["required"] = sorted(required)
    if model in _ATOMIC:
        result["x-kubernetes-map-type"] = "atomic"
    return result


def _facts(annotation: Any) -> tuple[Schema, ...]:
    if get_origin(annotation) is not Annotated:
        return ()
    return tuple(entry for entry in get_args(annotation)[1:] if isinstance(entry, Schema))


def _value_schema(annotation: Any) -> Json:
    """The schema of a value of a type."""
    if get_origin(annotation) is Annotated:
        schema = _value_schema(get_args(annotation)[0])
        for fact in _facts(annotation):
            _apply(schema, fact)
        return schema
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return _value_schema(members[0]) if len(members) == 1 else _union(members)
    if annotation is Any:
        return {_OPAQUE: True}
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    return _container(annotation)


def _container(annotation: Any) -> Json:
    if get_origin(annotation) is tuple:
        items = _value_schema(get_args(annotation)[0])
        return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}
    if get_origin(annotation) is dict:
        value = get_args(annotation)[1]
        return {
            "type": "object",
            **({_OPAQUE: True} if value is Any else {"additionalProperties": _value_schema(value)}),
        }
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return object_schema(annotation)
    raise TypeError(f"{annotation!r} has no schema: use the types of anyvisor.api.wire")


def _union(members: list[Any]) -> Json:
    if set(members) != {int, str}:
        raise TypeError(f"{members!r} has no structural schema: only int | str is a union there")
    return deepcopy(_INT_OR_STRING)


def _apply(schema: Json, fact: Schema) -> None:
    """Put what a field says beyond its type into its schema."""
    schema.update(fact.facts)
    if fact.keys:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = list(fact.keys)
    if fact.unique:
        schema["x-kubernetes-list-type"] = "set"
    if fact.nullable:
        schema["nullable"] = True
    if fact.opaque:
        schema[_OPAQUE] = True
    if fact.rules:
        schema["x-kubernetes-validations"] = [{"rule": rule} for rule in fact.rules]


@cache
def descriptions(module: str) -> dict[tuple[str, ...], str]:
    """The docstrings of a module's classes and of their fields, each on one line."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: dict[tuple[str, ...], str] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        text = ast.get_docstring(node)
        if text:
            found[(node.name,)] = " ".join(text.split())
        for first, second in zip(node.body, node.body[1:], strict=False):
            name = _field_name(first)
            if name and isinstance(second, ast.Expr) and isinstance(second.value, ast.Constant):
                found[node.name, name] = " ".join(str(cast("object", second.value.value)).split())
    return found


def _field_name(node: ast.stmt) -> str:
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""
