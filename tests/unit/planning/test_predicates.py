"""The predicate language, by its table of cases."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.planning import predicates
from anyvisor.planning.predicates import PredicateError, compile_predicate

CASES = json.loads((Path(__file__).parent / "cases" / "predicates.json").read_text())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
SPECS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@pytest.mark.parametrize("case", CASES["predicates"], ids=lambda c: json.dumps(c["predicate"]))
def test_predicates(case: dict[str, Any]):
    assert compile_predicate(case["predicate"])(case["spec"]) == case["paths"]


@pytest.mark.parametrize("case", CASES["values"], ids=lambda c: json.dumps(c["value"]))
def test_value_expressions(case: dict[str, Any]):
    assert [list(place) for place in predicates.wanted(case["value"], case["spec"])] == case["wanted"]


NO_PREDICATES: list[Any] = [
    *(None, 1, "a", [], {}, {"exists": "a", "absent": "b"}, {"matches": "a"}, {"exists": 1}, {"exists": "a..b"}),
    *({"exists": "a[0]"}, {"eq": ["a"]}, {"eq": 1}, {"in": ["a", 1]}, {"compare": ["a", "~", 1]}),
    *({"compare": ["a", ">", "x"]}, {"all": 1}, {"any": [{}]}, {"not": []}),
]


@pytest.mark.parametrize("form", NO_PREDICATES)
def test_what_is_no_predicate_is_refused(form: Any):
    with pytest.raises(PredicateError):
        compile_predicate(form)


@given(
    spec=st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), index=st.integers(0, len(CASES["predicates"]) - 1)
)
def test_no_spec_makes_a_predicate_raise_and_not_negates(spec: dict[str, Any], index: int):
    form = CASES["predicates"][index]["predicate"]
    holds = compile_predicate(form)(spec) is not None
    assert (compile_predicate({"not": form})(spec) is None) == holds


@given(spec=SPECS, index=st.integers(0, len(CASES["values"]) - 1))
def test_no_spec_makes_a_value_expression_raise(spec: dict[str, Any], index: int):
    for where, _ in predicates.wanted(CASES["values"][index]["value"], spec):
        assert isinstance(where, str)
