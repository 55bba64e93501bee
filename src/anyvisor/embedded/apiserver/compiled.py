"""Compiled schemas of custom resources, shared by all versions and definitions that state the same schema.

Compiling a large schema costs tens of milliseconds, and a definition is looked at several times while it is
created, so the results are kept by the digest of the schema.
"""

import copy
import hashlib
from collections import OrderedDict
from collections.abc import Callable
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


class Compiled:
    """What is made from one schema, each part when it is first asked for.

    A schema is kept as its bytes: a definition is there all the time, but few kinds are ever written, and the trees
    and the validator of a large one take megabytes.
    """

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._mistakes: tuple[Cause, ...] | None = None
        self._node: Node | None = None
        self._check: Callable[[Any], bool] | None = None

    def _schema(self) -> Json:
        return msgspec.json.decode(self._raw)

    def mistakes(self) -> tuple[Cause, ...]:
        """Return why the schema cannot be served; `node` and `check` are of no use while there are any."""
        if self._mistakes is None:
            self._mistakes = _mistakes(self._schema())
        return self._mistakes

    def node(self) -> Node:
        """Return the schema as the walkers want it."""
        if self._node is None:
            self._node = _node(self._schema())
        return self._node

    def check(self, obj: Any) -> bool:
        """Say, fast, whether an object obeys the schema (list types and formats apart)."""
        if self._check is None:
            self._check = fast_check(self._schema())
        return self._check(obj)

    def public(self) -> Json:
        """Return the schema as OpenAPI shows it."""
        return _public_schema(self._schema())


_kept: OrderedDict[bytes, Compiled] = OrderedDict()


def compiled(schema: Json) -> Compiled:
    """Return what is made from a schema; the same schema gives the same result."""
    raw = msgspec.json.encode(schema)
    digest = hashlib.sha256(raw).digest()
    found = _kept.get(digest)
    if found is None:
        found = _kept[digest] = Compiled(raw)
        if len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)
    else:
        _kept.move_to_end(digest)
    return found


def _mistakes(schema: Json) -> tuple[Cause, ...]:
    mistakes = [*_structural(schema, PATH, root=True), *check_rules(schema, PATH)]
    if not mistakes:
        try:
            fast_check(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            mistakes.append(invalid_value(PATH, "", str(error).splitlines()[0]))
    return tuple(mistakes)


def _node(schema: Json) -> Node:
    node = compile_schema(schema)
    node.props["apiVersion"] = Node(type="string")
    node.props["kind"] = Node(type="string")
    node.props["metadata"] = object_meta()
    return node


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
