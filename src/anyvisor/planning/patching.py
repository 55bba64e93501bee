"""Changing one place of a machine's spec without touching the original."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from anyvisor.planning.plan import Plan, Substitution
from anyvisor.planning.registry import tokens
from anyvisor.planning.values import is_list, is_map


def with_value(spec: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at the path; None removes what stands there. Missing parents are made, except list
    elements: a path into an element that is not there changes nothing."""
    return cast("dict[str, Any]", _changed(dict(spec), tokens(path), value))


def _changed(node: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        if not is_list(node) or step >= len(node):
            return node
        items = list(node)
        if rest:
            items[step] = _changed(items[step], rest, value)
        elif value is None:
            del items[step]
        else:
            items[step] = value
        return items
    fields: dict[str, Any] = dict(node) if is_map(node) else {}
    if rest:
        if value is None and step not in fields:
            return fields
        fields[step] = _changed(fields.get(step), rest, value)
    elif value is None:
        fields.pop(step, None)
    else:
        fields[step] = value
    return fields


def apply(spec: Mapping[str, Any], substitutions: Iterable[Substitution]) -> dict[str, Any]:
    """The spec with the substitutions in place, in their order."""
    changed = dict(spec)
    for substitution in substitutions:
        changed = with_value(changed, substitution.field, substitution.to)
    return changed


def effective(spec: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """The spec that the driver is to run: what the agent translates into a Machine."""
    return apply(spec, plan.substitutions)
