"""Validation rules of custom resources."""

from typing import Any

import pytest

from anyvisor.embedded.apiserver import rules
from anyvisor.embedded.apiserver.rules import broken_rules, check_rules
from anyvisor.embedded.apiserver.schema import UNSET, compile_schema

Json = dict[str, Any]


def rule(text: str, **more: Any) -> Json:
    return {"rule": text, **more}


SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": [
                rule("self.min <= self.max", message="min must not be above max", fieldPath=".min"),
                rule(
                    "!has(oldSelf.max) || self.max >= oldSelf.max",
                    messageExpression="'below ' + string(oldSelf.max)",
                ),
            ],
            "properties": {
                "min": {"type": "integer"},
                "max": {"type": "integer"},
                "name": {"type": "string", "x-kubernetes-validations": [
                    rule("self == oldSelf", message="name is immutable", reason="FieldValueForbidden")]},
                "once": {"type": "string", "x-kubernetes-validations": [
                    rule("!oldSelf.hasValue() || oldSelf.value() == self", optionalOldSelf=True)]},
                "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                          "items": {"type": "object", "properties": {
                              "k": {"type": "string"},
                              "v": {"type": "integer", "x-kubernetes-validations": [rule("self >= oldSelf")]}}}},
                "path": {"type": "string", "x-kubernetes-validations": [rule("self.startsWith('/')")]},
            },
        }
    },
}  # fmt: skip
NODE = compile_schema(SCHEMA)
GOOD: Json = {"min": 1, "max": 2}


@pytest.mark.parametrize(
    ("new", "old", "field", "message"),
    [
        ({"min": 3, "max": 2}, None, "spec.min", "Invalid value: min must not be above max"),
        ({"min": 1, "max": 2}, {"min": 1, "max": 5}, "spec", "below 5"),
        ({**GOOD, "name": "b"}, {**GOOD, "name": "a"}, "spec.name", "Forbidden: name is immutable"),
        ({**GOOD, "once": "b"}, {**GOOD, "once": "a"}, "spec.once", "failed rule: !oldSelf.hasValue()"),
        (
            {**GOOD, "items": [{"k": "b", "v": 9}, {"k": "a", "v": 1}]},
            {**GOOD, "items": [{"k": "a", "v": 2}]},
            "spec.items[1].v",
            "failed rule: self >= oldSelf",
        ),
        ({**GOOD, "path": "x"}, None, "spec.path", "failed rule: self.startsWith"),
        ({"min": 1}, None, "spec.min", "rule evaluation error: no such key: max"),
    ],
)
def test_broken_rules_are_named(new: Json, old: Json | None, field: str, message: str):
    causes = broken_rules(NODE, {"spec": new}, {"spec": old} if old is not None else UNSET)
    assert [cause.field for cause in causes] == [field]
    assert message in causes[0].message


def test_transition_rules_need_an_old_value():
    new = {**GOOD, "name": "b", "once": "x", "items": [{"k": "a", "v": 1}], "path": "/x"}
    assert broken_rules(NODE, {"spec": new}) == []
    assert broken_rules(NODE, {"spec": new}, {"spec": GOOD}) == []


def test_all_rules_of_an_object_share_one_budget(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "MAX_OBJECT_STEPS", 500)
    item = {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() + self.size() >= 0"}]}
    node = compile_schema({"type": "array", "items": item})
    assert broken_rules(node, ["a"] * 10) == []
    causes = broken_rules(node, ["a"] * 1000)
    assert 0 < len(causes) <= rules.MAX_CAUSES
    assert "too many steps" in causes[0].message


def test_a_rule_that_cannot_be_compiled_refuses_the_schema():
    bad: Json = {"type": "object", "properties": {"a": {
        "type": "array", "items": {"type": "string", "x-kubernetes-validations": [rule("self.nope()")]}}}}  # fmt: skip
    causes = list(check_rules(bad, "schema"))
    assert causes[0].field == "schema.properties[a].items.x-kubernetes-validations[0].rule"
    assert "nope() is not available in this server" in causes[0].message
    assert list(check_rules(SCHEMA, "schema")) == []
