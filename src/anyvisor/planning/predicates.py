"""The closed predicate language in which the registry says what needs a capability.

A predicate is JSON with exactly one key:

    {"exists": PATH}                  something other than null stands at the path
    {"absent": PATH}                  nothing, or null, stands there
    {"eq": [PATH, VALUE]}             a value at the path equals VALUE (same JSON type)
    {"in": [PATH, [VALUE, ...]]}      ... equals one of them
    {"compare": [PATH, OP, NUMBER]}   ... as number or quantity is <, <=, >, >= NUMBER
    {"all": [P, ...]}  {"any": [P, ...]}  {"not": P}

A PATH is names joined by dots, relative to the VirtualMachineInstanceSpec; `name[*]` steps into each element of an
array, or each value of a map. With `[*]` a test holds when it holds for at least one place. A test on a missing
place does not hold. A value expression gives what is wanted:

    {"path": PATH}  each value at the path        {"count": PATH}  how many places
    {"max": PATH}  {"sum": PATH}                  largest, sum of numbers or quantities
    {"product": [PATH, ...]}                      product, a missing factor counts 1

`tests/unit/planning/cases/predicates.json` is the table of cases by which other languages can agree. Nothing here
raises on any spec: text that is no quantity is simply no number.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from anyvisor.api.quantity import NANO, QuantityError, parse_quantity
from anyvisor.planning.values import is_list, is_map

Json = Any
Spec = Mapping[str, Any]
Places = list[tuple[str, Json]]
Predicate = Callable[[Spec], list[str] | None]
"""None: it does not hold. A list: it holds, because of the values at these paths (absent ones included)."""

_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


class PredicateError(ValueError):
    """The registry holds something that is no predicate."""


@lru_cache(maxsize=4096)
def steps(path: str) -> tuple[tuple[str, bool], ...]:
    """The names of a path, each with whether all elements below it are meant."""
    parts: list[tuple[str, bool]] = []
    for part in path.split("."):
        name = part.removesuffix("[*]")
        if not name or "[" in name or "]" in name:
            raise PredicateError(f"{path!r} is no path: {part!r} must be a name, optionally with [*]")
        parts.append((name, part.endswith("[*]")))
    return tuple(parts)


def places(spec: Spec, path: str) -> Places:
    """Each value at the path that is not null, with its concrete path (`disks[1].serial`)."""
    return finder(path)(spec)


@lru_cache(maxsize=4096)
def finder(path: str) -> Callable[[Spec], Places]:
    """`places` for one path, prepared: most paths have no `[*]` and most specs end early on them."""
    parts = steps(path)
    first = next((index for index, (_, each) in enumerate(parts) if each), None)
    names = tuple(name for name, _ in parts[: len(parts) if first is None else first + 1])
    if first is None:
        return lambda spec: _NOWHERE if (value := _below(spec, names)) is None else [(path, value)]
    head, rest = ".".join(names), parts[first + 1 :]

    def branching(spec: Spec) -> Places:
        value = _below(spec, names)
        return _NOWHERE if value is None else list(_each(head, value, rest))

    return branching


_NOWHERE: Final[Places] = []


def _below(value: Json, names: tuple[str, ...]) -> Json:
    """What stands below a value; None when there is nothing."""
    for name in names:
        if value.__class__ is not dict:
            return None
        value = value.get(name)
    return value


def _each(at: str, value: Json, parts: tuple[tuple[str, bool], ...]) -> Iterator[tuple[str, Json]]:
    """The places of a path in each element of `value`. Their names are made only for what is found."""
    first = next((index for index, (_, each) in enumerate(parts) if each), None)
    names = tuple(name for name, _ in parts[: len(parts) if first is None else first + 1])
    tail = "".join(f".{name}" for name in names)
    if is_map(value):
        inner = ((f".{key}", item) for key, item in value.items())
    elif is_list(value):
        inner = ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        return
    for key, item in inner:
        found = _below(item, names)
        if found is None:
            continue
        if first is None:
            yield f"{at}{key}{tail}", found
        else:
            yield from _each(f"{at}{key}{tail}", found, parts[first + 1 :])


def number(value: Json) -> int | None:
    """The value as nanos of a number or quantity; None when it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value * NANO
    if isinstance(value, float):
        value = repr(value)
    if not isinstance(value, str):
        return None
    try:
        return parse_quantity(value).nanos
    except QuantityError:
        return None


def same(left: Json, right: Json) -> bool:
    """Equal, and of the same JSON type: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def compile_predicate(form: Json) -> Predicate:
    """A function of a predicate's JSON. Raises PredicateError when it is none."""
    if not is_map(form) or len(form) != 1:
        raise PredicateError(f"a predicate is an object with one key, not {form!r}")
    ((name, body),) = form.items()
    try:
        build = _BUILDERS[name]
    except KeyError:
        raise PredicateError(f"{name!r} is no predicate; known are {', '.join(sorted(_BUILDERS))}") from None
    try:
        return build(body)
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        if isinstance(error, PredicateError):
            raise
        raise PredicateError(f"{name} has the wrong form: {body!r}") from error


def _test(path: str, holds: Callable[[Json], bool]) -> Predicate:
    find = finder(path)

    def predicate(spec: Spec) -> list[str] | None:
        present = find(spec)
        if not present:
            return None
        return [at for at, value in present if holds(value)] or None

    return predicate


def _exists(path: str) -> Predicate:
    return _test(path, lambda _value: True)


def _absent(path: str) -> Predicate:
    find = finder(path)
    named = path.replace("[*]", "")
    return lambda spec: None if find(spec) else [named]


def _eq(body: list[Any]) -> Predicate:
    path, wanted = body
    return _test(path, lambda value: same(value, wanted))


def _in(body: list[Any]) -> Predicate:
    path, wanted = body
    options = list(wanted)
    return _test(path, lambda value: any(same(value, option) for option in options))


def _compare(body: list[Any]) -> Predicate:
    path, operator, bound = body
    compare = _OPERATORS[operator]
    limit = number(bound)
    if limit is None:
        raise PredicateError(f"{bound!r} is no number")
    edge = limit

    def holds(value: Json) -> bool:
        amount = number(value)
        return amount is not None and compare(amount, edge)

    return _test(path, holds)


def _all(body: list[Any]) -> Predicate:
    parts = [compile_predicate(part) for part in body]

    def predicate(spec: Spec) -> list[str] | None:
        found: list[str] = []
        for part in parts:
            paths = part(spec)
            if paths is None:
                return None
            found += paths
        return found

    return predicate


def _any(body: list[Any]) -> Predicate:
    parts = [compile_predicate(part) for part in body]

    def predicate(spec: Spec) -> list[str] | None:
        found: list[str] = []
        holds = False
        for part in parts:
            paths = part(spec)
            if paths is not None:
                holds = True
                found += paths
        return found if holds else None

    return predicate


def _not(body: Json) -> Predicate:
    inner = compile_predicate(body)
    mentioned = [path for path in paths_of(body) if "[*]" not in path]
    return lambda spec: None if inner(spec) is not None else list(mentioned)


_BUILDERS: Final[Mapping[str, Callable[[Any], Predicate]]] = {
    "exists": _exists,
    "absent": _absent,
    "eq": _eq,
    "in": _in,
    "compare": _compare,
    "all": _all,
    "any": _any,
    "not": _not,
}


def paths_of(form: Json) -> list[str]:
    """Every path that a predicate or value expression mentions, in order."""
    ((name, body),) = form.items()
    if name in ("all", "any"):
        return [path for part in body for path in paths_of(part)]
    if name == "not":
        return paths_of(body)
    if name == "product":
        return list(body)
    return [body if isinstance(body, str) else body[0]]


def wanted(expression: Json, spec: Spec) -> Places:
    """What a value expression asks for, with the place that asks. Numbers are given in nanos."""
    ((name, body),) = expression.items()
    if name == "path":
        return places(spec, body)
    if name == "product":
        return _product(body, spec)
    found = places(spec, body)
    where = body.replace("[*]", "")
    if name == "count":
        return [(where, len(found) * NANO)]
    amounts = [amount for _, value in found if (amount := number(value)) is not None]
    if not amounts:
        return []
    return [(where, max(amounts) if name == "max" else sum(amounts))]


def _product(paths: Iterable[str], spec: Spec) -> Places:
    total = 1
    where = ""
    for path in paths:
        for _, value in places(spec, path):
            amount = number(value)
            if amount is not None:
                total *= amount // NANO
                where = where or path
    return [(where, total * NANO)] if where else []


VALUE_EXPRESSIONS: Final = frozenset({"path", "count", "max", "sum", "product"})
