"""Runs passes on their own results, so that several steps cost one write. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from anyvisor.api.meta import name
from anyvisor.controller.outcome import Change, Create, Outcome, Write
from anyvisor.kube.resources import PODS, Resource

World = TypeVar("World")
ROUNDS: Final = 4
"""Passes on their own result; more than an object has steps between two writes of others."""


def settle(
    world: World, step: Callable[[World], Outcome], follow: Callable[[World, Sequence[Change]], World | None]
) -> Outcome:
    """Run `step` until nothing more changes, and ask for the sum of the changes.

    `follow` gives the world after a pass's changes, or None where the pass moved nothing. Only changes are carried
    forward: what was created or deleted is seen when it is there or gone. What is not at its end after all rounds is
    looked at again at once.
    """
    total = latest = step(world)
    for _ in range(ROUNDS):
        changes = [one for one in latest.writes if isinstance(one, Change)]
        if total.problem is not None or len(changes) < len(latest.writes):
            break
        moved = follow(world, changes)
        if moved is None:
            break
        world = moved
        latest = step(world)
        total = Outcome(
            writes=merged([*total.writes, *latest.writes]),
            events=(*total.events, *latest.events),
            problem=latest.problem,
            requeue_after=latest.requeue_after,
        )
    else:
        total = replace(total, requeue_after=0.0)
    return total


def merged(writes: Iterable[Write]) -> tuple[Write, ...]:
    """One change per object and part, from what it was to what it is to become, at the place of the first."""
    result: list[Write] = []
    places: dict[tuple[str, str, bool], int] = {}
    for write in writes:
        if not isinstance(write, Change):
            result.append(write)
            continue
        key = (write.resource.plural, name(write.before), write.status)
        if key in places:
            first = result[places[key]]
            assert isinstance(first, Change)
            result[places[key]] = replace(first, after=write.after)
        else:
            places[key] = len(result)
            result.append(write)
    return tuple(result)


def joined(writes: Iterable[Write]) -> tuple[Write, ...]:
    """A change of a pod's metadata and one of its status as one write, at the place of the first.

    The API server takes a pod's labels and annotations at its status subresource too; the subresource of custom
    resources takes nothing but the status.
    """
    result: list[Write] = []
    places: dict[str, int] = {}
    for write in writes:
        if not isinstance(write, Change) or write.resource != PODS:
            result.append(write)
            continue
        place = places.setdefault(name(write.before), len(result))
        if place == len(result):
            result.append(write)
            continue
        first = result[place]
        assert isinstance(first, Change)
        if first.status == write.status:
            result.append(write)
            continue
        told, marked = (first, write) if first.status else (write, first)
        result[place] = Change(
            PODS,
            {**told.before, "metadata": marked.before["metadata"]},
            {**told.after, "metadata": marked.after["metadata"]},
            status=True,
            metadata=True,
        )
    return tuple(result)


def changes_of(resource: Resource, write: Write) -> bool:
    """Whether the write changes an object of a kind."""
    return isinstance(write, Change) and write.resource == resource


def creates(resource: Resource, outcome: Outcome) -> bool:
    """Whether an object of a kind is asked for, and nothing hinders it."""
    asked = any(isinstance(one, Create) and one.resource == resource for one in outcome.writes)
    return asked and outcome.problem is None


def held_back(outcome: Outcome, hold: Callable[[Write], bool], seconds: float) -> Outcome:
    """The outcome without some of its writes, which are looked at again a moment later."""
    kept = tuple(one for one in outcome.writes if not hold(one))
    if len(kept) == len(outcome.writes):
        return outcome
    known = outcome.requeue_after
    return replace(outcome, writes=kept, requeue_after=seconds if known is None else min(known, seconds))
