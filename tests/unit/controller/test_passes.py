"""Properties of passes over every recorded world: they settle, and they survive fields that are not there."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replaying import vm_reconcile, vmi_reconcile

from anyvisor.api.meta import uid
from anyvisor.controller.outcome import Change, Outcome, Problem
from anyvisor.controller.vm.reconcile import reconcile_vm, with_failure
from anyvisor.controller.vm.world import VmWorld
from anyvisor.controller.vmi.reconcile import reconcile_vmi, with_problem
from anyvisor.controller.vmi.world import VmiWorld

Json = dict[str, Any]
JUDGES = Path(__file__).parents[2] / "data" / "judges"
ROUNDS = 8
"""More than an object has steps."""
World = TypeVar("World", VmWorld, VmiWorld)


def cases(kind: str) -> list[Json]:
    return [json.loads(line) for line in (JUDGES / f"{kind}_open.jsonl").read_text().splitlines()]


VM_CASES, VMI_CASES = cases("vm_reconcile"), cases("vmi_reconcile")


def changed(world: World, outcome: Outcome) -> World | None:
    """The world after the changes of a pass; None when there are none."""
    changes = [write for write in outcome.writes if isinstance(write, Change)]
    for change in changes:
        world = after(world, change)
    return world if changes else None


def after(world: World, change: Change) -> World:
    kind = change.resource.plural
    if isinstance(world, VmWorld):
        if kind == "virtualmachines":
            return replace(world, vm=part(world.vm, change))
        return replace(world, vmi=change.after)
    if kind == "virtualmachineinstances":
        return replace(world, vmi=change.after)
    pods = [part(pod, change) if uid(pod) == uid(change.after) else pod for pod in world.pods]
    return replace(world, pods=pods)


def part(found: Json, change: Change) -> Json:
    if change.status:
        return {**found, "status": change.after["status"]}
    return {**change.after, "status": found.get("status", {})}


@pytest.mark.parametrize("case", VM_CASES, ids=lambda case: case["id"])
def test_passes_over_a_vm_settle(case: Json) -> None:
    world = vm_reconcile.world_of(case)
    for _ in range(ROUNDS):
        world = changed(world, reconcile_vm(world)) if world is not None else None
    assert world is None


@pytest.mark.parametrize("case", VMI_CASES, ids=lambda case: case["id"])
def test_passes_over_an_instance_settle(case: Json) -> None:
    world = vmi_reconcile.world_of(case)
    for _ in range(ROUNDS):
        world = changed(world, reconcile_vmi(world)) if world is not None else None
    assert world is None


NEEDED = {("apiVersion",), ("kind",), ("metadata",), ("spec",), ("metadata", "name"), ("metadata", "namespace")}
"""What the API server never leaves out, beside the fields that name or type an entry of a list."""


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(cast("Json", value).items())
    elif isinstance(value, list):
        entries = list(enumerate(cast("list[Any]", value)))
    for key, inner in entries:
        path = (*above, key)
        if path not in NEEDED and key not in {"name", "type", "uid"}:
            yield path
        yield from paths(inner, path)


def without(obj: Json, path: tuple[Any, ...]) -> Json:
    result = copy.deepcopy(obj)
    inner: Any = result
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return result


@st.composite
def worlds_with_gaps(draw: st.DrawFn, among: list[Json]) -> Json:
    """A recorded case of which one object lacks something."""
    case = draw(st.sampled_from(among))
    objects = cast("list[Json]", case["in"].get("world") or [])
    if not objects:
        return case
    place = draw(st.integers(0, len(objects) - 1))
    removable = list(paths(objects[place]))
    gap = draw(st.sampled_from(removable)) if removable else None
    world = [without(obj, gap) if gap and at == place else obj for at, obj in enumerate(objects)]
    return {**case, "in": {**case["in"], "world": world}}


@settings(deadline=None, max_examples=150)
@given(case=worlds_with_gaps(VM_CASES))
def test_no_missing_field_breaks_a_pass_over_a_vm(case: Json) -> None:
    world = vm_reconcile.world_of(case)
    if world is not None:
        problem = Problem("FailedCreate", "It was refused.")
        reconcile_vm(world)
        assert with_failure(world, problem).problem == problem


@settings(deadline=None, max_examples=150)
@given(case=worlds_with_gaps(VMI_CASES))
def test_no_missing_field_breaks_a_pass_over_an_instance(case: Json) -> None:
    world = vmi_reconcile.world_of(case)
    if world is not None:
        problem = Problem("FailedCreate", "It was refused.")
        reconcile_vmi(world)
        assert with_problem(world, problem).problem == problem
