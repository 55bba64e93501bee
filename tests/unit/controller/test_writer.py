"""Merge patches turn one object into another."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from anyvisor.controller.writer import merge_patch

Json = dict[str, Any]
values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def patched(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(cast("Json", target)) if isinstance(target, dict) else {}
    for key, value in cast("Json", patch).items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


@given(before=objects, after=objects)
def test_a_merge_patch_leads_from_one_object_to_the_other(before: Json, after: Json) -> None:
    assert patched(before, merge_patch(before, after)) == after


@given(obj=objects)
def test_an_unchanged_object_needs_no_patch(obj: Json) -> None:
    assert merge_patch(obj, obj) == {}
