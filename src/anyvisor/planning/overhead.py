"""The memory that a machine needs beside the guest's, as a table: a driver fills in numbers, the core adds up.

The shape follows KubeVirt's formula (memory overhead of its launcher), so that both can be compared line by line.
Every amount is bytes; ratios are exact fractions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import msgspec

from anyvisor.api.quantity import Quantity, QuantityError, parse_quantity
from anyvisor.planning.plan import OverheadItem

MIB: Final = 1 << 20
STOP_HOOK_BYTES: Final = 16 * MIB
"""The hook that asks the guest to shut down runs in the pod beside the VMM; without room for it, it is killed."""
SERIAL_LOG_BYTES: Final = 2 * MIB
"""The memory volume that holds the serial log; it counts in the pod's memory."""


class OverheadModel(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A driver's numbers. Amounts are quantities (`65Mi`)."""

    fixed: str
    """The VMM with one vCPU and no devices."""
    guest_memory_ratio: str = "0"
    """Share of the guest's memory (page tables): a decimal or a fraction, `1/512`."""
    per_vcpu: str = "0"
    per_io_thread: str = "0"
    per_disk: str = "0"
    per_nic: str = "0"
    per_display: str = "0"
    per_filesystem: str = "0"
    firmware: dict[str, str] = {}
    """By kind: `bios`, `uefi`, `kernel`."""
    architecture: dict[str, str] = {}
    """By architecture: `arm64`."""
    accelerator: dict[str, str] = {}
    """By accelerator: `emulation`, whose translated code needs room. Of several possible ones the dearest counts."""
    tpm: str = "0"
    vfio: str = "0"
    """Once, when any device is passed through (its windows are mapped)."""
    confidential: str = "0"
    dedicated_cpu: str = "0"
    margin: str = "0"
    """Added at the end, as a share of the sum."""
    measured_on: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a machine costs memory."""

    guest_memory_bytes: int
    vcpus: int = 1
    io_threads: int = 0
    disks: int = 0
    nics: int = 0
    displays: int = 0
    filesystems: int = 0
    firmware: str = "bios"
    architecture: str = "amd64"
    accelerators: tuple[str, ...] = ()
    """Those by which it may come to run."""
    tpm: bool = False
    vfio: bool = False
    confidential: bool = False
    dedicated_cpu: bool = False
    added_bytes: int = 0
    """What the user asked to be reserved on top."""
    launcher: bool = True
    """Whether there is a launcher pod at all."""


class OverheadError(ValueError):
    """A number of the model cannot be used; the message names it."""


def amount(text: str, name: str) -> int:
    """Bytes of a quantity of the model."""
    try:
        quantity: Quantity = parse_quantity(text)
    except QuantityError as error:
        raise OverheadError(f"overhead.{name}: {error}") from error
    if quantity.nanos < 0:
        raise OverheadError(f"overhead.{name}: {text} is negative; write 0 or more")
    return quantity.value


def ratio(text: str, name: str) -> Fraction:
    """An exact share: `0.002`, `1/512`."""
    try:
        share = Fraction(text) if len(text) <= 32 else None
    except (ValueError, ZeroDivisionError):
        share = None
    if share is None or not 0 <= share <= 16:
        raise OverheadError(f"overhead.{name}: {text[:40]!r} is no share; write a decimal or fraction such as 1/512")
    return share


def check(model: OverheadModel) -> list[str]:
    """Everything that is wrong with the numbers, as sentences."""
    problems: list[str] = []
    amounts = {
        name: value
        for name, value in msgspec.structs.asdict(model).items()
        if isinstance(value, str) and name not in ("guest_memory_ratio", "margin", "measured_on")
    }
    amounts |= {f"firmware.{kind}": value for kind, value in model.firmware.items()}
    amounts |= {f"architecture.{kind}": value for kind, value in model.architecture.items()}
    amounts |= {f"accelerator.{kind}": value for kind, value in model.accelerator.items()}
    for name, value in amounts.items():
        try:
            amount(value, name)
        except OverheadError as error:
            problems.append(str(error))
    for name, value in (("guestMemoryRatio", model.guest_memory_ratio), ("margin", model.margin)):
        try:
            ratio(value, name)
        except OverheadError as error:
            problems.append(str(error))
    return problems


def overhead(model: OverheadModel, shape: Shape) -> list[OverheadItem]:
    """The items that are not zero, in a fixed order. The model must have passed `check`."""
    share = ratio(model.guest_memory_ratio, "guestMemoryRatio")
    lines: Sequence[tuple[str, int]] = (
        ("fixed", amount(model.fixed, "fixed")),
        ("page-tables", int(shape.guest_memory_bytes * share)),
        ("vcpus", shape.vcpus * amount(model.per_vcpu, "perVcpu")),
        ("io-threads", shape.io_threads * amount(model.per_io_thread, "perIoThread")),
        ("disks", shape.disks * amount(model.per_disk, "perDisk")),
        ("nics", shape.nics * amount(model.per_nic, "perNic")),
        ("displays", shape.displays * amount(model.per_display, "perDisplay")),
        ("filesystems", shape.filesystems * amount(model.per_filesystem, "perFilesystem")),
        ("firmware", amount(model.firmware.get(shape.firmware, "0"), "firmware")),
        ("architecture", amount(model.architecture.get(shape.architecture, "0"), "architecture")),
        (
            "accelerator",
            max((amount(model.accelerator.get(a, "0"), "accelerator") for a in shape.accelerators), default=0),
        ),
        ("tpm", amount(model.tpm, "tpm") if shape.tpm else 0),
        ("vfio", amount(model.vfio, "vfio") if shape.vfio else 0),
        ("confidential", amount(model.confidential, "confidential") if shape.confidential else 0),
        ("dedicated-cpu", amount(model.dedicated_cpu, "dedicatedCpu") if shape.dedicated_cpu else 0),
    )
    subtotal = sum(value for _, value in lines)
    extra: Sequence[tuple[str, int]] = (
        ("margin", int(subtotal * ratio(model.margin, "margin"))),
        ("stop-hook", STOP_HOOK_BYTES if shape.launcher else 0),
        ("serial-log", SERIAL_LOG_BYTES if shape.launcher else 0),
        ("reserved", shape.added_bytes),
    )
    return [OverheadItem(item=name, bytes=value) for name, value in (*lines, *extra) if value]
