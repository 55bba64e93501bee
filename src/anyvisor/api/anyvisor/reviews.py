"""`reviews.anyvisor.io/v1alpha1`: would this machine run, where, and if not, what would."""

from typing import Any

import msgspec

from anyvisor.api.meta import Model, ObjectMeta


class MachineReviewSpec(Model, frozen=True, kw_only=True):
    """The question: one machine, and the classes to try it on."""

    machine: dict[str, Any]
    """A whole VirtualMachine or VirtualMachineInstance."""
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
    """One field of an offer: what it would become."""

    field: str
    value: Any = None
    """The new value; absent when the field is to be removed."""
    cost: str
    """What the guest notices of it."""


class Offer(Model, frozen=True, kw_only=True):
    """Something that would work instead."""

    hypervisor_class: str = msgspec.field(name="class", default="")
    """The class to use; empty where an admin has to act first."""
    cost: str
    """What it costs: `none`, `invisible`, `visible`, `feature` or `admin`."""
    message: str
    """The offer as a sentence."""
    patch: tuple[dict[str, Any], ...] | None = None
    """JSON Patch (RFC 6902) against the VirtualMachineInstanceSpec, the class included."""
    changes: tuple[Change, ...] | None = None
    """The fields to change."""


class Substitution(Model, frozen=True, kw_only=True):
    """A default that the driver cannot meet, and what would stand in its place."""

    field: str
    from_: Any = msgspec.field(name="from", default=None)
    to: Any = None
    reason: str | None = None


class ClassVerdict(Model, frozen=True, kw_only=True):
    """What one class says to the machine."""

    hypervisor_class: str = msgspec.field(name="class")
    driver: str | None = None
    driver_version: str | None = None
    accelerator: str | None = None
    """What would virtualize CPU and memory: `kvm`, `emulation`, ..., or `auto` where nodes differ."""
    verdict: str
    """`SATISFIED`, `DEGRADED`, `REFUSED` or `UNKNOWN`."""
    findings: tuple[Finding, ...] | None = None
    """All findings at once."""
    substitutions: tuple[Substitution, ...] | None = None
    memory_bytes: int | None = None
    """Memory of the launcher pod."""
    overhead_bytes: int | None = None
    """What of it is not the guest's."""


class MachineReviewStatus(Model, frozen=True, kw_only=True):
    """The answer."""

    hypervisor_class: str = msgspec.field(name="class", default="")
    """The class that would be taken: as named, the default one, or the planner's choice."""
    verdict: str
    """That class's verdict."""
    classes: tuple[ClassVerdict, ...] | None = None
    offers: tuple[Offer, ...] | None = None
    """What would work instead, the cheapest first; none where the class accepts the machine."""


class MachineReview(Model, frozen=True, kw_only=True):
    """A question to the planner; created, answered and never stored."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: MachineReviewSpec
    status: MachineReviewStatus | None = None
