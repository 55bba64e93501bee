"""Server-side apply: merging, ownership, conflicts, removal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.apiserver import apply as ssa
from anyvisor.embedded.apiserver import fieldset as fs
from anyvisor.embedded.apiserver.schema import Node, compile_schema
from anyvisor.embedded.apiserver.status import StatusError

Json = dict[str, Any]

SCHEMA = compile_schema(
    {
        "type": "object",
        "properties": {
            "metadata": {"type": "object", "properties": {
                "name": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer"},
                    "sub": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
                    "fixed": {
                        "type": "object", "x-kubernetes-map-type": "atomic",
                        "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                    },
                    "map": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {
                            "name": {"type": "string"}, "v": {"type": "integer"}, "w": {"type": "integer"},
                        }},
                    },
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "list": {"type": "array", "items": {"type": "string"}},
                },
            },
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    }
)  # fmt: skip
NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:01Z"


def config(**spec: Any) -> Json:
    return {"apiVersion": "t/v1", "kind": "T", "metadata": {"name": "n"}, "spec": spec}


def apply(live: Json | None, manager: str, wanted: Json, *, force: bool = False, now: str = NOW) -> Json:
    who = ssa.Manager(manager, "Apply", "t/v1")
    return ssa.apply(SCHEMA, live, wanted, who, now, force=force, ignored={"f:status": {}})


def update(live: Json, manager: str, **spec: Any) -> Json:
    new: Json = {**live, "metadata": dict(live["metadata"]), "spec": {**live["spec"], **spec}}
    who = ssa.Manager(manager, "Update", "t/v1")
    ssa.record_update(SCHEMA, live, new, who, NOW, {"f:status": {}})
    return new


def owners(obj: Json) -> dict[str, list[str]]:
    return {item.manager.name: sorted(fs.paths(item.fields)) for item in ssa.read_managed(obj)}


def test_an_applier_owns_exactly_what_it_says():
    obj = apply(None, "one", config(a=1, sub={"x": 1}, map=[{"name": "k", "v": 1}], set=["s"], list=["l"]))
    assert owners(obj) == {
        "one": [
            ".spec.a",
            ".spec.list",
            '.spec.map[name="k"]',
            '.spec.map[name="k"].name',
            '.spec.map[name="k"].v',
            '.spec.set[="s"]',
            ".spec.sub.x",
        ]
    }
    wire = obj["metadata"]["managedFields"][0]
    assert wire["fieldsV1"]["f:spec"]["f:map"] == {'k:{"name":"k"}': {".": {}, "f:name": {}, "f:v": {}}}
    assert wire["fieldsType"] == "FieldsV1"


def test_what_is_no_longer_applied_goes():
    obj = apply(None, "one", config(a=1, b=2, map=[{"name": "k", "v": 1}, {"name": "l", "v": 2}], set=["s", "t"]))
    obj = apply(obj, "one", config(a=1, map=[{"name": "l", "w": 3}], set=["t"]))
    assert obj["spec"] == {"a": 1, "map": [{"name": "l", "w": 3}], "set": ["t"]}


def test_what_another_manager_owns_stays():
    obj = apply(None, "one", config(a=1, b=2))
    obj = apply(obj, "two", config(b=2))
    obj = apply(obj, "one", config(a=1))
    assert obj["spec"] == {"a": 1, "b": 2}
    assert owners(obj) == {"one": [".spec.a"], "two": [".spec.b"]}


def test_conflict_names_manager_and_field_and_force_takes_over():
    obj = apply(None, "one", config(a=1, b=2))
    with pytest.raises(StatusError) as caught:
        apply(obj, "two", config(a=9, b=9))
    assert caught.value.code == 409
    assert caught.value.message == (
        'Apply failed with 2 conflicts:\n- conflict with "one": .spec.a\n- conflict with "one": .spec.b'
    ) or caught.value.message.startswith("Apply failed with 2 conflicts: ")
    fields = [cause["field"] for cause in caught.value.details["causes"]]
    assert fields == [".spec.a", ".spec.b"]
    obj = apply(obj, "two", config(a=9), force=True)
    assert owners(obj) == {"one": [".spec.b"], "two": [".spec.a"]}


def test_same_value_is_shared_ownership():
    obj = apply(apply(None, "one", config(a=1)), "two", config(a=1))
    assert owners(obj) == {"one": [".spec.a"], "two": [".spec.a"]}


def test_update_takes_changed_fields_from_appliers():
    obj = update(apply(None, "one", config(a=1, b=2)), "editor", b=3)
    assert owners(obj) == {"one": [".spec.a"], "editor": [".spec.b"]}
    with pytest.raises(StatusError, match='conflict with "editor" using t/v1: '):
        apply(obj, "one", config(a=1, b=2))


def test_atomic_values_are_owned_whole():
    obj = apply(None, "one", config(fixed={"x": 1}, list=["a"]))
    assert owners(obj) == {"one": [".spec.fixed", ".spec.list"]}
    obj = apply(obj, "one", config(fixed={"y": 2}, list=["b"]))
    assert obj["spec"] == {"fixed": {"y": 2}, "list": ["b"]}


def test_applying_again_changes_nothing():
    obj = apply(None, "one", config(a=1, map=[{"name": "k", "v": 1}]))
    assert apply(obj, "one", config(a=1, map=[{"name": "k", "v": 1}]), now=LATER) == obj


def test_first_apply_on_an_object_without_books():
    live = config(a=1, b=2)
    obj = apply(live, "one", config(b=2))
    assert owners(obj) == {"before-first-apply": [".spec.a", ".spec.b"], "one": [".spec.b"]}


def test_nobody_owns_that_a_map_is_empty_once_it_is_not():
    obj: Json = {**config(), "spec": {}}
    obj = apply(obj, "one", config(a=1), force=True)
    assert [item["manager"] for item in obj["metadata"]["managedFields"]] == ["one"]


def test_status_and_identity_belong_to_nobody():
    wanted: Json = {**config(a=1), "status": {"phase": "x"}}
    assert owners(apply(None, "one", wanted)) == {"one": [".spec.a"]}


def test_list_order_follows_the_configuration_for_shared_items():
    obj = apply(None, "one", config(map=[{"name": n} for n in "abc"]))
    obj = apply(obj, "two", config(map=[{"name": n} for n in "xcb"]))
    assert [item["name"] for item in obj["spec"]["map"]] == ["a", "x", "c", "b"]


def test_true_is_not_one():
    changed, _ = fs.compare(SCHEMA, config(a=1), config(a=True))
    assert list(fs.paths(changed)) == [".spec.a"]


def test_whoever_applies_through_another_version_is_the_same_manager():
    obj = apply(None, "one", config(a=1, set=["s"]))
    newer = ssa.apply(SCHEMA, obj, config(a=2), ssa.Manager("one", "Apply", "t/v2"), NOW, force=False, ignored={})
    assert "set" not in newer["spec"]
    assert [item.manager.api_version for item in ssa.read_managed(newer)] == ["t/v2"]


def test_an_apply_that_changes_nothing_has_no_time():
    obj = apply(None, "one", config(a=1))
    both = apply(obj, "two", config(a=1))
    assert {item.manager.name: bool(item.time) for item in ssa.read_managed(both)} == {"one": True, "two": False}


def test_empty_managed_fields_reset_the_books():
    obj = apply(None, "one", config(a=1))
    new: Json = {**obj, "metadata": {"name": "n", "managedFields": [{}]}}
    ssa.record_update(SCHEMA, obj, new, ssa.Manager("m", "Update", "t/v1"), NOW, {})
    assert "managedFields" not in new["metadata"]


def test_many_updaters_are_merged_into_the_ancient_one():
    obj = config(a=0)
    for index in range(15):
        obj = update(obj, f"m{index}", **{"a" if index % 2 else "b": index, "sub": {"x": index}})
    updates = [item for item in ssa.read_managed(obj) if item.manager.operation == "Update"]
    assert len(updates) <= ssa.MAX_UPDATE_MANAGERS


specs: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 2),
        "sub": st.fixed_dictionaries({}, optional={"x": st.integers(0, 2), "y": st.integers(0, 2)}),
        "map": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("pqr")}, optional={"v": st.integers(0, 2)}),
            max_size=3,
            unique_by=lambda item: item["name"],
        ),
        "set": st.lists(st.sampled_from("stu"), max_size=3, unique=True),
        "list": st.lists(st.sampled_from("lm"), max_size=2),
    },
)


def contains(node: Node, value: Any, part: Any) -> bool:
    return fs.compare(node, value, ssa.merge(node, value, part)) == ({}, {})


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), specs), min_size=1, max_size=5))
def test_forced_applies_always_hold_and_only_owned_fields_remain(steps: list[tuple[str, Json]]):
    obj: Json | None = None
    for manager, spec in steps:
        obj = apply(obj, manager, config(**spec), force=True)
        stated = {name: value for name, value in spec.items() if value or name not in ("map", "set")}
        assert not stated or contains(SCHEMA, obj, config(**stated)), (
            "what was applied is there; nobody owns an empty list of items"
        )
    assert obj is not None
    owned: fs.FieldSet = {}
    for item in ssa.read_managed(obj):
        owned = fs.union(owned, item.fields)
    have = fs.difference(fs.of_object(SCHEMA.props["spec"], obj.get("spec", {})), {})
    left = fs.difference(have, owned.get("f:spec", {}))
    assert list(fs.paths(left)) in ([], [""]), "nothing remains that nobody owns"


@given(specs, specs)
def test_set_algebra(one: Json, two: Json):
    node = SCHEMA.props["spec"]
    a, b = fs.of_object(node, one), fs.of_object(node, two)
    as_sets = {name: set(fs.paths(value)) for name, value in (("a", a), ("b", b))}
    assert set(fs.paths(fs.union(a, b))) == as_sets["a"] | as_sets["b"]
    assert set(fs.paths(fs.difference(a, b))) == as_sets["a"] - as_sets["b"]
    assert set(fs.paths(fs.intersection(a, b))) == as_sets["a"] & as_sets["b"]
    assert fs.read_root(fs.to_wire(a)) == a
