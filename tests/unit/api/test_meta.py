"""Accessors bear any JSON, and conditions keep the time of their last change."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api import meta
from anyvisor.api.meta import StatusCause, StatusDetails

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "generation": 3,
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["f"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"uid": "1"}, {"uid": "2", "controller": True}],
    },
    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "t0"}]},
}


def test_accessors_find_what_is_there():
    assert (meta.name(POD), meta.namespace(POD), meta.uid(POD), meta.key(POD)) == ("p", "ns", "u", "ns/p")
    assert (meta.kind(POD), meta.api_version(POD)) == ("Pod", "v1")
    assert (meta.generation(POD), meta.resource_version(POD)) == (3, "7")
    assert (meta.labels(POD), meta.annotations(POD), meta.finalizers(POD)) == ({"a": "b"}, {"c": "d"}, ["f"])
    assert meta.is_deleting(POD)
    assert meta.controller_of(POD) == {"uid": "2", "controller": True}
    assert meta.condition_is(POD, "Ready")
    assert not meta.condition_is(POD, "Ready", "False")
    assert not meta.condition_is(POD, "Absent", "False")
    assert meta.key({"metadata": {"name": "node"}}) == "node"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "status", "name", "labels", "conditions", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["metadata", "status", "kind", "apiVersion"]), json_values, max_size=4))
def test_accessors_bear_any_object(obj: dict[str, Any]):
    texts = (meta.name, meta.namespace, meta.uid, meta.kind, meta.api_version, meta.resource_version, meta.key)
    assert all(isinstance(accessor(obj), str) for accessor in texts)
    assert isinstance(meta.labels(obj), dict)
    assert isinstance(meta.finalizers(obj), list)
    assert isinstance(meta.conditions(obj), list)
    assert isinstance(meta.generation(obj), int)
    assert isinstance(meta.is_deleting(obj), bool)


def test_a_condition_keeps_its_time_while_its_status_stays():
    present = meta.conditions(POD)
    same = meta.with_condition(present, {"type": "Ready", "status": "True", "reason": "New"}, "t1")
    assert same == [{"type": "Ready", "status": "True", "reason": "New", "lastTransitionTime": "t0"}]
    changed = meta.with_condition(present, {"type": "Ready", "status": "False"}, "t1")
    assert changed[0]["lastTransitionTime"] == "t1"
    added = meta.with_condition(present, {"type": "Paused", "status": "True"}, "t1")
    assert [entry["type"] for entry in added] == ["Ready", "Paused"]
    assert present == [{"type": "Ready", "status": "True", "lastTransitionTime": "t0"}]


def test_a_status_names_object_and_causes():
    details = StatusDetails(name="vm", kind="VirtualMachine", causes=(StatusCause(field="spec", message="m"),))
    assert meta.status_json(code=422, reason="Invalid", message="no", details=details) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "no",
        "reason": "Invalid",
        "details": {"name": "vm", "kind": "VirtualMachine", "causes": [{"message": "m", "field": "spec"}]},
        "code": 422,
    }
    assert meta.status_json(code=200, success=True)["status"] == "Success"


@pytest.mark.parametrize(("value", "expected"), [("v1", ("", "v1")), ("kubevirt.io/v1", ("kubevirt.io", "v1"))])
def test_group_and_version(value: str, expected: tuple[str, str]):
    assert meta.group_version(value) == expected


def test_an_owner_controls_by_its_reference():
    assert meta.controller_reference(POD) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }
