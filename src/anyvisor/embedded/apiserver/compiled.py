"""Compiled schemas of custom resources, shared by all versions and definitions that state the same schema.

Compiling a large schema costs tens of milliseconds, and a definition is looked at several times while it is
created, so the results are kept by the digest of the schema.
"""

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jsonschema_rs
import msgspec

from anyvisor.embedded.apiserver.builtin_types import object_meta
from anyvisor.embedded.apiserver.rules import check_rules
from anyvisor.embedded.apiserver.schema import Node, compile_schema
from anyvisor.embedded.apiserver.status import Cause, invalid_value, required
from anyvisor.embedded.apiserver.validation import fast_check
from anyvisor.embedded.apiserver.values import as_object

Json = dict[str, Any]

MAX_KEPT = 256
PATH = "schema.openAPIV3Schema"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What is made from one schema; `node` and `check` are of no use while there are mistakes."""

    mistakes: tuple[Cause, ...]
    node: Node
    check: Callable[[Any], bool]
    public: Json
    """The schema as OpenAPI shows it."""


_kept: OrderedDict[bytes, Compiled] = OrderedDict()


def compiled(schema: Json) -> Compiled:
    """Return what is made from a schema; the same schema gives the same result."""
    digest = hashlib.sha256(msgspec.json.encode(schema)).digest()
    found = _kept.get(digest)
    if found is None:
        found = _kept[digest] = _compile(schema)
        if len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(digest)
    return found


def _compile(schema: Json) -> Compiled:
    mistakes = [*_structural(schema, PATH, root=True), *check_rules(schema, PATH)]
    check: Callable[[Any], bool] = bool
    if not mistakes:
        try:
            check = fast_check(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            mistakes.append(invalid_value(PATH, "", str(error).splitlines()[0]))
    node = Node()
    if not mistakes:
        node = compile_schema(schema)
        node.props["apiVersion"] = Node(type="string")
        node.props["kind"] = Node(type="string")
        node.props["metadata"] = object_meta()
    return Compiled(tuple(mistakes), node, check, _public_schema(schema))


def _public_schema(schema: Json) -> Json:
    result = copy.copy(schema)
    result["properties"] = {
        **as_object(schema.get("properties")),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
    }
    return result


def _structural(schema: Json, path: str, *, root: bool = False) -> list[Cause]:
    causes: list[Cause] = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if root and schema.get("type") != "object":
        causes.append(invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root"))
    elif not schema.get("type") and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    for name, child in as_object(schema.get("properties")).items():
        causes.extend(_structural(as_object(child), f"{path}.properties[{name}]"))
    for name in ("items", "additionalProperties"):
        child = schema.get(name)
        if isinstance(child, dict):
            causes.extend(_structural(cast("Json", child), f"{path}.{name}"))
    return causes
