"""Label and field selectors."""

import pytest

from anyvisor.embedded.apiserver.selectors import FieldTerm, Selector, parse_fields, parse_labels
from anyvisor.embedded.apiserver.status import StatusError

LABELS = {"app": "web", "tier": "front", "n": "5", "x.io/y": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        (" app = web , tier in ( front , back ) ", True),
        ("app notin (web)", False),
        ("missing notin (a)", True),
        ("missing!=a", True),
        ("missing", False),
        ("!missing", True),
        ("! app", False),
        ("x.io/y", True),
        ("x.io/y=", True),
        ("n>4,n<6", True),
        ("n>5", False),
        ("app>1", False),
        ("in in (in)", False),
        ("notin", False),
    ],
)
def test_label_selectors(text: str, expected: bool):
    assert Selector(labels=parse_labels(text)).matches(LABELS, {}) is expected


@pytest.mark.parametrize("text", ["a=b,", ",a", "a in b", "a in (b", "=a", "a b", "a=(b)", "a=b=c", "x" * 70000])
def test_malformed_label_selectors(text: str):
    with pytest.raises(StatusError) as caught:
        parse_labels(text)
    assert caught.value.code == 400


def test_field_selectors():
    allowed = frozenset({"a", "b"})
    assert parse_fields("a=1,b!=2", allowed) == (FieldTerm("a", "1"), FieldTerm("b", "2", equal=False))
    assert parse_fields(r"a=x\,y", allowed) == (FieldTerm("a", "x,y"),)
    assert parse_fields("a=", allowed)[0].value == ""
    with pytest.raises(StatusError, match='field label not supported: "c"'):
        parse_fields("c=1", allowed)
    with pytest.raises(StatusError, match="invalid selector"):
        parse_fields("a", allowed)
