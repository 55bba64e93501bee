"""What a translation must know of the node, found beforehand by the driver's probes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, Accelerator


@dataclass(frozen=True, slots=True)
class Firmware:
    """A UEFI firmware: its code's path in the launcher, and what a new variable store starts with."""

    code: str
    variables: bytes


@dataclass(frozen=True, slots=True)
class FileServer:
    """The program that serves a directory to a guest: its path in the launcher, and which of the two it is."""

    path: str
    own: bool = True
    """Whether it is the one that came with QEMU (before 8.0), with options of its own."""


@dataclass(frozen=True, slots=True)
class Host:
    """Facts of one QEMU binary on one node."""

    emulator: str = "/usr/bin/qemu-system-x86_64"
    """Absolute path in the launcher."""
    profiles: frozenset[str] = frozenset()
    """Machine types in full."""
    default_profile: str = ""
    """What the alias `q35` stands for."""
    accelerators: tuple[Accelerator, ...] = (ACCELERATOR_EMULATION,)
    """Those on which a guest really ran, the best first."""
    reasons: dict[Accelerator, str] = field(default_factory=dict[Accelerator, str])
    """Why an accelerator is not among them."""
    cpu_models: frozenset[str] = frozenset()
    """Named models that this binary knows."""
    cpu_features: Mapping[Accelerator, frozenset[str]] = field(default_factory=dict[Accelerator, frozenset[str]])
    """Features that an accelerator can give; one that is not listed was not asked."""
    huge_page_bytes: frozenset[int] = frozenset()
    """Sizes of huge pages of which some are reserved."""
    displays: frozenset[str] = frozenset()
    """QEMU's devices for graphics cards that this binary has."""
    uefi: Firmware | None = None
    uefi_secure: Firmware | None = None
    tpm: str = ""
    """Absolute path of the TPM emulator in the launcher; empty = there is none."""
    file_server: FileServer | None = None
