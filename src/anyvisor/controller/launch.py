"""What the launcher pod needs to know of a plan: the seam between planning and pod rendering."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anyvisor.api.meta import Json


def unchanged(spec: Json) -> Json:
    """The spec as it is."""
    return spec


@dataclass(frozen=True, slots=True)
class Launch:
    """How one instance is launched, taken from its plan."""

    image: str
    """The launcher image."""
    overhead_bytes: int
    """Memory that the instance takes beside its guest, by the driver's model."""
    shared_memory_bytes: int = 0
    """Size that /dev/shm must have, 0 = the runtime's default."""
    devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """Device resources that the plan itself asks for, by name."""
    emulation: bool = False
    """Whether the guest runs without the kernel's virtualization."""
    plan: str = ""
    """The whole plan as canonical JSON, for the pod's annotation."""
    hypervisor: Json = field(default_factory=dict[str, object])
    """What `vmi.status.hypervisor` says of the choice."""
    seccomp: Json | None = None
    run_as_user: int = 107
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels that a node must have for the plan's host needs."""
    substitute: Callable[[Json], Json] = unchanged
    """The instance's spec with the plan's substitutions: what really runs, and what nodes must offer."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pod can be made: a stable reason and a sentence with the next step."""

    reason: str
    message: str
