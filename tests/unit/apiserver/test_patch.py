"""JSON patch, merge patch and strategic merge patch."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.apiserver.builtin_types import kind_node
from anyvisor.embedded.apiserver.patch import PatchError, json_patch, merge_patch, strategic_merge
from anyvisor.embedded.apiserver.status import StatusError

Json = dict[str, Any]

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b", "~/", ""])
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


@given(objects, objects)
def test_json_patch_turns_one_object_into_another(source: Json, target: Json):
    operations: list[Json] = jsonpatch.make_patch(source, target).patch
    before = copy.deepcopy(source)
    assert json_patch(source, operations) == target
    assert source == before, "the patch works on a copy"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "remove", "path": "/x"}, "'x' is missing"),
        ({"op": "test", "path": "/a", "value": 2}, "testing value /a failed"),
        ({"op": "add", "path": "/l/9", "value": 1}, "is no index"),
        ({"op": "replace", "path": "/l/-1", "value": 1}, "is no index"),
        ({"op": "add", "path": "/a/b", "value": 1}, "its parent is no object"),
        ({"op": "remove", "path": ""}, "cannot be removed"),
        ({"op": "jump", "path": "/a"}, "unknown operation"),
    ],
)
def test_json_patch_refuses_with_the_path(operation: Json, message: str):
    with pytest.raises(PatchError, match=message):
        json_patch({"a": 1, "l": [1]}, [operation])


@pytest.mark.parametrize("patch", [{}, [1], [{"op": "add", "path": "/a"}], [{}]])
def test_malformed_json_patch_is_a_bad_request(patch: Any):
    with pytest.raises(StatusError) as caught:
        json_patch({}, patch)
    assert caught.value.code == 400


RFC_7386: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "result"), RFC_7386)
def test_merge_patch_follows_the_rfc(document: Any, patch: Any, result: Any):
    assert merge_patch(document, patch) == result


def pod(**spec: Any) -> Json:
    return {"spec": spec}


CONTAINERS = [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}]
STRATEGIC: list[tuple[str, Json, Json, Json]] = [
    (
        "items are merged by key",
        pod(containers=CONTAINERS),
        pod(containers=[{"name": "b", "image": "3"}]),
        pod(containers=[CONTAINERS[0], {"name": "b", "image": "3"}]),
    ),
    (
        "new items come before those that the patch does not name",
        pod(containers=CONTAINERS[:1]),
        pod(containers=[{"name": "c"}]),
        pod(containers=[{"name": "c"}, CONTAINERS[0]]),
    ),
    (
        "nested keyed lists",
        pod(containers=CONTAINERS),
        pod(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}]}]),
        pod(
            containers=[
                {"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
                CONTAINERS[1],
            ]
        ),
    ),
    (
        "delete one item",
        pod(containers=CONTAINERS),
        pod(containers=[{"name": "a", "$patch": "delete"}]),
        pod(containers=[CONTAINERS[1]]),
    ),
    (
        "replace the list",
        pod(containers=CONTAINERS),
        pod(containers=[{"name": "z"}, {"$patch": "replace"}]),
        pod(containers=[{"name": "z"}]),
    ),
    (
        "order of items",
        pod(containers=CONTAINERS),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        pod(containers=[CONTAINERS[1], CONTAINERS[0]]),
    ),
    (
        "union type keeps only what is retained",
        pod(volumes=[{"name": "v", "emptyDir": {}}]),
        pod(volumes=[{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]),
        pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
    ),
    (
        "lists without a strategy are replaced",
        pod(containers=[{"name": "a", "args": ["1", "2"]}]),
        pod(containers=[{"name": "a", "args": ["3"]}]),
        pod(containers=[{"name": "a", "args": ["3"]}]),
    ),
    (
        "primitive lists: merge and delete",
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b", "c"]}},
    ),
    ("null removes", pod(nodeName="n", hostname="h"), pod(nodeName=None), pod(hostname="h")),
]


@pytest.mark.parametrize(("document", "patch", "result"), [c[1:] for c in STRATEGIC], ids=[c[0] for c in STRATEGIC])
def test_strategic_merge(document: Json, patch: Json, result: Json):
    before = copy.deepcopy(document)
    assert strategic_merge(document, patch, kind_node("core.v1.Pod")) == result
    assert document == before


def test_strategic_merge_needs_the_key():
    with pytest.raises(PatchError, match="does not contain declared merge key: name"):
        strategic_merge(pod(containers=CONTAINERS), pod(containers=[{"image": "x"}]), kind_node("core.v1.Pod"))
