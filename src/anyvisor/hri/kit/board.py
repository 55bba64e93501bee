"""A machine's board: its memory, and what it leaves open, chosen by what the node has. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from anyvisor.hri.kit.drafts import Draft
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, ACCELERATOR_UNSPECIFIED, Accelerator

_NAMES: Final = {ACCELERATOR_KVM: "KVM", ACCELERATOR_EMULATION: "software emulation"}
_SHOWN: Final = 80
_MIN_MEMORY_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 4096


def choose_accelerator(
    draft: Draft, wanted: Accelerator, offered: Sequence[Accelerator], reasons: Mapping[Accelerator, str], unknown: str
) -> Accelerator:
    """The accelerator asked for, or the best on which a guest really ran (`offered`, the best first).

    `reasons`: why others are not among them; `unknown`: why one that is not even there is not.
    """
    if wanted == ACCELERATOR_UNSPECIFIED:
        return offered[0]
    if wanted not in offered:
        draft.refuse(
            "ACCELERATOR_UNAVAILABLE",
            "accelerator",
            f"{_NAMES.get(wanted, 'the accelerator')} does not run guests on this node: {reasons.get(wanted, unknown)}",
            have=", ".join(_NAMES[each] for each in offered),
            want=_NAMES.get(wanted, str(wanted)),
        )
    return wanted


def choose_profile(draft: Draft, wanted: str, alias: str, default: str, profiles: Collection[str]) -> str:
    """The machine type in full; `alias` stands for `default`, as does none."""
    if wanted in ("", alias) and default:
        return default
    if wanted not in profiles:
        draft.refuse(
            "VALUE_NOT_IN_SET",
            "profile",
            f"machine type {wanted[:_SHOWN]!r} is not served here; "
            f"use {alias} or one of its versions that the node lists",
            have=", ".join(sorted(profiles)[-3:]),
            want=wanted[:_SHOWN],
        )
    return wanted


def memory_bytes(draft: Draft, size: int) -> int:
    """The guest's memory, in whole pages."""
    if size < _MIN_MEMORY_BYTES or size % _PAGE_BYTES:
        draft.refuse(
            "VALUE_INVALID",
            "memory.size_bytes",
            f"guest memory must be at least 1 MiB and a multiple of {_PAGE_BYTES} bytes",
            have=str(size),
        )
    return size
