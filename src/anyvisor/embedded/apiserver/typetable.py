"""The built-in API types: one table of wire facts, read as OpenAPI schemas and as protobuf messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

Json = dict[str, Any]

SCALARS: Mapping[str, Json] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "quantity": {"x-kubernetes-int-or-string": True},
    "intorstring": {"x-kubernetes-int-or-string": True},
    "rawfields": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-map-type": "atomic"},
    "raw": {"x-kubernetes-preserve-unknown-fields": True},
    "json": {"x-kubernetes-preserve-unknown-fields": True},
    "schema": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-map-type": "atomic",
    },
}
"""How OpenAPI shows the types that have no message of their own in JSON."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    number: int
    name: str
    type: str
    """A scalar of `SCALARS` or the full name of a message."""
    repeated: bool = False
    mapped: bool = False
    inline: bool = False
    required: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    patch_strategy: str = ""
    patch_key: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One API type; `unwrapped` messages are written in JSON as a bare list of strings."""

    name: str
    fields: tuple[Field, ...]
    unwrapped: bool = False

    def by_number(self) -> dict[int, Field]:
        return {field.number: field for field in self.fields}


@cache
def messages() -> Mapping[str, Message]:
    """Return every message of the table by its full name, such as `core.v1.PodSpec`."""
    text = files(__package__ or "").joinpath("builtin_types.txt").read_text(encoding="ascii")
    found: dict[str, Message] = {}
    name = ""
    rows: list[str] = []
    for line in [*text.splitlines(), "end"]:
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            rows.append(line.strip())
            continue
        if name:
            found[name] = _message(name, rows)
        name, rows = line, []
    return found


def _message(name: str, rows: list[str]) -> Message:
    if rows and rows[0].startswith("= "):
        return Message(name, (Field(1, "items", "string", repeated=True),), unwrapped=True)
    package = name.rsplit(".", 1)[0]
    return Message(name, tuple(_field(package, row) for row in rows))


def _field(package: str, row: str) -> Field:
    number, name, kind, *attributes = row.split(" ")
    repeated, mapped = kind.startswith("[]"), kind.startswith("{}")
    kind = kind.removeprefix("[]").removeprefix("{}")
    if kind == "strings":
        repeated, kind = True, "string"
    elif kind not in SCALARS and "." not in kind:
        kind = f"{package}.{kind}"
    options = {name: value for name, _, value in (item.partition("=") for item in attributes)}
    list_type, _, keys = options.get("list", "").partition(":")
    strategy, _, key = options.get("patch", "").partition(":")
    return Field(
        number=int(number),
        name=name,
        type=kind,
        repeated=repeated,
        mapped=mapped,
        inline="inline" in options,
        required="req" in options,
        list_type=list_type,
        list_keys=tuple(keys.split(",")) if keys else (),
        atomic="atomic" in options,
        patch_strategy=strategy,
        patch_key=key,
        default=options.get("default", "") if "ref(" not in options.get("default", "") else "",
    )


def openapi_name(name: str) -> str:
    """Return the definition name that Kubernetes gives to a message."""
    group, rest = name.split(".", 1)
    if group == "meta":
        return f"io.k8s.apimachinery.pkg.apis.meta.{rest}"
    if group == "apiextensions":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{rest}"
    if group == "apiregistration":
        return f"io.k8s.kube-aggregator.pkg.apis.apiregistration.{rest}"
    return f"io.k8s.api.{name}"


REF = "#/components/schemas/"


def openapi_schema(name: str, kind: bool = False) -> Json:
    """Return the OpenAPI schema of one message; messages that it uses are `$ref`s."""
    properties: Json = {}
    required: list[str] = []
    if kind:
        properties["apiVersion"] = {"type": "string"}
        properties["kind"] = {"type": "string"}
    _collect(name, properties, required)
    schema: Json = {"type": "object", "properties": properties}
    if required:
        schema["required"] = sorted(required)
    if name == "core.v1.ObjectReference" or name.endswith("LabelSelector"):
        schema["x-kubernetes-map-type"] = "atomic"
    return schema


def _collect(name: str, properties: Json, required: list[str]) -> None:
    for field in messages()[name].fields:
        if field.inline:
            _collect(field.type, properties, required)
            continue
        properties[field.name] = _property(field)
        if field.required:
            required.append(field.name)


def _property(field: Field) -> Json:
    if field.type in SCALARS:
        base: Json = dict(SCALARS[field.type])
    elif messages()[field.type].unwrapped:
        base = {"type": "array", "items": {"type": "string"}}
    else:
        base = {"$ref": REF + openapi_name(field.type)}
    if field.default and base.get("type"):
        base["default"] = _default(base["type"], field.default)
    if not (field.repeated or field.mapped):
        return _with_marks(base, field)
    outer: Json = (
        {"type": "array", "items": base} if field.repeated else {"type": "object", "additionalProperties": base}
    )
    return _with_marks(outer, field)


def _default(kind: str, text: str) -> Any:
    if kind == "integer":
        return int(text)
    return text == "true" if kind == "boolean" else text


def _with_marks(schema: Json, field: Field) -> Json:
    marks: Json = {}
    if field.repeated:
        marks["x-kubernetes-list-type"] = field.list_type or "atomic"
        if field.list_keys:
            marks["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.atomic:
        marks["x-kubernetes-map-type"] = "atomic"
    if field.patch_strategy:
        marks["x-kubernetes-patch-strategy"] = field.patch_strategy
    if field.patch_key:
        marks["x-kubernetes-patch-merge-key"] = field.patch_key
    if not marks:
        return schema
    if "$ref" in schema:
        return {"allOf": [schema], **marks}
    return {**schema, **marks}


def closure(name: str) -> list[str]:
    """Return the names of all messages that `name` uses, itself included."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        todo.extend(field.type for field in messages()[current].fields if field.type not in SCALARS)
    return sorted(seen)
