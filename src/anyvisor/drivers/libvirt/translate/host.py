"""What a translation must know of the node, found beforehand by the driver's probes."""

from dataclasses import dataclass, field

from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, Accelerator


@dataclass(frozen=True, slots=True)
class Host:
    """Facts of one daemon."""

    profiles: frozenset[str] = frozenset()
    """Machine types in full."""
    default_profile: str = ""
    """What the alias `q35` stands for."""
    accelerators: tuple[Accelerator, ...] = (ACCELERATOR_EMULATION,)
    """Those on which a guest really ran, the best first."""
    reasons: dict[Accelerator, str] = field(default_factory=dict[Accelerator, str])
    """Why an accelerator is not among them."""
    cpu_models: frozenset[str] = frozenset()
    """Named models that the daemon's QEMU runs here."""
    displays: frozenset[str] = frozenset()
    """Models of graphics cards."""
    directory: str = ""
    """Where the driver puts kernels, one directory below it for each machine."""
