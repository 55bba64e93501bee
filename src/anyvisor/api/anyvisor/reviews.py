"""`reviews.anyvisor.io/v1alpha1`: would this machine run, where, and if not, what would."""

from typing import Any

from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int32


class MachineReviewSpec(Model, frozen=True, kw_only=True):
    """The question: one machine, and the classes to try it on."""

    template: dict[str, Any]
    """`metadata` and `spec` of a VirtualMachineInstance, as a VirtualMachine's template has them."""
    namespace: str | None = None
    """The namespace whose claims, secrets and limits count; `default` when absent."""
    classes: tuple[str, ...] | None = None
    """The classes to judge; all when absent."""


class Finding(Model, frozen=True, kw_only=True):
    """One fact that stands in the way, or that the user should know."""

    code: str
    """Stable name of the kind of finding."""
    severity: str
    """`error`, `warn` or `info`."""
    message: str
    """The sentence for a person: field, cause and next step."""
    field: str | None = None
    """Path of the field in the machine's spec."""
    capability: str | None = None
    """The capability that is missing or restricted."""
    have: str | None = None
    """What there is."""
    want: str | None = None
    """What the machine asks for."""
    remedies: tuple[str, ...] | None = None
    """What would help, in order of effort."""
    retry: str | None = None
    """When to try again: `never`, `after_change`, `backoff` or `now`."""


class Change(Model, frozen=True, kw_only=True):
    """One field of a counter-offer: what it would become."""

    field: str
    value: Any = None
    """The new value; absent when the field is to be removed."""


class CounterOffer(Model, frozen=True, kw_only=True):
    """Something that would work instead."""

    cost: str
    """What it costs: `none`, `invisible`, `visible`, `feature` or `admin`."""
    message: str
    """The offer as a sentence."""
    hypervisor: str | None = None
    """The class to use, where the offer is another one."""
    changes: tuple[Change, ...] | None = None
    """The fields to change."""


class ClassVerdict(Model, frozen=True, kw_only=True):
    """What one class says to the machine."""

    hypervisor: str
    """The class."""
    driver: str | None = None
    """Its driver."""
    verdict: str
    """`SATISFIED`, `DEGRADED`, `REFUSED` or `UNKNOWN`."""
    confirmed: tuple[str, ...] | None = None
    """The capabilities that the machine needs and the driver has."""
    findings: tuple[Finding, ...] | None = None
    """All findings at once."""
    counter_offers: tuple[CounterOffer, ...] | None = None
    """What would work instead, cheapest first."""
    nodes: Int32 | None = None
    """How many nodes could run the machine now."""


class MachineReviewStatus(Model, frozen=True, kw_only=True):
    """The answer."""

    verdicts: tuple[ClassVerdict, ...] | None = None
    """One verdict per class, the best first."""
    chosen: str | None = None
    """The class that the planner would choose, if any fits."""


class MachineReview(Model, frozen=True, kw_only=True):
    """A question to the planner; created, answered and never stored."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: MachineReviewSpec
    status: MachineReviewStatus | None = None
