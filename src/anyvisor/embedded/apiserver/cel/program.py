"""Compiled expressions: the tree becomes nested functions, each of which takes from one budget of steps."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from anyvisor.embedded.apiserver.cel import values as v
from anyvisor.embedded.apiserver.cel.errors import CelError, CelSyntaxError
from anyvisor.embedded.apiserver.cel.library import FUNCTIONS, METHODS
from anyvisor.embedded.apiserver.cel.parser import Tree, parse

MAX_STEPS = 200_000
"""Steps of one evaluation: some 50 ms."""

TYPES = {
    "int": "int", "uint": "uint", "double": "double", "string": "string", "bool": "bool", "bytes": "bytes",
    "list": "list", "map": "map", "null_type": "null_type", "type": "type",
}  # fmt: skip
MACROS = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter", "transformList", "transformMap"})


class Budget:
    """What several evaluations may take together."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Scope:
    """The variables of one evaluation, and what is left of its budget."""

    __slots__ = ("left", "names")

    def __init__(self, names: dict[str, Any], left: int) -> None:
        self.names = names
        self.left = left

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CelError("the expression takes too many steps")


Step = Callable[[Scope], Any]


class Program:
    """One compiled expression."""

    def __init__(self, text: str, step: Step) -> None:
        self.text = text
        self._step = step

    def evaluate(self, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value. Raises CelError, also when it takes more than its own or the common budget."""
        steps = MAX_STEPS if budget is None else min(MAX_STEPS, budget.left)
        scope = Scope(dict(variables), steps)
        try:
            scope.spend()
            return self._step(scope)
        except (TypeError, AttributeError, ArithmeticError, ValueError, RecursionError) as error:
            raise CelError(f"no such overload: {error}") from error
        finally:
            if budget is not None:
                budget.left -= steps - max(scope.left, 0)

    def holds(self, variables: Mapping[str, Any], budget: Budget | None = None) -> bool:
        """Return the value, which must be a bool. Raises CelError."""
        value = self.evaluate(variables, budget)
        if not isinstance(value, bool):
            raise CelError(f"the expression gives {v.type_of(value)} instead of bool")
        return value


def compile_rule(text: str, variables: frozenset[str]) -> Program:
    """Compile an expression over the named variables. Raises CelSyntaxError."""
    return Program(text, _Compiler(variables).build(parse(text)))


class _Compiler:
    def __init__(self, variables: frozenset[str]) -> None:
        self._variables = variables

    def build(self, tree: Tree) -> Step:
        builder: Callable[..., Step] = getattr(self, f"_{tree[0]}")
        return builder(*tree[1:])

    def _literal(self, value: Any) -> Step:
        return lambda _scope: value

    def _name(self, name: str) -> Step:
        if name in self._variables:
            return lambda scope: scope.names[name]
        if name in TYPES:
            kind = v.TypeValue(TYPES[name])
            return lambda _scope: kind
        raise CelSyntaxError(f"undeclared reference to '{name}'")

    def _if(self, condition: Tree, yes: Tree, no: Tree) -> Step:
        test, first, second = self.build(condition), self.build(yes), self.build(no)
        return lambda scope: first(scope) if _bool(test(scope)) else second(scope)

    def _unary(self, operator: str, operand: Tree) -> Step:
        inner = self.build(operand)
        if operator == "!":
            return lambda scope: not _bool(inner(scope))
        return lambda scope: v.arithmetic("-", 0 if isinstance(value := inner(scope), int) else 0.0, value)

    def _binary(self, operator: str, left: Tree, right: Tree) -> Step:
        a, b = self.build(left), self.build(right)
        if operator in ("||", "&&"):
            return _logical(a, b, stop=operator == "||")

        def run(scope: Scope) -> Any:
            scope.spend()
            one, two = a(scope), b(scope)
            match operator:
                case "==":
                    return v.equal(one, two)
                case "!=":
                    return not v.equal(one, two)
                case "in":
                    return v.contains(two, one)
                case "+":
                    return v.add(one, two)
                case "<" | "<=" | ">" | ">=":
                    return v.compare(operator, one, two)
                case _:
                    return v.arithmetic(operator, one, two)

        return run

    def _select(self, target: Tree, name: str, optional: bool) -> Step:
        inner = self.build(target)
        pick = v.select_optional if optional else v.select

        def run(scope: Scope) -> Any:
            scope.spend()
            return pick(inner(scope), name)

        return run

    def _index(self, target: Tree, key: Tree, optional: bool) -> Step:
        inner, at = self.build(target), self.build(key)
        pick = v.select_optional if optional else v.index

        def run(scope: Scope) -> Any:
            scope.spend()
            return pick(inner(scope), at(scope))

        return run

    def _list(self, items: list[Tree]) -> Step:
        steps = [self.build(item) for item in items]
        return lambda scope: [step(scope) for step in steps]

    def _map(self, pairs: list[tuple[Tree, Tree]]) -> Step:
        steps = [(self.build(key), self.build(value)) for key, value in pairs]
        return lambda scope: {key(scope): value(scope) for key, value in steps}

    def _call(self, name: str, arguments: list[Tree]) -> Step:
        if name == "has":
            return self._has(arguments)
        function = FUNCTIONS.get(name)
        if function is None:
            raise CelSyntaxError(f"the function {name}() is not available in this server")
        return self._apply(function, arguments)

    def _apply(self, function: Callable[..., Any], arguments: list[Tree]) -> Step:
        steps = [self.build(argument) for argument in arguments]

        def run(scope: Scope) -> Any:
            scope.spend()
            return function(*(step(scope) for step in steps))

        return run

    def _has(self, arguments: list[Tree]) -> Step:
        if len(arguments) != 1 or arguments[0][0] != "select":
            raise CelSyntaxError("has() takes one field selection, such as has(self.spec.field)")
        _, target, name, _ = arguments[0]
        inner = self.build(target)
        return lambda scope: v.has(inner(scope), name)

    def _method(self, target: Tree, name: str, arguments: list[Tree]) -> Step:
        if target[0] == "name" and target[1] not in self._variables:
            return self._namespaced(str(target[1]), name, arguments)
        if name in MACROS:
            return self._macro(name, target, arguments)
        if name in ("optMap", "optFlatMap"):
            return self._opt_map(target, arguments, flat=name == "optFlatMap")
        function = METHODS.get(name)
        if function is None:
            raise CelSyntaxError(f"the method {name}() is not available in this server")
        return self._apply(function, [target, *arguments])

    def _namespaced(self, space: str, name: str, arguments: list[Tree]) -> Step:
        if space == "optional":
            if name == "none" and not arguments:
                return lambda _scope: v.Optional()
            if name in ("of", "ofNonZeroValue") and len(arguments) == 1:
                inner = self.build(arguments[0])
                zero = name == "ofNonZeroValue"
                return lambda scope: _optional_of(inner(scope), zero=zero)
        if space == "cel" and name == "bind" and len(arguments) == 3:
            return self._bind(arguments)
        if space == "ip" and name == "isCanonical" and len(arguments) == 1:
            inner = self.build(arguments[0])
            return lambda scope: str(FUNCTIONS["ip"](text := inner(scope))) == text
        raise CelSyntaxError(f"the function {space}.{name}() is not available in this server")

    def _bind(self, arguments: list[Tree]) -> Step:
        variable = _variable(arguments[0])
        value = self.build(arguments[1])
        body = _Compiler(self._variables | {variable}).build(arguments[2])
        return lambda scope: _with(scope, {variable: value(scope)}, body)

    def _opt_map(self, target: Tree, arguments: list[Tree], *, flat: bool) -> Step:
        if len(arguments) != 2:
            raise CelSyntaxError("optMap() takes a variable and an expression")
        variable = _variable(arguments[0])
        inner = self.build(target)
        body = _Compiler(self._variables | {variable}).build(arguments[1])

        def run(scope: Scope) -> Any:
            value = inner(scope)
            if not isinstance(value, v.Optional):
                raise CelError("no such overload: optMap of something that is not optional")
            if not value.present:
                return value
            result = _with(scope, {variable: value.value}, body)
            return result if flat else v.Optional(result, present=True)

        return run

    def _macro(self, name: str, target: Tree, arguments: list[Tree]) -> Step:
        inner = self.build(target)
        count = _variables_of(name, arguments)
        variables = [_variable(argument) for argument in arguments[:count]]
        compiler = _Compiler(self._variables | set(variables))
        bodies = [compiler.build(argument) for argument in arguments[count:]]
        if not bodies or len(bodies) > 2:
            raise CelSyntaxError(f"{name}() has the wrong number of arguments")

        def run(scope: Scope) -> Any:
            return _comprehension(name, _pairs(inner(scope), len(variables)), variables, bodies, scope)

        return run


def _variables_of(name: str, arguments: list[Tree]) -> int:
    if name in ("transformList", "transformMap"):
        return 2
    two = name not in ("map", "filter") and len(arguments) == 3
    return 2 if two else 1


def _pairs(value: Any, variables: int) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        return [(key,) for key in mapping] if variables == 1 else list(mapping.items())
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [(item,) for item in items] if variables == 1 else list(enumerate(items))
    raise CelError(f"no such overload: a macro on {v.type_of(value)}")


def _comprehension(
    name: str, items: list[tuple[Any, ...]], variables: list[str], bodies: list[Step], scope: Scope
) -> Any:
    outcomes: list[Any] = []
    failure: CelError | None = None
    for item in items:
        scope.spend()
        names = dict(zip(variables, item, strict=True))
        if len(bodies) == 2 and not _bool(_with(scope, names, bodies[0])):
            continue
        try:
            outcome = _with(scope, names, bodies[-1])
        except CelError as error:
            if name not in ("all", "exists"):
                raise
            failure = failure or error
            continue
        if name == "all" and not _bool(outcome):
            return False
        if name == "exists" and _bool(outcome):
            return True
        outcomes.append((item, outcome))
    if failure is not None:
        raise failure
    return _gathered(name, outcomes)


def _gathered(name: str, outcomes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    match name:
        case "all":
            return True
        case "exists":
            return False
        case "exists_one" | "existsOne":
            return sum(_bool(outcome) for _, outcome in outcomes) == 1
        case "filter":
            return [item[0] for item, outcome in outcomes if _bool(outcome)]
        case "transformMap":
            return {item[0]: outcome for item, outcome in outcomes}
        case _:
            return [outcome for _, outcome in outcomes]


def _with(scope: Scope, names: dict[str, Any], body: Step) -> Any:
    outer = scope.names
    scope.names = {**outer, **names}
    try:
        return body(scope)
    finally:
        scope.names = outer


def _variable(tree: Tree) -> str:
    if tree[0] != "name":
        raise CelSyntaxError("a macro needs a plain name for its variable")
    return str(tree[1])


def _optional_of(value: Any, *, zero: bool) -> v.Optional:
    return v.Optional() if zero and not value else v.Optional(value, present=True)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: expected bool, not {v.type_of(value)}")
    return value


def _logical(a: Step, b: Step, *, stop: bool) -> Step:
    """Either side may fail when the other one decides, as CEL demands."""

    def run(scope: Scope) -> bool:
        scope.spend()
        try:
            if _bool(a(scope)) is stop:
                return stop
        except CelError:
            if _bool(b(scope)) is stop:
                return stop
            raise
        return _bool(b(scope))

    return run
