"""The selectors of a request: what they refuse as a Status, and how both match as one."""

import pytest

from anyvisor.embedded.apiserver.selectors import EVERYTHING, parse
from anyvisor.embedded.apiserver.status import StatusError

ALLOWED = {"metadata.name", "metadata.namespace", "a", "b"}


@pytest.mark.parametrize(
    ("labels", "fields", "expected"),
    [
        ("", "", True),
        ("app=web", "", True),
        ("app=db", "", False),
        ("", "a=1,b!=2", True),
        ("", "a=2", False),
        ("", r"b=x\,y", True),
        ("", "metadata.name=", True),
        ("app=web", "a=1", True),
        ("app=web", "a=2", False),
        ("app=db", "a=1", False),
    ],
)
def test_both_selectors_must_match(labels: str, fields: str, expected: bool):
    assert parse(labels, fields, ALLOWED).matches({"app": "web"}, {"a": "1", "b": "x,y"}) is expected


@pytest.mark.parametrize(
    ("labels", "fields", "message"),
    [
        ("a=b,", "", "unable to parse requirement"),
        ("a in (b", "", "unable to parse requirement"),
        ("x" * 70000, "", "too long"),
        ("", "a", "invalid selector"),
        ("", "c=1", 'field label not supported: "c"'),
    ],
)
def test_a_malformed_selector_is_a_bad_request(labels: str, fields: str, message: str):
    with pytest.raises(StatusError, match=message) as caught:
        parse(labels, fields, ALLOWED)
    assert caught.value.code == 400


def test_a_selector_is_false_when_it_selects_everything():
    assert not EVERYTHING
    assert not parse("", "", ALLOWED)
    assert parse("app", "", ALLOWED)
    assert parse("", "a=1", ALLOWED)


def test_fields_that_are_known_to_match_can_be_left_out():
    selector = parse("app", "metadata.name=n,metadata.namespace!=m,a=1", ALLOWED)
    assert selector.required("metadata.name") == "n"
    assert selector.required("metadata.namespace") is None
    rest = selector.without(("metadata.name", "metadata.namespace"))
    assert rest == parse("app", "metadata.namespace!=m,a=1", ALLOWED)
