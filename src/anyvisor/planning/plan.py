"""The plan: the stored answer to "can this driver run this machine", and what the rest of the system does with it.

A plan is made once, at admission, stored beside the machine with its digest, rendered into the launcher pod by the
controller and executed by the agent. The same inputs give the same bytes.
"""

import hashlib
from typing import Any, Final, Literal

import msgspec

PLAN_VERSION: Final = 1

Verdict = Literal["SATISFIED", "DEGRADED", "REFUSED", "UNKNOWN"]
Severity = Literal["error", "warn", "info"]
Retry = Literal["never", "after_change", "backoff", "now"]
LaunchMode = Literal["exec", "resident", "external", "none"]


class _Data(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """JSON of the plan: camelCase, defaults left out, unknown fields of newer writers ignored."""


class Finding(_Data, frozen=True, kw_only=True):
    """Why something is refused, or what was changed or should be known."""

    code: str
    """Stable: one of `findings.CODES`."""
    severity: Severity
    message: str
    """One sentence for a person: what, why, what next."""
    field: str = ""
    """Path in the machine, e.g. `spec.domain.devices.disks[1].disk.bus`."""
    capability: str = ""
    have: str = ""
    want: str = ""
    remedies: tuple[str, ...] = ()
    retry: Retry = "after_change"


class Substitution(_Data, frozen=True, kw_only=True):
    """A default that this driver cannot meet, and what stands in its place. `to` None = removed."""

    field: str
    """Path in the VirtualMachineInstanceSpec, e.g. `domain.cpu.model`."""
    from_: Any = msgspec.field(default=None, name="from")
    to: Any = None
    reason: str = ""


class OverheadItem(_Data, frozen=True, kw_only=True):
    """One line of the memory overhead."""

    item: str
    bytes: int


class DeviceCount(_Data, frozen=True, kw_only=True):
    """An extended resource that the pod asks for."""

    resource: str
    count: int


class Resources(_Data, frozen=True, kw_only=True):
    """What the launcher pod needs."""

    guest_memory_bytes: int
    overhead: tuple[OverheadItem, ...] = ()
    overhead_bytes: int = 0
    memory_bytes: int = 0
    """The pod's memory request: what the user asked for the guest, and the overhead unless it is overcommitted."""
    memory_limit_bytes: int = 0
    """The pod's memory limit, 0 = none."""
    cpu_millis: int = 0
    cpu_limit_millis: int = 0
    """0 = none."""
    devices: tuple[DeviceCount, ...] = ()
    memory_lock_bytes: int = 0
    """How much the VMM may lock (guest memory and device windows), 0 = nothing beside the default."""


class PodShape(_Data, frozen=True, kw_only=True):
    """The driver's part of the launcher pod."""

    image: str = ""
    seccomp_profile: str = ""
    """Empty = RuntimeDefault; else a Localhost profile that the agent installs."""
    run_as_user: int = 107
    shared_memory_bytes: int = 0
    """Size that /dev/shm must have, 0 = the runtime's default."""


class Plan(_Data, frozen=True, kw_only=True):
    """See the module. `fields` are relative to the VirtualMachineInstanceSpec unless they begin with `spec.`."""

    plan_version: int = PLAN_VERSION
    hypervisor_class: str
    driver: str
    driver_version: str
    hri_minor: int
    manifest_digest: str
    verdict: Verdict
    confirmed: tuple[str, ...] = ()
    """Capability ids that the machine needs and the driver states: what `Prepare` must echo."""
    findings: tuple[Finding, ...] = ()
    accelerator: str
    """kvm, mshv, emulation, none, or auto: the best that works on the node."""
    machine_type: str = ""
    parameters: dict[str, str] = {}
    launch_mode: LaunchMode
    resources: Resources
    pod: PodShape = PodShape()
    host_needs: tuple[str, ...] = ()
    """Node labels that must be `true`: what becomes node affinity."""
    substitutions: tuple[Substitution, ...] = ()
    disk_formats: tuple[str, ...] = ()
    """Image formats that the driver takes, best first: `raw`, `qcow2`, `qcow2.backing`."""
    reason: str = ""
    """Why this class, where the choice was the planner's."""
    runner_up: str = ""
    """The class that would have been next."""

    @property
    def accepted(self) -> bool:
        """Whether the machine may be created."""
        return self.verdict in ("SATISFIED", "DEGRADED")


_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder(Plan)


class PlanError(ValueError):
    """The stored text is no plan that this version can execute."""


def encode(plan: Plan) -> bytes:
    """Canonical JSON: sorted keys, no spaces; `planVersion` and `verdict` always stand in it."""
    data = msgspec.to_builtins(plan)
    data["planVersion"] = plan.plan_version
    return _ENCODER.encode(data)


def decode(text: bytes | str) -> Plan:
    """The plan of stored text. Raises PlanError; a plan of a newer version is refused, never half executed."""
    try:
        plan = _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise PlanError(f"the stored plan cannot be read: {error}; recreate the machine to plan it again") from error
    if plan.plan_version != PLAN_VERSION:
        raise PlanError(
            f"the stored plan has version {plan.plan_version}, this agent executes version {PLAN_VERSION}: "
            "upgrade the agent, or recreate the machine"
        )
    return plan


def digest(plan: Plan) -> str:
    """`sha256:` and the hash of the canonical JSON."""
    return "sha256:" + hashlib.sha256(encode(plan)).hexdigest()
