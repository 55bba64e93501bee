"""`auto`: which of the classes that accept a machine gets it, and why that one and not the next. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from anyvisor.planning.manifest import Manifest
from anyvisor.planning.plan import Plan

_MIB: Final = 1 << 20
_HELD: Final[Mapping[str, int]] = {"kvm": 2, "mshv": 2, "auto": 1, "emulation": 1, "none": 0}
"""How a guest is held, by accelerator: by the CPU, by a VMM that emulates all of it, or as processes of the host."""
_UNKNOWN_MILLISECONDS: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Accepted:
    """A plan that would do, and the manifest that it was made from; in the order of the classes' weight."""

    plan: Plan
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class _Measure:
    """One preference: less is better, and how a value is said."""

    value: Callable[[Accepted], Any]
    said: Callable[[Accepted], str]


def _memory(one: Accepted) -> int:
    return one.plan.resources.memory_bytes


def _start(one: Accepted) -> int:
    return one.manifest.start_milliseconds or _UNKNOWN_MILLISECONDS


def _start_said(one: Accepted) -> str:
    told = one.manifest.start_milliseconds
    return f"starts in about {told} ms" if told else "does not say how fast it starts"


def _isolation(one: Accepted) -> tuple[int, int, int]:
    rootless = one.manifest.states("ops.rootless")
    return (-_HELD.get(one.plan.accelerator, 0), -int(rootless), int(one.plan.launch_mode == "external"))


def _isolation_said(one: Accepted) -> str:
    who = "without privileges" if one.manifest.states("ops.rootless") else "with privileges"
    where = ", outside of its pod" if one.plan.launch_mode == "external" else ""
    return f"runs the guest by {one.plan.accelerator} {who}{where}"


def _features(one: Accepted) -> tuple[int, int, int]:
    lost = sum(finding.severity == "warn" for finding in one.plan.findings)
    return (lost, len(one.plan.substitutions), -_stated(one))


def _stated(one: Accepted) -> int:
    return sum(statement.yes for statement in one.manifest.capabilities.values())


def _features_said(one: Accepted) -> str:
    changed = len(one.plan.substitutions)
    return f"has {_stated(one)} capabilities, {changed} defaults changed"


_MEASURES: Final[Mapping[str, _Measure]] = {
    "features": _Measure(_features, _features_said),
    "isolation": _Measure(_isolation, _isolation_said),
    "memory": _Measure(_memory, lambda one: f"needs {_memory(one) / _MIB:.0f} MiB"),
    "start": _Measure(_start, _start_said),
}


def best(accepted: Sequence[Accepted], wanted: Sequence[str]) -> Plan:
    """The plan that is best by the preferences, the first of them first, then by weight; with reason and runner-up."""
    measures = [_MEASURES[name] for name in wanted if name in _MEASURES]
    ranked = sorted(accepted, key=lambda one: tuple(measure.value(one) for measure in measures))
    winner = ranked[0]
    if len(ranked) == 1:
        return replace(winner.plan, reason="it is the only class that accepts the machine")
    runner_up = ranked[1]
    return replace(winner.plan, reason=_reason(winner, runner_up, measures), runner_up=runner_up.plan.hypervisor_class)


def _reason(winner: Accepted, runner_up: Accepted, measures: Sequence[_Measure]) -> str:
    for measure in measures:
        if measure.value(winner) != measure.value(runner_up):
            return f"it {measure.said(winner)}; {runner_up.plan.hypervisor_class} {measure.said(runner_up)}"
    equal = "equal by what was preferred, and " if measures else ""
    return f"{equal}before {runner_up.plan.hypervisor_class} by the classes' weight"
