"""Label and field selectors: their grammar as text, `LabelSelector` objects, and matching."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from anyvisor.api.names import label_value, qualified_name

MAX_TEXT: Final = 65536
"""Characters a selector may have."""


class SelectorError(ValueError):
    """The text or object is no selector; the message names the part that is wrong."""


class Operator(StrEnum):
    """How a requirement compares the value of its key."""

    EQUALS = "="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    NOT_EXISTS = "!"
    GREATER = "gt"
    LESS = "lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a selector; `values` is sorted and holds one value for `=`, `!=`, `gt` and `lt`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil the requirement; an absent key fulfils `!=`, `notin` and `!`."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EQUALS | Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.NOT_EXISTS:
                return value is None
            case Operator.GREATER:
                return _is_number(value) and int(value or 0) > int(self.values[0])
            case Operator.LESS:
                return _is_number(value) and int(value or 0) < int(self.values[0])

    def __str__(self) -> str:
        """The requirement as text."""
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.NOT_EXISTS:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case Operator.GREATER | Operator.LESS:
                return f"{self.key}{'>' if self.operator is Operator.GREATER else '<'}{self.values[0]}"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; without any, everything matches. `nothing` matches no object at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """The selector as text, requirements in order of their keys."""
        return ",".join(str(each) for each in sorted(self.requirements, key=lambda each: each.key))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(nothing=True)


def parse_selector(text: str) -> Selector:
    """The selector of a `labelSelector` parameter (`a=b,c in (d,e),!f`); raises `SelectorError`."""
    if len(text) > MAX_TEXT:
        raise SelectorError(f"a selector of {len(text)} characters is too long: at most {MAX_TEXT}")
    tokens = _Tokens(text)
    found: list[Requirement] = []
    while tokens.peek():
        found.append(_requirement(tokens))
        if not tokens.peek():
            break
        if tokens.next() != ",":
            raise tokens.error("',' or the end", tokens.last)
        if not tokens.peek():
            raise tokens.error("a requirement after ','", "")
    return Selector(tuple(found))


def selector_of(obj: object) -> Selector:
    """The selector of a `LabelSelector` object: absent selects nothing, empty everything.

    The object may be anything a user wrote. Raises `SelectorError` for what is no selector.
    """
    if obj is None:
        return NOTHING
    fields = _object("a label selector", obj)
    labels = _object("matchLabels", fields.get("matchLabels"))
    found = [
        _checked(key, Operator.EQUALS, (_word(f"the value of matchLabels.{key}", labels[key]),))
        for key in sorted(labels)
    ]
    expressions = _list("matchExpressions", fields.get("matchExpressions"))
    return Selector((*found, *(_expression(_object("an item of matchExpressions", each)) for each in expressions)))


def _expression(fields: Mapping[str, object]) -> Requirement:
    name = _word("the operator of an expression", fields.get("operator", ""))
    operator = _EXPRESSION_OPERATORS.get(name)
    if operator is None:
        raise SelectorError(f"{name!r} is no operator of a label selector: use {', '.join(_EXPRESSION_OPERATORS)}")
    values = {_word("an item of values", each) for each in _list("values", fields.get("values"))}
    return _checked(_word("the key of an expression", fields.get("key", "")), operator, tuple(sorted(values)))


def _object(what: str, value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SelectorError(f"{what} must be an object")
    return cast("Mapping[str, object]", value)


def _list(what: str, value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise SelectorError(f"{what} must be a list")
    return cast("list[object]", value)


def _word(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise SelectorError(f"{what} must be a string")
    return value


_EXPRESSION_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.NOT_EXISTS,
}
_TOKEN: Final = re.compile(r"\s*(==|!=|[=!(),<>]|[^\s=!(),<>]+)")


class _Tokens:
    """The tokens of a label selector, with one of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._position = 0
        self.last = ""

    def peek(self) -> str:
        """The next token, or an empty string at the end."""
        match = _TOKEN.match(self._text, self._position)
        return match[1] if match else ""

    def next(self) -> str:
        """The next token, consumed."""
        match = _TOKEN.match(self._text, self._position)
        self._position = match.end() if match else len(self._text)
        self.last = match[1] if match else ""
        return self.last

    def word(self) -> str:
        """The next token if it is a word (else nothing is consumed and the word is empty)."""
        return "" if self.peek() in _SYMBOLS else self.next()

    def error(self, expected: str, found: str) -> SelectorError:
        """What was expected in place of what stands there."""
        return SelectorError(f"unable to parse requirement: found {found!r}, expected {expected}")


_SYMBOLS: Final = frozenset({"", "==", "!=", "=", "!", "(", ")", ",", "<", ">"})


def _requirement(tokens: _Tokens) -> Requirement:
    if tokens.peek() == "!":
        tokens.next()
        return _checked(_key(tokens), Operator.NOT_EXISTS, ())
    key = _key(tokens)
    symbol = tokens.peek()
    if symbol in ("", ","):
        return _checked(key, Operator.EXISTS, ())
    tokens.next()
    match symbol:
        case "=" | "==":
            return _checked(key, Operator.EQUALS, (tokens.word(),))
        case "!=":
            return _checked(key, Operator.NOT_EQUALS, (tokens.word(),))
        case ">":
            return _checked(key, Operator.GREATER, (tokens.word(),))
        case "<":
            return _checked(key, Operator.LESS, (tokens.word(),))
        case "in" | "notin":
            return _checked(key, Operator(symbol), _values(tokens))
        case _:
            raise tokens.error("=, !=, ==, in, notin, > or <", symbol)


def _key(tokens: _Tokens) -> str:
    key = tokens.word()
    if not key:
        raise tokens.error("a key", tokens.peek())
    return key


def _values(tokens: _Tokens) -> tuple[str, ...]:
    if tokens.next() != "(":
        raise tokens.error("'('", tokens.last)
    if tokens.peek() == ")":
        tokens.next()
        return ("",)  # as the original reads an empty list
    found = {tokens.word()}
    while tokens.next() == ",":
        found.add(tokens.word())
    if tokens.last != ")":
        raise tokens.error("',' or ')'", tokens.last)
    return tuple(sorted(found))


def _checked(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    problems = [f"key {key!r}: {problem}" for problem in qualified_name(key)]
    match operator:
        case Operator.IN | Operator.NOT_IN if not values:
            problems.append(f"key {key!r}: operators 'in' and 'notin' need values")
        case Operator.EXISTS | Operator.NOT_EXISTS if values:
            problems.append(f"key {key!r}: operators 'exists' and '!' take no values")
        case Operator.GREATER | Operator.LESS if not _is_number(values[0]):
            problems.append(f"key {key!r}: operators '>' and '<' need a whole number, not {values[0]!r}")
        case _:
            problems += [f"value {value!r}: {problem}" for value in values for problem in label_value(value)]
    if problems:
        raise SelectorError("; ".join(problems))
    return Requirement(key, operator, values)


def _is_number(value: str | None) -> bool:
    return value is not None and re.fullmatch(r"[+-]?[0-9]{1,19}", value, re.ASCII) is not None


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: a field path that must, or must not, have a value."""

    field: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        """The term as text."""
        return f"{self.field}{'=' if self.equal else '!='}{_escape(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All terms must hold."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """Whether an object is selected; `value_of` gives the text of a field, empty when it is absent."""
        return all((value_of(term.field) == term.value) is term.equal for term in self.terms)

    def exact(self, field: str) -> str | None:
        """The value that the selector demands of a field, if it demands one."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def __str__(self) -> str:
        """The selector as text."""
        return ",".join(map(str, self.terms))


def parse_field_selector(text: str) -> FieldSelector:
    """The selector of a `fieldSelector` parameter (`metadata.name=a,status.phase!=Failed`).

    A value may hold `,`, `=` and the backslash, each after a backslash. Raises `SelectorError`.
    """
    if len(text) > MAX_TEXT:
        raise SelectorError(f"a selector of {len(text)} characters is too long: at most {MAX_TEXT}")
    return FieldSelector(tuple(_term(part) for part in _split_terms(text) if part))


def _split_terms(text: str) -> Iterator[str]:
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == ",":
            yield text[start:position]
            start = position + 1
        position += 1
    yield text[start:]


_TERM: Final = re.compile(r"(?P<field>(?:[^\\=!]|\\.)*?)(?P<operator>==|!=|=)(?P<value>.*)", re.DOTALL)


def _term(part: str) -> FieldTerm:
    match = _TERM.fullmatch(part)
    if match is None or not match["field"]:
        raise SelectorError(f"invalid selector: {part!r}; can't understand {part!r}: write field=value or field!=value")
    return FieldTerm(match["field"], _unescape(match["value"], part), match["operator"] != "!=")


def _unescape(value: str, part: str) -> str:
    if re.fullmatch(r"(?:[^\\,=]|\\[\\,=])*", value) is None:
        raise SelectorError(f"invalid selector: {part!r}; in a value, write a backslash before ',', '=' and '\\'")
    return re.sub(r"\\(.)", r"\1", value)


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)
