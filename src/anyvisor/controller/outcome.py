"""What one pass of a reconcile core asks for: writes, events, and when to look again.

The cores are pure; a shell carries the outcome out. A write names the event that belongs to its success, so
that nothing is announced that did not happen.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from anyvisor.api.meta import Json
from anyvisor.kube.resources import Resource


class EventType(StrEnum):
    """Whether an event tells of the normal course or of trouble."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the reconciled object; `reason` is a stable word, `message` a sentence."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pass could not do what the object asks for; shown as a condition.

    `retry` is False where only a change elsewhere helps, which a watch reports.
    """

    reason: str
    message: str
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Create:
    """Create `object`; what exists already under a name that we chose is ours from an earlier pass."""

    resource: Resource
    object: Json
    done: Event | None = None
    failed: str = ""
    """Reason of the Warning event and of the condition when the server refuses."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one object of one uid; what is gone already counts as deleted."""

    resource: Resource
    object: Json
    done: Event | None = None
    failed: str = ""
    grace: int | None = None
    """Seconds; 0 ends a pod whose node is gone, None leaves it to the object."""


@dataclass(frozen=True, slots=True)
class Change:
    """Bring `before` to `after` by a patch that fails when the object changed meanwhile."""

    resource: Resource
    before: Json
    after: Json
    status: bool = False
    """The status changes, through the resource's status subresource."""
    metadata: bool = False
    """With `status`: the metadata changes in the same write, as the status subresource of pods allows."""


Write = Create | Delete | Change


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one pass; writes are carried out in order."""

    writes: tuple[Write, ...] = ()
    events: tuple[Event, ...] = ()
    problem: Problem | None = None
    requeue_after: float | None = None
    """Seconds after which to look again though nothing may have changed."""


def only_changes(outcome: Outcome) -> bool:
    """Whether the pass got where it wanted by changing objects: nothing made, deleted, or in its way."""
    return outcome.problem is None and all(isinstance(one, Change) for one in outcome.writes)


@dataclass(slots=True)
class Draft:
    """Collects an outcome while a pass runs."""

    writes: list[Write] = field(default_factory=list[Write])
    events: list[Event] = field(default_factory=list[Event])
    problem: Problem | None = None
    requeue_after: float | None = None

    def event(self, type_: EventType, reason: str, message: str) -> None:
        """Announce something that no write stands for."""
        self.events.append(Event(type_, reason, message))

    def again(self, seconds: float) -> None:
        """Look again after `seconds`, or sooner if that was asked before."""
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, seconds)

    def outcome(self) -> Outcome:
        """The finished outcome."""
        return Outcome(tuple(self.writes), tuple(self.events), self.problem, self.requeue_after)


def normal(reason: str, message: str) -> Event:
    """An event of the normal course."""
    return Event(EventType.NORMAL, reason, message)


def warning(reason: str, message: str) -> Event:
    """An event that tells of trouble."""
    return Event(EventType.WARNING, reason, message)
