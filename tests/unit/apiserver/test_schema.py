"""Pruning, defaults and validation of structural schemas; tables; columns."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anyvisor.embedded.apiserver import table, validation
from anyvisor.embedded.apiserver.jsonpath import JsonPathError, compile_path
from anyvisor.embedded.apiserver.schema import compile_schema, prune, set_defaults

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "required": ["r"],
    "properties": {
        "r": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "i": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 5, "exclusiveMaximum": True},
        "e": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "nul": {"type": "string", "nullable": True},
        "any": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {
            "typed": {"type": "object", "properties": {"x": {"type": "integer"}}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "d": {"type": "integer", "default": 7}}}},
        "keyed": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                  "items": {"type": "object", "required": ["k"], "properties": {
                      "k": {"type": "string"}, "d": {"type": "boolean", "default": False}}}},
        "time": {"type": "string", "format": "date-time"},
        "one": {"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
        "res": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"s": {"type": "string"}}},
    },
}  # fmt: skip
NODE = compile_schema(SCHEMA)
CHECK = validation.fast_check(SCHEMA)


def test_prune_reports_and_removes_unknown_fields():
    obj: Json = {
        "r": "ab", "u": 1, "free": {"v": 1, "typed": {"x": 1, "y": 2}}, "map": {"m": {"z": 1}},
        "keyed": [{"k": "a", "q": 1}], "res": {"kind": "K", "metadata": {}, "bad": 1}, "nul": None, "i": None,
    }  # fmt: skip
    unknown: list[str] = []
    prune(NODE, obj, "", unknown)
    assert sorted(unknown) == ["free.typed.y", "keyed[0].q", "map.m.z", "res.bad", "u"]
    assert obj == {
        "r": "ab", "free": {"v": 1, "typed": {"x": 1}}, "map": {"m": {}}, "keyed": [{"k": "a"}],
        "res": {"kind": "K", "metadata": {}}, "nul": None,
    }  # fmt: skip


def test_defaults_reach_into_maps_and_lists():
    obj: Json = {"map": {"m": {}}, "keyed": [{"k": "a"}, {"k": "b", "d": True}]}
    set_defaults(NODE, obj)
    assert obj["e"] == "a"
    assert obj["map"] == {"m": {"d": 7}}
    assert obj["keyed"] == [{"k": "a", "d": False}, {"k": "b", "d": True}]


MISTAKES: list[tuple[Json, str, str, str]] = [
    ({}, "r", "FieldValueRequired", "Required value"),
    ({"r": 1}, "r", "FieldValueTypeInvalid", 'r in body must be of type string: "integer"'),
    ({"r": "a"}, "r", "FieldValueInvalid", "should be at least 2 chars long"),
    ({"r": "abcde"}, "r", "FieldValueTooLong", "Too long: may not be more than 4 bytes"),
    ({"r": "A1"}, "r", "FieldValueInvalid", "should match '^[a-z]+$'"),
    ({"r": "ab", "i": 0}, "i", "FieldValueInvalid", "should be greater than or equal to 1"),
    ({"r": "ab", "i": 5}, "i", "FieldValueInvalid", "should be less than 5"),
    ({"r": "ab", "i": True}, "i", "FieldValueTypeInvalid", "must be of type integer"),
    ({"r": "ab", "e": "c"}, "e", "FieldValueNotSupported", 'supported values: "a", "b"'),
    ({"r": "ab", "any": 1.5}, "any", "FieldValueTypeInvalid", "integer,string"),
    ({"r": "ab", "keyed": [{"k": "a"}, {"k": "a"}]}, "keyed[1]", "FieldValueDuplicate", '{"k":"a"}'),
    ({"r": "ab", "keyed": [{}, {}, {}]}, "keyed", "FieldValueTooMany", "must have at most 2 items"),
    ({"r": "ab", "keyed": [{}]}, "keyed[0].k", "FieldValueRequired", "Required value"),
    ({"r": "ab", "time": "soon"}, "time", "FieldValueTypeInvalid", "must be of type date-time"),
    ({"r": "ab", "one": {"x": 1, "y": 2}}, "one", "FieldValueInvalid", "one and only one schema"),
    ({"r": "ab", "map": {"m": 1}}, "map.m", "FieldValueTypeInvalid", "must be of type object"),
]


@pytest.mark.parametrize(("obj", "field", "reason", "message"), MISTAKES)
def test_each_mistake_is_named(obj: Json, field: str, reason: str, message: str):
    causes = validation.find_causes(NODE, obj)
    assert any(c.field == field and c.reason == reason and message in c.message for c in causes), causes
    if CHECK(obj):
        assert validation.special_causes(NODE, obj) == causes


def test_a_good_object_passes_both_ways():
    good: Json = {"r": "ab", "i": 4, "nul": None, "any": "1Gi", "keyed": [{"k": "a"}], "time": "2026-01-01T00:00:00Z"}
    assert CHECK(good)
    assert validation.find_causes(NODE, good) == []
    assert validation.special_causes(NODE, good) == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("a.b", [1]),
        ("{.a.b}", [1]),
        (".l[0].n", ["x"]),
        (".l[-1].n", ["y"]),
        (".l[*].n", ["x", "y"]),
        ('.l[?(@.n=="y")].v', [2]),
        (".l[?(@.v==1)].n", ["x"]),
        (".l[?(@.v!=1)].n", ["y"]),
        (".missing.deep", []),
        ("['a']['b']", [1]),
        (r".m.k8s\.io/x", ["dot"]),
    ],
)
def test_json_paths(path: str, found: list[Any]):
    obj = {"a": {"b": 1}, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "m": {"k8s.io/x": "dot"}}
    assert compile_path(path)(obj) == found


def test_bad_json_path():
    with pytest.raises(JsonPathError):
        compile_path(".a[?(@.b~=1)]")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (3 * 3600, "3h"), (9 * 3600, "9h"), (50 * 3600, "2d2h"),
     (3 * 365 * 86400, "3y"), (20 * 86400, "20d"), (-60, "<invalid>")],
)  # fmt: skip
def test_ages(seconds: int, text: str):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    stamp = (now - timedelta(seconds=seconds)).isoformat()
    assert table.age(stamp, now) == text
