"""Label and field selectors as Kubernetes' list and watch parameters write them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from anyvisor.embedded.apiserver.status import bad_request

MAX_LENGTH = 64 << 10
_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_KEY_RE = re.compile(_KEY)
_TERM = re.compile(
    rf"\s*(?:(?P<not>!)\s*(?P<absent>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=|>|<)\s*(?P<value>[-A-Za-z0-9_./]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*(?P<end>,|$)"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; `op` is one of in, notin, exists, absent, gt, lt."""

    key: str
    op: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.op:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case _:
                return _compare(value, self.op, self.values[0])


def _compare(value: str | None, op: str, bound: str) -> bool:
    try:
        return value is not None and (int(value) > int(bound) if op == "gt" else int(value) < int(bound))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class Selector:
    """Both selectors of a request; empty matches everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        return all(term.matches(labels) for term in self.labels) and all(
            (fields.get(term.field, "") == term.value) == term.equal for term in self.fields
        )

    def required(self, field: str) -> str | None:
        """Return the value that `field` must have, if the selector says one."""
        for term in self.fields:
            if term.field == field and term.equal:
                return term.value
        return None


EVERYTHING = Selector()


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector. Raises a 400 Status for a malformed one."""
    if len(text) > MAX_LENGTH:
        raise bad_request(f"the label selector is longer than {MAX_LENGTH} characters")
    found: list[Requirement] = []
    at = 0
    while at < len(text):
        match = _TERM.match(text, at)
        if match is None:
            raise bad_request(f"unable to parse requirement: found {text[at : at + 40]!r} in the label selector")
        found.append(_requirement(match))
        at = match.end()
        if match["end"] == "," and at == len(text):
            raise bad_request("unable to parse requirement: the label selector ends with a comma")
    return tuple(found)


def _requirement(match: re.Match[str]) -> Requirement:
    if match["not"]:
        return Requirement(match["absent"], "absent")
    key = match["key"]
    if match["set"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(key, match["set"], values)
    match match["op"]:
        case None:
            return Requirement(key, "exists")
        case "!=":
            return Requirement(key, "notin", (match["value"],))
        case ">":
            return Requirement(key, "gt", (match["value"],))
        case "<":
            return Requirement(key, "lt", (match["value"],))
        case _:
            return Requirement(key, "in", (match["value"],))


def parse_fields(text: str, allowed: frozenset[str]) -> tuple[FieldTerm, ...]:
    """Parse a field selector; fields outside `allowed` are refused as Kubernetes does."""
    found: list[FieldTerm] = []
    for term in re.split(r"(?<!\\),", text) if text else ():
        match = re.fullmatch(r"\s*([^=!]+?)\s*(==|=|!=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
        field, op, value = match.groups()
        if field not in allowed:
            raise bad_request(f'field label not supported: "{field}"')
        found.append(FieldTerm(field, re.sub(r"\\([=,\\])", r"\1", value), op != "!="))
    return tuple(found)
