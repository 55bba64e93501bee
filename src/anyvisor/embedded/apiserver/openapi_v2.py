"""OpenAPI v2 for clients that still ask for it: kubectl for `kind: List`, Helm, older libraries.

kubectl asks for the protobuf form (`openapi.v2.Document` of the gnostic project) and for nothing else; others ask
for JSON. Both are made from the v3 documents.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anyvisor.embedded.apiserver import openapi
from anyvisor.embedded.apiserver.codec import encode_json
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.typetable import REF
from anyvisor.embedded.apiserver.values import as_list, as_object

Json = dict[str, Any]

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PROTOBUF_ANSWER = PROTOBUF.replace("@", ".")
"""The same type as answers name it: an at sign is no legal character of a media type."""
_KEPT = (
    "description", "format", "pattern", "required", "enum", "default", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties", "multipleOf",
)  # fmt: skip


def document(resources: Sequence[Resource]) -> Json:
    """Return the v2 document of everything that is served."""
    definitions: Json = {}
    paths: Json = {}
    for group, version in sorted({(item.group, item.version) for item in resources}):
        made = openapi.document(resources, group, version)
        if made is None:
            continue
        for name, schema in made["components"]["schemas"].items():
            definitions.setdefault(name, convert(schema))
        for path, item in made["paths"].items():
            paths[path] = {
                method: _operation(operation) for method, operation in item.items() if method != "parameters"
            }
    return {
        "swagger": "2.0",
        "info": {"title": "Anyvisor", "version": "v1"},
        "paths": paths,
        "definitions": definitions,
    }


def convert(schema: Json) -> Json:
    """Return the v2 form of a v3 schema; what v2 cannot say becomes "anything"."""
    reference = schema.get("$ref") or next((item.get("$ref") for item in as_list(schema.get("allOf"))), None)
    extensions = {name: value for name, value in schema.items() if name.startswith("x-kubernetes-")}
    if reference:
        return {"$ref": "#/definitions/" + str(reference).removeprefix(REF), **extensions}
    result: Json = {name: schema[name] for name in _KEPT if name in schema}
    result.update(extensions)
    if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"):
        result.pop("required", None)
        return result
    if "type" in schema:
        result["type"] = schema["type"]
    if "properties" in schema:
        result["properties"] = {name: convert(item) for name, item in as_object(schema["properties"]).items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            result[name] = convert(schema[name])
    if result.get("type") == "array" and "items" not in result:
        result["items"] = {}
    return result


def _operation(operation: Json) -> Json:
    parameters = [
        {"name": item["name"], "in": "query", "type": item["schema"]["type"], "uniqueItems": True}
        for item in operation["parameters"]
    ]
    return {
        "operationId": operation["operationId"],
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": operation["x-kubernetes-action"],
        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
    }


# -- the protobuf form: messages are bytes, written field by field ----------------------------------------------


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _bytes(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value & (1 << 64) - 1)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _any(value: Any) -> bytes:
    return _bytes(2, encode_json(value) + b"\n")


def _named(number: int, pairs: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join(_bytes(number, _bytes(1, name) + _bytes(2, value)) for name, value in pairs)


def _extensions(number: int, source: Json) -> bytes:
    return _named(number, ((name, _any(value)) for name, value in source.items() if name.startswith("x-")))


_TEXTS: Mapping[str, int] = {"$ref": 1, "format": 2, "description": 4, "pattern": 13}
_DOUBLES: Mapping[str, int] = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_NUMBERS: Mapping[str, int] = {
    "exclusiveMaximum": 8,
    "exclusiveMinimum": 10,
    "maxLength": 11,
    "minLength": 12,
    "maxItems": 14,
    "minItems": 15,
    "uniqueItems": 16,
    "maxProperties": 17,
    "minProperties": 18,
}


def _schema(schema: Json) -> bytes:
    parts = [_bytes(number, schema[name]) for name, number in _TEXTS.items() if name in schema]
    parts += [_double(number, schema[name]) for name, number in _DOUBLES.items() if name in schema]
    parts += [_integer(number, int(schema[name])) for name, number in _NUMBERS.items() if name in schema]
    if "default" in schema:
        parts.append(_bytes(5, _any(schema["default"])))
    parts += [_bytes(19, name) for name in as_list(schema.get("required"))]
    parts += [_bytes(20, _any(value)) for value in as_list(schema.get("enum"))]
    if "additionalProperties" in schema:
        parts.append(_bytes(21, _bytes(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_bytes(22, _bytes(1, schema["type"])))
    if "items" in schema:
        parts.append(_bytes(23, _bytes(1, _schema(schema["items"]))))
    if "properties" in schema:
        fields = ((name, _schema(item)) for name, item in as_object(schema["properties"]).items())
        parts.append(_bytes(25, _named(1, fields)))
    parts.append(_extensions(31, schema))
    return b"".join(parts)


_METHODS: Mapping[str, int] = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def _query_parameter(parameter: Json) -> bytes:
    query = _bytes(2, "query") + _bytes(4, parameter["name"]) + _bytes(6, parameter["type"]) + _integer(20, 1)
    return _bytes(1, _bytes(2, _bytes(3, query)))


def _operation_message(operation: Json) -> bytes:
    answer = _bytes(1, _bytes(1, "OK"))
    return b"".join(
        [
            _bytes(5, operation["operationId"]),
            *(_bytes(8, _query_parameter(item)) for item in operation["parameters"]),
            _bytes(9, _named(1, [("200", answer)])),
            _extensions(13, operation),
        ]
    )


def _path_item(item: Json) -> bytes:
    return b"".join(_bytes(_METHODS[method], _operation_message(operation)) for method, operation in item.items())


def encode(document: Json) -> bytes:
    """Return the protobuf form of a v2 document."""
    info = _bytes(1, document["info"]["title"]) + _bytes(2, document["info"]["version"])
    paths = _named(2, ((path, _path_item(item)) for path, item in document["paths"].items()))
    definitions = _named(1, ((name, _schema(schema)) for name, schema in document["definitions"].items()))
    return _bytes(1, document["swagger"]) + _bytes(2, info) + _bytes(8, paths) + _bytes(9, definitions)
