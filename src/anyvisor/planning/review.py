"""What would work instead: counter-offers, each planned anew before it is made. Pure.

The search takes the unmet needs of a class, applies to each the cheapest remedy that changes the machine, plans again,
and goes on until the class accepts or nothing is left to try. Changes that turn out not to be needed are taken back.
Offers are ordered by what they cost the guest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from anyvisor.api.meta import text_at
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.judge import FIRST, Policy
from anyvisor.planning.patching import with_value
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Assessment, Driver, assess
from anyvisor.planning.registry import Need, Remedy, value_at
from anyvisor.planning.values import is_list, is_map

Cost = Literal["none", "invisible", "visible", "feature", "admin"]
COSTS: Final[tuple[Cost, ...]] = ("none", "invisible", "visible", "feature", "admin")
"""What an offer costs, in the order in which offers are made: nothing changes for the guest; it can hardly see the
change; it sees it; it loses something; an admin has to act."""
MAX_ROUNDS: Final = 8
MAX_OFFERS: Final = 16
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Change:
    """One place of the spec: what would stand there; None removes it."""

    field: str
    value: Any
    cost: Cost
    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that would work: a class, and what to change for it."""

    hypervisor: str
    """Empty when an admin has to act first."""
    cost: Cost
    message: str
    changes: tuple[Change, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    """JSON Patch (RFC 6902) against the VirtualMachineInstanceSpec, the class included."""
    plan: Plan | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """A class to try."""

    hypervisor_class: Mapping[str, Any]
    driver: Driver


@dataclass(frozen=True, slots=True)
class Question:
    """The machine, with its defaults filled in, and what is known around it."""

    spec: Mapping[str, Any]
    defaulted: Mapping[str, str]
    nodes: Sequence[NodeFacts] = ()
    policy: Policy = field(default_factory=Policy)

    def on(self, option: Option, spec: Mapping[str, Any] | None = None) -> Assessment:
        """The plan of the machine, or of a changed one, on a class."""
        return assess(
            self.spec if spec is None else spec,
            option.hypervisor_class,
            option.driver,
            self.nodes,
            self.policy,
            defaulted=self.defaulted,
        )


def counter_offers(question: Question, options: Sequence[Option], asked: str) -> list[Offer]:
    """What would work in place of class `asked` as it is; the cheapest first, at most `MAX_OFFERS`.

    Options come in the order of preference, which decides between equal costs.
    """
    found: list[Offer] = []
    base = next((question.on(o).plan for o in options if _name(o) == asked), None)
    for option in options:
        made = question.on(option)
        if made.plan.accepted:
            if _name(option) != asked:
                found.append(_as_it_is(question, made.plan, base))
            continue
        changed = _with_changes(question, option, made)
        if changed is not None:
            found.append(_changed(question, asked, *changed))
        found += _for_an_admin(made.plan)
    unique = {(offer.hypervisor, offer.message): offer for offer in found}
    return sorted(unique.values(), key=lambda offer: COSTS.index(offer.cost))[:MAX_OFFERS]


def _name(option: Option) -> str:
    return text_at(option.hypervisor_class, "metadata", "name")


def _as_it_is(question: Question, made: Plan, base: Plan | None) -> Offer:
    lost = [finding for finding in made.findings if finding.code == "DEGRADED" and finding.severity == "warn"]
    cost: Cost = "feature" if lost else "invisible" if made.substitutions else "none"
    what = "; ".join(finding.message for finding in lost) or (
        "only defaults change for the guest" if made.substitutions else "nothing changes for the guest"
    )
    return Offer(
        hypervisor=made.hypervisor_class,
        cost=cost,
        message=f"set hypervisor: {made.hypervisor_class}; {what}{_memory(made, base)}",
        patch=tuple(json_patch(question.spec, made.hypervisor_class, ())),
        plan=made,
    )


def _memory(made: Plan, base: Plan | None) -> str:
    if base is None:
        return ""
    more = (made.resources.overhead_bytes - base.resources.overhead_bytes) // _MIB
    return f"; {more:+d} MiB of memory" if more else ""


def _changed(question: Question, asked: str, made: Plan, changes: tuple[Change, ...]) -> Offer:
    cost = COSTS[max(COSTS.index(change.cost) for change in changes)]
    name = made.hypervisor_class
    where = "" if name == asked else f"set hypervisor: {name}; "
    what = "; ".join(dict.fromkeys(change.text for change in changes))
    return Offer(
        hypervisor=name,
        cost=cost,
        message=f"{where}{what}",
        changes=changes,
        patch=tuple(json_patch(question.spec, name, changes)),
        plan=made,
    )


def _for_an_admin(made: Plan) -> Iterator[Offer]:
    """What no change of the machine helps with, as sentences."""
    for finding in made.findings:
        if finding.severity == "error" and finding.field == "spec.hypervisor":
            for remedy in finding.remedies:
                yield Offer(hypervisor="", cost="admin", message=remedy)


def _with_changes(question: Question, option: Option, made: Assessment) -> tuple[Plan, tuple[Change, ...]] | None:
    """The changes under which the class accepts the machine; None when none are found."""
    changes: list[Change] = []
    tried: set[tuple[str, str]] = set()
    current = made
    for _ in range(MAX_ROUNDS):
        unmet = current.judgement.unmet
        if current.plan.accepted or not unmet:
            break
        fresh = [change for need in unmet for change in _next_change(need, current, option, tried)]
        if not fresh:
            return None
        changes += fresh
        current = question.on(option, _apply(question.spec, changes))
    if not current.plan.accepted:
        return None
    return _least(question, option, current.plan, changes)


def _next_change(need: Need, current: Assessment, option: Option, tried: set[tuple[str, str]]) -> Iterator[Change]:
    """The cheapest remedy of the need that was not tried yet, at each of its places."""
    remedies = sorted(need.capability.remedies, key=lambda remedy: COSTS.index(remedy.cost))
    for index, remedy in enumerate(remedies):
        key = (need.capability.id, f"{index} {need.fields}")
        if remedy.path is None or key in tried:
            continue
        made = list(_changes(remedy, need, current, option))
        tried.add(key)
        if made:
            yield from made
            return


def _changes(remedy: Remedy, need: Need, current: Assessment, option: Option) -> Iterator[Change]:
    value = remedy.value
    if value == FIRST:
        statement = option.driver.manifest.capabilities.get(need.capability.id)
        if statement is None or not statement.yes or not statement.values:
            return
        value = statement.values[0]
    fields = (remedy.path,) if remedy.path else need.fields
    if value is None:
        # What is asked for by the elements of a list is left out with the list: the indexes of others stay true.
        fields = tuple(dict.fromkeys(at.rpartition("[")[0] if at.endswith("]") else at for at in fields))
    for at in fields:
        if value_at(current.judgement.spec, at) != value:
            shown = f": {value}" if remedy.value == FIRST else ""
            yield Change(at, value, remedy.cost, f"{remedy.text} ({at}{shown})")


def _apply(spec: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """The spec with the changes, in their order."""
    changed = dict(spec)
    for change in changes:
        changed = with_value(changed, change.field, change.value)
    return changed


def _least(question: Question, option: Option, made: Plan, changes: list[Change]) -> tuple[Plan, tuple[Change, ...]]:
    """The same offer without the changes that it does not need, the dearest tried first."""
    kept = list({change.field: change for change in changes}.values())
    for change in sorted(kept, key=lambda change: -COSTS.index(change.cost)):
        fewer = [one for one in kept if one is not change]
        again = question.on(option, _apply(question.spec, fewer)).plan
        if again.accepted:
            kept, made = fewer, again
    return made, tuple(kept)


def json_patch(spec: Mapping[str, Any], hypervisor: str, changes: Sequence[Change]) -> Iterator[dict[str, Any]]:
    """The operations that make the offer of the spec."""
    if spec.get("hypervisor") != hypervisor:
        yield {"op": "add", "path": "/hypervisor", "value": hypervisor}
    changed = _apply(spec, changes)
    for top in sorted({change.field.partition(".")[0].partition("[")[0] for change in changes}):
        yield from _difference(spec.get(top), changed.get(top), "/" + top)


def _difference(old: Any, new: Any, at: str) -> Iterator[dict[str, Any]]:
    if old == new:
        return
    if new is None:
        yield {"op": "remove", "path": at}
    elif old is None:
        yield {"op": "add", "path": at, "value": new}
    elif is_map(old) and is_map(new):
        for name in sorted({*old, *new}):
            escaped = name.replace("~", "~0").replace("/", "~1")
            yield from _difference(old.get(name), new.get(name), f"{at}/{escaped}")
    elif is_list(old) and is_list(new) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _difference(before, after, f"{at}/{index}")
    else:
        yield {"op": "replace", "path": at, "value": new}
