"""Decode the protobuf bodies that typed clients post for built-in kinds.

kubectl and client-go encode requests for built-in kinds this way and do not fall back to JSON. The envelope is
Kubernetes' own: four magic bytes, then a message {1: {1: apiVersion, 2: kind}, 2: the object's bytes}.
Answers are always JSON, which these clients accept.
"""

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from anyvisor.embedded.apiserver.typetable import SCALARS, Field, Message, messages

Json = dict[str, Any]
MAGIC = b"k8s\x00"
MAX_DEPTH = 64


class ProtobufError(ValueError):
    """The bytes are no message of the type that they claim to be."""


def decode(body: bytes) -> Json:
    """Return the JSON object of an enveloped protobuf body.

    Raises ProtobufError when the body is damaged or its kind is not in the table.
    """
    if not body.startswith(MAGIC):
        raise ProtobufError("the body does not start with the magic bytes of Kubernetes' protobuf encoding")
    try:
        return _envelope(body)
    except (TypeError, OverflowError, UnicodeDecodeError, struct.error) as error:
        raise ProtobufError(f"a field has another type than its kind says: {error}") from error


def _envelope(body: bytes) -> Json:
    api_version = kind = ""
    raw = b""
    for number, wire, value in _fields(body[len(MAGIC) :]):
        if number == 1 and wire == 2:
            for inner, _, text in _fields(value):
                if inner == 1:
                    api_version = bytes(text).decode()
                elif inner == 2:
                    kind = bytes(text).decode()
        elif number == 2 and wire == 2:
            raw = bytes(value)
    message = messages().get(message_name(api_version, kind))
    if message is None:
        raise ProtobufError(f"kind {kind!r} of {api_version!r} is not known in protobuf; send JSON")
    return {"apiVersion": api_version, "kind": kind, **_message(message, raw, 0)}


def message_name(api_version: str, kind: str) -> str:
    """Return the table's name of a kind: the first word of the group, the version, the kind."""
    group, _, version = api_version.rpartition("/")
    if kind in ("DeleteOptions", "Status", "CreateOptions", "UpdateOptions", "PatchOptions"):
        return f"meta.v1.{kind}"
    package = {"": "core", "rbac.authorization.k8s.io": "rbac"}.get(group, group.split(".")[0])
    return f"{package}.{version}.{kind}"


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ProtobufError("a number runs past the end of the body")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(raw: bytes | memoryview) -> Iterator[tuple[int, int, Any]]:
    data = memoryview(raw)
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ProtobufError(f"unknown wire type {wire}")
        if at + size > len(data):
            raise ProtobufError("a field runs past the end of the body")
        yield number, wire, data[at : at + size]
        at += size


def _message(message: Message, raw: bytes | memoryview, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise ProtobufError(f"the body is nested deeper than {MAX_DEPTH} levels")
    table = message.by_number()
    result: Json = {}
    for number, wire, value in _fields(raw):
        field = table.get(number)
        if field is None:
            continue
        if field.inline:
            result.update(_message(messages()[field.type], value, depth + 1))
        elif field.mapped:
            key, entry = _entry(field, value, depth)
            result.setdefault(field.name, {})[key] = entry
        elif field.repeated:
            result.setdefault(field.name, []).extend(_repeated(field, wire, value, depth))
        else:
            result[field.name] = _value(field, wire, value, depth)
    return {name: value for name, value in result.items() if value not in ("", None)}


def _entry(field: Field, raw: memoryview, depth: int) -> tuple[str, Any]:
    key = ""
    value: Any = "" if field.type in ("string", "bytes") else None
    for number, wire, item in _fields(raw):
        if number == 1:
            key = bytes(item).decode()
        elif number == 2:
            value = _value(field, wire, item, depth)
    return key, value


def _repeated(field: Field, wire: int, value: Any, depth: int) -> list[Any]:
    if wire == 2 and field.type in ("int32", "int64", "bool"):
        at, found = 0, list[Any]()
        while at < len(value):
            number, at = _varint(value, at)
            found.append(_integer(field.type, number))
        return found
    return [_value(field, wire, value, depth)]


def _integer(kind: str, value: int) -> Any:
    if kind == "bool":
        return value != 0
    return value - (1 << 64) if value >= 1 << 63 else value


def _value(field: Field, wire: int, value: Any, depth: int) -> Any:
    kind = field.type
    if kind == "double":
        return struct.unpack("<d", value)[0]
    if kind in ("int32", "int64", "bool"):
        return _integer(kind, value)
    try:
        if kind == "string":
            return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise ProtobufError(f"field {field.name} is not valid UTF-8") from error
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind in SCALARS:
        return _special(kind, {number: item for number, _, item in _fields(value)})
    message = messages()[kind]
    nested = _message(message, value, depth + 1)
    return nested.get("items", []) if message.unwrapped else nested


def _special(kind: str, parts: dict[int, Any]) -> Any:
    match kind:
        case "time" | "microtime":
            if not parts:
                return None
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=_integer("int64", parts.get(1, 0)))
            if kind == "time":
                return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{parts.get(2, 0) // 1000:06d}Z"
        case "quantity":
            return bytes(parts.get(1, b"")).decode()
        case "intorstring":
            if parts.get(1, 0) == 0:
                return _integer("int64", parts.get(2, 0))
            return bytes(parts.get(3, b"")).decode()
        case "duration":
            return f"{_integer('int64', parts.get(1, 0)) / 1e9:g}s"
        case _:
            return _json(bytes(parts.get(1, b"")))


def _json(raw: bytes) -> Any:
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ProtobufError("an embedded JSON value is damaged") from error
