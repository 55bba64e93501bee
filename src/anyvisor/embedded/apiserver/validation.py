"""Validate objects against structural schemas, with the causes and sentences that Kubernetes gives.

A compiled JSON Schema says yes quickly; only when it says no, a walker looks for every mistake.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

import jsonschema_rs

from anyvisor.embedded.apiserver.fieldset import item_key
from anyvisor.embedded.apiserver.schema import ANYTHING, Node
from anyvisor.embedded.apiserver.status import Cause

Json = dict[str, Any]
MAX_CAUSES = 100
MAX_SHOWN = 200


def json_schema(schema: Json) -> Json:
    """Translate a structural schema into the JSON Schema (draft 2020-12) that accepts the same objects."""
    result: Json = {}
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        kind = ["integer", "string"]
    if kind:
        result["type"] = _nullable(kind) if schema.get("nullable") else kind
    for name in (
        "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties",
        "maxProperties", "required", "multipleOf",
    ):  # fmt: skip
        if name in schema:
            result[name] = schema[name]
    _bounds(schema, result)
    if "enum" in schema:
        result["enum"] = [*schema["enum"], None] if schema.get("nullable") else schema["enum"]
    if "properties" in schema:
        result["properties"] = {name: json_schema(item) for name, item in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = json_schema(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        result["items"] = json_schema(schema["items"])
    for name in ("allOf", "anyOf", "oneOf"):
        if name in schema and not schema.get("x-kubernetes-int-or-string"):
            result[name] = [json_schema(item) for item in schema[name]]
    if "not" in schema:
        result["not"] = json_schema(schema["not"])
    return result


def _nullable(kind: Any) -> list[str]:
    return [*kind, "null"] if isinstance(kind, list) else [kind, "null"]


def _bounds(schema: Json, result: Json) -> None:
    for name, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if name in schema:
            result[strict if schema.get(strict) is True else name] = schema[name]


def fast_check(schema: Json) -> Callable[[Any], bool]:
    """Return a test that is true for objects which obey the schema (list types and formats apart)."""
    return jsonschema_rs.validator_for(json_schema(schema)).is_valid


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "int-or-string": (int, str),
}


def type_name(value: Any) -> str:
    """Return the JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _shown(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def find_causes(node: Node, value: Any, path: str = "") -> list[Cause]:
    """Return every mistake of a value, at most MAX_CAUSES."""
    causes: list[Cause] = []
    _walk(node, value, path, causes)
    return causes[:MAX_CAUSES]


def special_causes(node: Node, value: Any, path: str = "") -> list[Cause]:
    """Return the mistakes that `fast_check` does not see: formats and repeated items of sets and list-maps."""
    causes: list[Cause] = []
    if node.special:
        _walk_special(node, value, path, causes)
    return causes[:MAX_CAUSES]


def _walk_special(node: Node, value: Any, path: str, causes: list[Cause]) -> None:
    if isinstance(value, dict):
        for name, item in cast("Json", value).items():
            child = node.props.get(name) or node.extra
            if child is not None and child.special:
                _walk_special(child, item, f"{path}.{name}" if path else name, causes)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if node.items is not None and node.items.special:
            for index, item in enumerate(items):
                _walk_special(node.items, item, f"{path}[{index}]", causes)
        _unique(node, items, path, causes)
    elif isinstance(value, str):
        _format(node.raw, value, path, causes)
    elif isinstance(value, int | float):
        _bits(node.raw, value, path, causes)


def _invalid(path: str, value: Any, why: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {path} in body {why}")


def _walk(node: Node, value: Any, path: str, causes: list[Cause]) -> None:
    if len(causes) >= MAX_CAUSES:
        return
    if value is None:
        if not node.nullable and node.type:
            causes.append(_wrong_type(path, value, node.type))
        return
    if node.type and not _has_type(value, node.type):
        causes.append(_wrong_type(path, value, node.type))
        _enum(node.raw, value, path, causes)
        return
    _constraints(node, value, path, causes)
    if isinstance(value, dict):
        _walk_object(node, cast("Json", value), path, causes)
    elif isinstance(value, list):
        _walk_list(node, cast("list[Any]", value), path, causes)


def _wrong_type(path: str, value: Any, wanted: str) -> Cause:
    shown = _shown(type_name(value))
    text = "integer,string" if wanted == "int-or-string" else wanted
    return Cause(
        path,
        "FieldValueTypeInvalid",
        f"Invalid value: {shown}: {path} in body must be of type {text}: {shown}",
    )


def _walk_object(node: Node, value: Json, path: str, causes: list[Cause]) -> None:
    causes.extend(
        Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
        for name in node.raw.get("required", ())
        if name not in value
    )
    low, high = node.raw.get("minProperties"), node.raw.get("maxProperties")
    if low is not None and len(value) < low:
        causes.append(_invalid(path, len(value), f"should have at least {low} properties"))
    if high is not None and len(value) > high:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {high} items"))
    for name, item in value.items():
        child = node.props.get(name)
        if child is not None:
            _walk(child, item, f"{path}.{name}" if path else name, causes)
        elif node.extra is not None:
            _walk(node.extra, item, f"{path}.{name}" if path else name, causes)


def _walk_list(node: Node, value: list[Any], path: str, causes: list[Cause]) -> None:
    low, high = node.raw.get("minItems"), node.raw.get("maxItems")
    if low is not None and len(value) < low:
        causes.append(_invalid(path, len(value), f"should have at least {low} items"))
    if high is not None and len(value) > high:
        causes.append(Cause(path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {high} items"))
    items = node.items or ANYTHING
    for index, item in enumerate(value):
        _walk(items, item, f"{path}[{index}]", causes)
    _unique(node, value, path, causes)


def _unique(node: Node, value: list[Any], path: str, causes: list[Cause]) -> None:
    if node.list_type not in ("set", "map"):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = item_key(node, item)
        if element is None:
            continue
        if element in seen:
            causes.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {element[2:]}"))
        seen.add(element)


def _constraints(node: Node, value: Any, path: str, causes: list[Cause]) -> None:
    raw = node.raw
    _enum(raw, value, path, causes)
    if isinstance(value, str):
        _string(raw, value, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _number(raw, value, path, causes)
    causes.extend(
        _invalid(path, value, f"must validate {_RULES[name]}")
        for name in ("allOf", "anyOf", "oneOf", "not")
        if name in raw and node.type != "int-or-string" and not _combination(name, raw[name], value)
    )


def _enum(raw: Json, value: Any, path: str, causes: list[Cause]) -> None:
    if "enum" in raw and value not in raw["enum"]:
        options = ", ".join(_shown(item) for item in raw["enum"])
        causes.append(
            Cause(
                path,
                "FieldValueNotSupported",
                f"Unsupported value: {_shown(value)}: supported values: {options}",
            )
        )


_RULES = {
    "allOf": "all the schemas (allOf)",
    "anyOf": "at least one schema (anyOf)",
    "oneOf": "one and only one schema (oneOf)",
    "not": "must not validate the schema (not)",
}


def _combination(name: str, schemas: Any, value: Any) -> bool:
    return _compiled(json.dumps({name: schemas}, sort_keys=True))(value)


@lru_cache(maxsize=512)
def _compiled(text: str) -> Callable[[Any], bool]:
    schema: Json = json.loads(text)
    return jsonschema_rs.validator_for(json_schema(schema)).is_valid


def _string(raw: Json, value: str, path: str, causes: list[Cause]) -> None:
    low, high, pattern = raw.get("minLength"), raw.get("maxLength"), raw.get("pattern")
    if high is not None and len(value) > high:
        causes.append(Cause(path, "FieldValueTooLong", f"Too long: may not be more than {high} bytes"))
    elif low is not None and len(value) < low:
        causes.append(_invalid(path, value, f"should be at least {low} chars long"))
    elif pattern is not None and not _combination("allOf", [{"pattern": pattern}], value):
        causes.append(_invalid(path, value, f"should match '{pattern}'"))
    _format(raw, value, path, causes)


def _format(raw: Json, value: str, path: str, causes: list[Cause]) -> None:
    form = raw.get("format")
    if form is not None and not _FORMATS.get(form, _any)(value):
        text = f"Invalid value: {_shown(value)}: {path} in body must be of type {form}: {_shown(value)}"
        causes.append(Cause(path, "FieldValueTypeInvalid", text))


def _number(raw: Json, value: float, path: str, causes: list[Cause]) -> None:
    low, high, step = raw.get("minimum"), raw.get("maximum"), raw.get("multipleOf")
    if low is not None and (value < low or (raw.get("exclusiveMinimum") and value == low)):
        strict = "" if raw.get("exclusiveMinimum") else " or equal to"
        causes.append(_invalid(path, value, f"should be greater than{strict} {low}"))
    if high is not None and (value > high or (raw.get("exclusiveMaximum") and value == high)):
        strict = "" if raw.get("exclusiveMaximum") else " or equal to"
        causes.append(_invalid(path, value, f"should be less than{strict} {high}"))
    if step is not None and value % step:
        causes.append(_invalid(path, value, f"should be a multiple of {step}"))
    _bits(raw, value, path, causes)


def _bits(raw: Json, value: float, path: str, causes: list[Cause]) -> None:
    bits = {"int32": 31, "int64": 63}.get(raw.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        causes.append(_invalid(path, value, f"must be of type {raw['format']}: {_shown(type_name(value))}"))


def _any(_value: str) -> bool:
    return True


def _parses(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return test


_DURATION = re.compile(r"[-+]?(\d+(\.\d*)?(ns|us|µs|ms|s|m|h|d|w))+|0")
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}([.,]\d+)?([Zz]|[-+]\d{2}:\d{2})")
_UUID = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")

_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": lambda value: (
        _DATE_TIME.fullmatch(value) is not None
        and _parses(datetime.fromisoformat)(value.upper().replace("Z", "+00:00").replace(",", "."))
    ),
    "date": _parses(lambda value: datetime.strptime(value, "%Y-%m-%d")),  # noqa: DTZ007 - only the form
    "duration": lambda value: _DURATION.fullmatch(value) is not None,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(ipaddress.ip_interface),
    "uuid": lambda value: _UUID.fullmatch(value) is not None,
}
