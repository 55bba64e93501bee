"""Checking an object against the schema of its kind without a server: for the offline check and for replays.

A server does this itself. The causes carry the types and paths of Kubernetes' own schema refusals, except for unknown
fields and impossible numbers, whose causes name no field (see `shape`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import jsonschema_rs

from anyvisor.admission.result import DUPLICATE, INVALID, NOT_SUPPORTED, REQUIRED, Cause, bounded
from anyvisor.admission.values import Obj, clone, mapping, strings, text

_MAX_CAUSES = 64
_MAX_DEPTH = 200
_TYPE_INVALID = "FieldValueTypeInvalid"
_TOO_MANY, _TOO_LONG = "FieldValueTooMany", "FieldValueTooLong"
_OPEN = "x-kubernetes-preserve-unknown-fields"
_SCALARS = ("string", "integer", "number", "boolean")
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_TYPES = {
    "required": REQUIRED,
    "enum": NOT_SUPPORTED,
    "type": _TYPE_INVALID,
    "anyOf": _TYPE_INVALID,
    "maxItems": _TOO_MANY,
    "maxLength": _TOO_LONG,
}

# The few expressions in the definitions of these kinds, with what they ask for in words.
EXPRESSIONS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "self.startsWith('/')": (lambda value: text(value).startswith("/"), "must begin with '/'"),
    "!self.contains('..')": (lambda value: ".." not in text(value), "must not contain '..'"),
    "self == true": (lambda value: value is True, "must be true"),
}


class KindSchema:
    """The schema of one kind."""

    def __init__(self, schema: Obj) -> None:
        self._schema = schema

    @cached_property
    def _strict(self) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for(_json_schema(self._schema, lenient=False))

    @cached_property
    def _lenient(self) -> jsonschema_rs.Validator:
        return jsonschema_rs.validator_for(_json_schema(self._schema, lenient=True))

    def unknown(self, obj: Obj) -> list[Cause]:
        """Fields that the kind does not have, and numbers that its fields cannot hold; status may carry anything."""
        found = [_unknown(name) for name in obj if name not in _TOP][:_MAX_CAUSES]
        spec = mapping(mapping(self._schema.get("properties")).get("spec"))
        for cause in _walk("spec", obj.get("spec"), spec):
            found.append(cause)
            if len(found) >= _MAX_CAUSES:
                break
        return found

    def check(self, obj: Obj, *, lenient: bool) -> list[Cause]:
        """What the schema refuses. `lenient`: a missing scalar counts as its zero value, which a typed writer sends."""
        if _is_deeper(obj, _MAX_DEPTH):
            return [Cause(INVALID, "", f"the object is nested deeper than {_MAX_DEPTH} levels; flatten it", "spec")]
        checked = _without_nulls(obj)
        validator = self._lenient if lenient else self._strict
        found: list[Cause] = []
        for error in validator.iter_errors(checked):
            found.append(_cause(error))
            if len(found) >= _MAX_CAUSES:
                return found
        if not found:
            found = list(_walk_lists("", checked, self._schema))[:_MAX_CAUSES]
        return found


class Schemas:
    """The schemas of all kinds, by apiVersion and kind."""

    def __init__(self, definitions: Sequence[Obj]) -> None:
        self._kinds: dict[tuple[str, str], KindSchema] = {}
        for definition in definitions:
            spec = mapping(definition.get("spec"))
            group, kind = text(spec.get("group")), text(mapping(spec.get("names")).get("kind"))
            for version in cast(list[Obj], spec.get("versions") or []):
                schema = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
                self._kinds[f"{group}/{text(version.get('name'))}", kind] = KindSchema(schema)

    def find(self, api_version: str, kind: str) -> KindSchema | None:
        """The schema of a kind, or None when it is not one of ours."""
        return self._kinds.get((api_version, kind))


def _unknown(path: str) -> Cause:
    shown = bounded(path) if path.isprintable() else repr(bounded(path))
    return Cause("", "", f"{shown} is no field of this kind; check its spelling", path)


def _cause(error: jsonschema_rs.ValidationError) -> Cause:
    path = ""
    for step in error.instance_path:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    kind = error.kind.name
    message = error.message.replace("\n", " ")
    if kind == "required":
        name = str(getattr(error.kind, "property", "")).strip("\"'")
        path = f"{path}.{name}" if path else name
        message = "is missing"
    if len(message) > 200:
        message = f"{message[:197]}..."
    return Cause(_TYPES.get(kind, INVALID), path, f"{path}: {message}; see the API reference of this kind")


def _json_schema(schema: Obj, *, lenient: bool) -> Obj:
    """The structural schema as JSON Schema: nullable and int-or-string written out, patterns for text alone."""
    converted: Obj = {}
    for key in ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"):
        if key in schema:
            converted[key] = schema[key]
    if schema.get("x-kubernetes-int-or-string"):
        converted["type"] = ["integer", "number", "string"]
    if schema.get("nullable") and type(converted.get("type")) is str:
        converted["type"] = [converted["type"], "null"]
    properties = {name: mapping(member) for name, member in mapping(schema.get("properties")).items()}
    if properties:
        converted["properties"] = {name: _json_schema(member, lenient=lenient) for name, member in properties.items()}
    required = [
        name for name in strings(schema.get("required")) if not (lenient and _is_scalar(properties.get(name, {})))
    ]
    if required:
        converted["required"] = required
    for key in ("items", "additionalProperties"):
        if type(schema.get(key)) is dict:
            converted[key] = _json_schema(mapping(schema[key]), lenient=lenient)
    return converted


def _is_scalar(schema: Obj) -> bool:
    return schema.get("type") in _SCALARS or schema.get("x-kubernetes-int-or-string") is True


def _is_deeper(value: Any, levels: int) -> bool:
    level: list[Any] = [value]
    for _ in range(levels):
        below: list[Any] = []
        for holder in level:
            if type(holder) is dict:
                below.extend(cast(Obj, holder).values())
            elif type(holder) is list:
                below.extend(cast(list[Any], holder))
        level = [one for one in below if type(one) is dict or type(one) is list]
        if not level:
            return False
    return True


def _without_nulls(obj: Obj) -> Obj:
    """A copy without null members, which the API treats as absent."""
    copied: Obj = clone(obj)
    pending: list[Any] = [copied]
    while pending:
        holder = pending.pop()
        if type(holder) is dict:
            members = cast(Obj, holder)
            for name in [name for name, value in members.items() if value is None]:
                del members[name]
            pending.extend(members.values())
        elif type(holder) is list:
            pending.extend(cast(list[Any], holder))
    return copied


def _walk(path: str, value: Any, schema: Obj) -> Iterator[Cause]:
    shape = type(cast(object, value))
    if shape is list and type(schema.get("items")) is dict:
        members = cast(list[Any], value)
        for index, member in enumerate(members):
            yield from _walk(f"{path}[{index}]", member, mapping(schema["items"]))
    elif shape is dict:
        properties = mapping(schema.get("properties"))
        closed = properties and not schema.get(_OPEN)
        for name, member in cast(Obj, value).items():
            if name in properties:
                yield from _walk(f"{path}.{name}", member, mapping(properties[name]))
            elif closed:
                yield _unknown(f"{path}.{name}")
    elif shape is int and schema.get("format") in _FORMATS:
        low, high = _FORMATS[schema["format"]]
        if not low <= value <= high:
            yield Cause(
                "", "", f"{path} is {value if abs(value) < 2**128 else 'a number'}, beyond {low} to {high}", path
            )


def _walk_lists(path: str, value: Any, schema: Obj) -> Iterator[Cause]:
    """Lists with keys or of unique members, and expressions."""
    shape = type(cast(object, value))
    if shape is list:
        members = cast(list[Any], value)
        yield from _repeated(path, members, schema)
        for index, member in enumerate(members):
            yield from _walk_lists(f"{path}[{index}]", member, mapping(schema.get("items")))
    elif shape is dict:
        for name, member in mapping(schema.get("properties")).items():
            if name in value:
                yield from _walk_lists(f"{path}.{name}" if path else name, value[name], mapping(member))
    for rule in cast(list[Obj], schema.get("x-kubernetes-validations") or []):
        holds, words = EXPRESSIONS.get(text(rule.get("rule")), (None, ""))
        if holds is not None and not holds(value):
            yield Cause(INVALID, path, f"{path} {words}")


def _repeated(path: str, members: list[Any], schema: Obj) -> Iterator[Cause]:
    keys, kind = strings(schema.get("x-kubernetes-list-map-keys")), schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    seen: set[Any] = set()
    for index, member in enumerate(members):
        identity = tuple(repr(mapping(member).get(key)) for key in keys) if keys else repr(member)
        if identity in seen:
            where = f"{path}[{index}]"
            yield Cause(DUPLICATE, where, f"{where} repeats an earlier entry ({', '.join(keys) or 'value'}); keep one")
        seen.add(identity)
