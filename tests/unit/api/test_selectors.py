"""Selectors read as Kubernetes reads them, and match as Kubernetes matches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api.selectors import (
    EVERYTHING,
    NOTHING,
    Selector,
    SelectorError,
    parse_field_selector,
    parse_selector,
    selector_of,
)

LABELS = {"app": "web", "tier": "", "n": "5", "example.com/x": "y"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("  ", True),
        ("app=web", True),
        ("app==web", True),
        (" app = web ", True),
        ("app=db", False),
        ("app!=db", True),
        ("absent!=db", True),
        ("app!=web", False),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("! absent", True),
        ("!app", False),
        ("app in (web,db)", True),
        ("app in ( db )", False),
        ("absent in (web)", False),
        ("app notin (web,db)", False),
        ("absent notin (web)", True),
        ("tier=", True),
        ("tier in (,x)", True),
        ("tier in ()", True),
        ("app in ()", False),
        ("app=", False),
        ("n>4", True),
        ("n>5", False),
        ("n<6", True),
        ("app>4", False),
        ("absent<4", False),
        ("app=web,n<6,!absent", True),
        ("app=web,n>6", False),
        ("example.com/x in (y)", True),
        ("in in (in)", False),
        ("notin", False),
    ],
)
def test_matching(text: str, expected: bool):
    assert parse_selector(text).matches(LABELS) is expected


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "a=b,",
        ",a=b",
        "a=b c",
        "a in",
        "a in b",
        "a in (b",
        "a in (b c)",
        "a in ((b))",
        "a=b=c",
        "!",
        "!!a",
        "a>x",
        "a>",
        "a/b/c=d",
        "a=" + "b" * 64,
        "a b",
        "a=(b)",
        "-a=b",
        "a=b!",
        "a!",
        "a" * 70000,
        "a<1>2",
    ],
)
def test_what_is_no_selector_is_refused(text: str):
    with pytest.raises(SelectorError):
        parse_selector(text)


def test_a_selector_has_a_text_that_reads_back():
    text = "!e,a=b,c in (x,y),d notin (z),f,n>3,m<4,p!=q"
    selector = parse_selector(text)
    assert str(selector) == "a=b,c in (x,y),d notin (z),!e,f,m<4,n>3,p!=q"
    assert set(parse_selector(str(selector)).requirements) == set(selector.requirements)


words = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?", fullmatch=True)
maps = st.dictionaries(words, words, max_size=4)


@given(maps, maps)
def test_equality_selectors_select_supersets(wanted: dict[str, str], labels: dict[str, str]):
    text = ",".join(f"{key}={value}" for key, value in wanted.items())
    assert parse_selector(text).matches(labels) is (wanted.items() <= labels.items())
    assert selector_of({"matchLabels": wanted}).matches(labels) is (wanted.items() <= labels.items())


@given(words, st.sets(words, min_size=1, max_size=4), maps)
def test_set_selectors_are_each_others_opposite(key: str, values: set[str], labels: dict[str, str]):
    listed = ",".join(sorted(values))
    inside = parse_selector(f"{key} in ({listed})")
    outside = parse_selector(f"{key} notin ({listed})")
    assert inside.matches(labels) is not outside.matches(labels)
    assert parse_selector(key).matches(labels) is not parse_selector(f"!{key}").matches(labels)


@given(st.text(max_size=60))
def test_no_text_makes_parsing_fail_otherwise(text: str):
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    assert set(parse_selector(str(selector)).requirements) == set(selector.requirements)


def test_an_absent_selector_selects_nothing_and_an_empty_one_everything():
    assert selector_of(None) is NOTHING
    assert not NOTHING.matches({})
    assert selector_of({}) == EVERYTHING == Selector()
    assert EVERYTHING.matches(LABELS)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "app", "operator": "In", "values": ["web", "db"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["web"]}, False),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "app", "operator": "DoesNotExist"}, False),
        ({"key": "absent", "operator": "DoesNotExist", "values": []}, True),
    ],
)
def test_expressions(expression: dict[str, Any], expected: bool):
    assert selector_of({"matchExpressions": [expression]}).matches(LABELS) is expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ({"key": "a", "operator": "in", "values": ["b"]}, "'in' is no operator"),
        ({"key": "a"}, "'' is no operator"),
        ({"key": "a", "operator": "In"}, "need values"),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "take no values"),
        ({"key": "", "operator": "Exists"}, "non-empty"),
        ({"key": "a", "operator": "In", "values": ["-"]}, "value '-'"),
    ],
)
def test_expressions_that_are_wrong(expression: dict[str, Any], words: str):
    with pytest.raises(SelectorError, match=words):
        selector_of({"matchExpressions": [expression]})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (["a"], "a label selector must be an object"),
        ("a=b", "a label selector must be an object"),
        ({"matchLabels": ["a"]}, "matchLabels must be an object"),
        ({"matchLabels": {"a": 1}}, r"matchLabels\.a must be a string"),
        ({"matchExpressions": "a"}, "matchExpressions must be a list"),
        ({"matchExpressions": ["a"]}, "an item of matchExpressions must be an object"),
        ({"matchExpressions": [{"key": 1, "operator": "Exists"}]}, "key of an expression must be a string"),
        ({"matchExpressions": [{"key": "a", "operator": ["In"]}]}, "operator of an expression must be a string"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}, "values must be a list"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}, "item of values must be a string"),
    ],
)
def test_an_object_of_a_wrong_shape_is_refused(written: object, words: str):
    with pytest.raises(SelectorError, match=words):
        selector_of(written)


FIELDS = {"metadata.name": "a", "status.phase": "Running", "odd": "a,b=c\\d"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==a", True),
        ("metadata.name!=a", False),
        ("metadata.name=a,status.phase!=Failed", True),
        ("spec.nodeName=", True),
        (r"odd=a\,b\=c\\d", True),
        (",,metadata.name=a,", True),
    ],
)
def test_field_selectors(text: str, expected: bool):
    assert parse_field_selector(text).matches(lambda field: FIELDS.get(field, "")) is expected


@pytest.mark.parametrize("text", ["a", "=a", "a=b=c", r"a=\x", "!=b", "a in (b)", "a=" + "b" * 70000])
def test_what_is_no_field_selector_is_refused(text: str):
    with pytest.raises(SelectorError):
        parse_field_selector(text)


@given(st.text(max_size=20))
def test_any_value_can_be_selected(value: str):
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    selector = parse_field_selector(f"f={escaped}")
    assert selector.exact("f") == value
    assert parse_field_selector(str(selector)) == selector
    assert selector.exact("g") is None
