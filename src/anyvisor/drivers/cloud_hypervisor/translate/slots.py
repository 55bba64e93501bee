"""PCI places: segment 0 has 32 slots and no bridges. Each device that we name gets its slot from us and keeps it.

Slot 0 is the host bridge; 1 and 2 stay free for devices that Cloud Hypervisor places itself (pvpanic).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

RNG: Final = 3
BALLOON: Final = 4
FIRST: Final = 5
LAST: Final = 31
COUNT: Final = LAST - FIRST + 1
_ADDRESS: Final = re.compile(r"0000:00:([01][0-9a-f])\.0")


class SlotError(ValueError):
    """A place cannot be given; the message says why."""


def address(slot: int) -> str:
    """The address of a slot as the guest sees it."""
    return f"0000:00:{slot:02x}.0"


def of_address(text: str) -> int | None:
    """The slot of an address on segment 0; None for any other text."""
    match = _ADDRESS.fullmatch(text.lower())
    return int(match[1], 16) if match else None


def allocate(wanted: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Slot by device id, for (id, asked address or empty). Asked ones first, then the lowest free, in order.

    Raises:
        SlotError: an address that cannot be, one that is asked twice, or too many devices.
    """
    given: dict[str, int] = {}
    for device, asked in wanted:
        if not asked:
            continue
        slot = of_address(asked)
        if slot is None or not FIRST <= slot <= LAST:
            raise SlotError(f"{device} asks for {asked[:40]!r}; {address(FIRST)} to {address(LAST)} can be had")
        if slot in given.values():
            raise SlotError(f"{device} asks for {asked}, which another device has")
        given[device] = slot
    for device, asked in wanted:
        if not asked:
            given[device] = lowest_free(given.values())
    return given


def lowest_free(taken: Iterable[int]) -> int:
    """The lowest slot for a further device; raises SlotError when all are taken."""
    used = set(taken)
    for slot in range(FIRST, LAST + 1):
        if slot not in used:
            return slot
    raise SlotError(f"all {COUNT} PCI slots are taken; take a disk or network interface away")
