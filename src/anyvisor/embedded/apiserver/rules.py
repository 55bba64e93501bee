"""Validation rules of custom resources (`x-kubernetes-validations`), transition rules included (KEP-2876)."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from anyvisor.embedded.apiserver.cel import Budget, CelError, CelSyntaxError, Program, compile_rule
from anyvisor.embedded.apiserver.cel.values import Optional
from anyvisor.embedded.apiserver.fieldset import item_key
from anyvisor.embedded.apiserver.schema import UNSET, Node
from anyvisor.embedded.apiserver.status import Cause, invalid_value
from anyvisor.embedded.apiserver.values import as_object, as_objects

Json = dict[str, Any]

MAX_CAUSES = 20
MAX_OBJECT_STEPS = 1_000_000
"""Steps of all rules of one object together: some 200 ms, in which nobody else is served."""
VARIABLES = frozenset({"self", "oldSelf"})


@lru_cache(maxsize=2048)
def program(text: str) -> Program:
    """Compile a rule once. Raises CelSyntaxError."""
    return compile_rule(text, VARIABLES)


def check_rules(schema: Json, path: str) -> Iterator[Cause]:
    """Yield the mistakes of the rules in a schema: what does not compile, or uses what is not available."""
    for index, rule in enumerate(as_objects(schema.get("x-kubernetes-validations"))):
        for part in ("rule", "messageExpression"):
            text = rule.get(part)
            if not text:
                continue
            try:
                program(str(text))
            except CelSyntaxError as error:
                where = f"{path}.x-kubernetes-validations[{index}].{part}"
                yield invalid_value(where, str(text), f"compilation failed: {error}")
    for name, child in as_object(schema.get("properties")).items():
        yield from check_rules(as_object(child), f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        child = schema.get(name)
        if isinstance(child, dict):
            yield from check_rules(cast("Json", child), f"{path}.{name}")


def broken_rules(node: Node, new: Any, old: Any = UNSET, path: str = "") -> list[Cause]:
    """Return the rules that an object breaks; `old` is UNSET where there is nothing to compare with."""
    causes: list[Cause] = []
    if node.ruled:
        _walk(node, new, old, path, causes, Budget(MAX_OBJECT_STEPS))
    return causes


def _walk(node: Node, new: Any, old: Any, path: str, causes: list[Cause], budget: Budget) -> None:
    if new is None:
        return
    for rule in as_objects(node.raw.get("x-kubernetes-validations")):
        if len(causes) < MAX_CAUSES:
            _apply(rule, node, new, old, path, causes, budget)
    if isinstance(new, dict):
        before = as_object(old)
        for name, item in cast("Json", new).items():
            child = node.props.get(name) or node.extra
            if child is not None and child.ruled:
                _walk(child, item, before.get(name, UNSET), f"{path}.{name}" if path else name, causes, budget)
    elif isinstance(new, list) and node.items is not None and node.items.ruled:
        known = _items(node, old)
        for index, item in enumerate(cast("list[Any]", new)):
            element = item_key(node, item) if node.list_type == "map" else None
            _walk(node.items, item, known.get(element or "", UNSET), f"{path}[{index}]", causes, budget)


def _items(node: Node, old: Any) -> dict[str, Any]:
    """Return the old items that can be told apart: those of a list-map."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    return {item_key(node, item) or "": item for item in cast("list[Any]", old)}


def _apply(rule: Json, node: Node, new: Any, old: Any, path: str, causes: list[Cause], budget: Budget) -> None:
    text = str(rule.get("rule") or "")
    variables: Json = {"self": new}
    if rule.get("optionalOldSelf"):
        variables["oldSelf"] = Optional(old, present=True) if old is not UNSET else Optional()
    elif "oldSelf" in text:
        if old is UNSET:
            return
        variables["oldSelf"] = old
    try:
        if program(text).holds(variables, budget):
            return
        message = _message(rule, variables, budget)
    except CelError as error:
        message = f"rule evaluation error: {error}: {text}"
    where = path + str(rule.get("fieldPath") or "")
    kind = node.type or "object"
    reason = str(rule.get("reason") or "FieldValueInvalid")
    shown = "" if kind in ("object", "array") else ": " + repr(new).replace("'", '"')
    prefix = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}.get(reason)
    causes.append(Cause(where.lstrip("."), reason, f"{prefix or f'Invalid value{shown}'}: {message}"))


def _message(rule: Json, variables: Json, budget: Budget) -> str:
    expression = rule.get("messageExpression")
    if expression:
        try:
            text = program(str(expression)).evaluate(variables, budget)
            if isinstance(text, str) and text.strip():
                return text
        except CelError:
            pass
    return str(rule.get("message") or f"failed rule: {rule.get('rule')}")
