"""The expression language of validation rules."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.apiserver.cel import CelError, CelSyntaxError, compile_rule

SELF: dict[str, Any] = {
    "a": 1,
    "neg": -7,
    "f": 1.5,
    "s": "Hello",
    "list": [3, 1, 2],
    "names": ["x", "y"],
    "map": {"k": 1, "l": 2},
    "items": [{"n": "a", "v": 1}, {"n": "b", "v": 2}],
    "mem": "1Gi",
    "foo-bar": True,
    "namespace": "ns",
    "nul": None,
}


def value(text: str, **more: Any) -> Any:
    variables = {"self": SELF, "oldSelf": {**SELF, "a": 2}, **more}
    return compile_rule(text, frozenset(variables)).evaluate(variables)


TRUE = [
    "self.a == 1 && self.s != 'x' || false",
    "self.a + 2 * 3 == 7",
    "self.neg / 2 == -3 && self.neg % 2 == -1",
    "self.f * 2.0 == 3.0 && self.f > 1",
    "1 == 1.0 && !(1 == true)",
    "self.a < oldSelf.a",
    "self.a in [1, 2] && 'k' in self.map && !('z' in self.map)",
    "has(self.a) && !has(self.zzz)",
    "self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 3)",
    "self.list.map(x, x * 2) == [6, 2, 4]",
    "self.list.map(x, x > 1, x * 2) == [6, 4]",
    "self.list.filter(x, x > 1) == [3, 2]",
    "self.map.all(k, self.map[k] > 0)",
    "self.map.transformList(k, v, v + 1) == [2, 3]",
    "self.map.transformMap(k, v, v + 1) == {'k': 2, 'l': 3}",
    "self.items.all(i, self.items.exists_one(j, i.n == j.n))",
    "self.s.startsWith('He') && self.s.endsWith('lo') && self.s.contains('ell') && self.s.matches('^[A-Z][a-z]+$')",
    "self.s.lowerAscii() == 'hello' && self.s.upperAscii() == 'HELLO' && self.s.size() == 5 && size(self.s) == 5",
    "self.s.charAt(1) == 'e' && self.s.indexOf('l') == 2 && self.s.lastIndexOf('l') == 3",
    "self.s.substring(1, 3) == 'el' && self.s.replace('l', 'L') == 'HeLLo' && self.s.replace('l', 'L', 1) == 'HeLlo'",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && ['a', 'b'].join('-') == 'a-b' && '  x '.trim() == 'x'",
    "!self.list.isSorted() && [1, 2].isSorted() && self.list.sum() == 6",
    "self.list.max() == 3 && self.list.min() == 1 && self.list.indexOf(1) == 1",
    "'abc123'.find('[0-9]+') == '123' && '1a2'.findAll('[0-9]') == ['1', '2']",
    "quantity(self.mem).isGreaterThan(quantity('1000M')) && quantity('1Gi') == quantity('1024Mi')",
    "quantity('1500m').compareTo(quantity('1.5')) == 0 && isQuantity('1Ki') && !isQuantity('x')",
    "quantity('50k').add(20).asInteger() == 50020 && quantity('50k').sign() == 1",
    "isIP('10.0.0.1') && !isIP('10.0.0') && ip('::1').family() == 6 && ip('127.0.0.1').isLoopback()",
    "cidr('10.0.0.0/8').containsIP('10.2.3.4') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
    "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').prefixLength() == 8",
    "url('https://h:80/p?a=b').getHostname() == 'h' && url('https://h:80/p').getPort() == '80' && isURL('/abs')",
    "url('https://h/p?a=b').getQuery()['a'] == ['b'] && !isURL('no url')",
    "self.?zzz.orValue('d') == 'd' && self.?a.orValue(0) == 1 && !self.?zzz.hasValue()",
    "self.map[?'zz'].orValue(5) == 5 && optional.of(3).value() == 3 && optional.none().or(optional.of(1)).value() == 1",
    "self.?a.optMap(x, x + 1).orValue(0) == 2",
    "cel.bind(x, self.a + 1, x * x) == 4",
    "duration('1h30m') == duration('90m') && duration('90s').getMinutes() == 1",
    "timestamp('2026-01-02T03:04:05Z') > timestamp('2026-01-01T00:00:00Z')",
    "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T03:04:05Z').getMonth() == 0",
    "type(self.a) == int && type('') == string && type(self.list) == list && type(null) == null_type",
    "int('3') == 3 && string(3) == '3' && double('1.5') == 1.5 && bool('true')",
    "self.foo__dash__bar && self.__namespace__ == 'ns'",
    "self.nul == null && self.a != null",
    "(self.a > 0 ? 'p' : 'n') == 'p'",
    r"'a\n' == '''a" + "\n" + r"''' && r'\d' == '\\d' && b'a' == b'a' && '\x41B' == 'AB'",
    "0x1F == 31 && -1 < 0 && 1u == 1",
    "self.zzz == 1 || true",
    "!(self.zzz == 1 && false)",
    "[1, 2] + [3] == [1, 2, 3] && 'a' + 'b' == 'ab' && self.items[0].n == 'a'",
    "[[1], [2, 3]].flatten() == [1, 2, 3] && [1, 1, 2].distinct() == [1, 2]",
]


@pytest.mark.parametrize("text", TRUE)
def test_what_is_true(text: str):
    assert value(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self.zzz", "no such key: zzz"),
        ("self.list[9]", "index out of bounds"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "overflow"),
        ("'a' + 1", "no such overload"),
        ("'a' < 1", "no such overload"),
        ("self.a.startsWith('x')", "expected a string"),
        ("1 && true", "expected bool"),
        ("int('x')", "cannot convert"),
        ("quantity('x')", "cannot read the quantity"),
        ("self.names.map(a, self.names.map(b, self.names.map(c, [a, b, c]))).size() > 0 && self.zzz", "no such key"),
        ("optional.none().value()", "dereference"),
    ],
)
def test_evaluation_errors(text: str, message: str):
    with pytest.raises(CelError, match=message):
        value(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self.", "field name"),
        ("self.a ==", "unexpected the end"),
        ("(1", "expected"),
        ("x == 1", "undeclared reference to 'x'"),
        ("frobnicate(self)", r"frobnicate\(\) is not available"),
        ("self.authorizer()", r"authorizer\(\) is not available"),
        ("format.dns1123Label().validate(self)", "not available|undeclared"),
        ("has(self)", "takes one field selection"),
        ("self.all(1, true)", "plain name"),
        ("'a\\q'", "unknown escape"),
        ("(" * 100 + ")" * 100, "nested deeper"),
        ("a" * 20000, "longer than"),
        ("self $ 1", "unexpected"),
    ],
)
def test_what_cannot_be_compiled_says_why(text: str, message: str):
    with pytest.raises(CelSyntaxError, match=message):
        compile_rule(text, frozenset({"self"}))


def test_the_budget_ends_a_long_evaluation():
    rule = compile_rule("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", frozenset({"self"}))
    with pytest.raises(CelError, match="too many steps"):
        rule.evaluate({"self": list(range(200))})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("self.find('(a+)+b')", "repeats what itself repeats"),
        ("self.findAll('(a|a)*b')", "repeats what itself repeats or has alternatives"),
        ("self.find('((a{1,9}){1,9})+$')", "repeats what itself"),
        ("self.matches('(?=a)b')", "cannot be compiled"),
        ("(self + self).find('a')", "more than 4096 characters"),
    ],
)
def test_no_pattern_takes_for_ever(text: str, message: str):
    with pytest.raises(CelError, match=message):
        compile_rule(text, frozenset({"self"})).evaluate({"self": "a" * 4000 + "!"})


def test_patterns_that_are_linear_are_searched():
    def found(text: str, value: str) -> object:
        return compile_rule(text, frozenset({"self"})).evaluate({"self": value})

    assert found("self.find('[a-z]+[0-9]{2}')", "--ab12cd") == "ab12"
    assert found("self.findAll('a(b|c)')", "abxac") == ["ab", "ac"]
    assert found("self.matches('^(a+)+$')", "a" * 100_000 + "!") is False


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str):
    with contextlib.suppress(CelSyntaxError):
        compile_rule(text, frozenset({"self"}))
