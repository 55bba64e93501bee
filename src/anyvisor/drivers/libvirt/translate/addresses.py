"""Where each device sits. Addresses are given once, reported, and given back with the machine's next start.

Disks and NICs sit behind root ports, one each: bus N, slot 0, where N counts from 1. All else has a fixed slot on the
root bus, so that a disk more or less moves nothing.
"""

from collections.abc import Mapping
from typing import Final

SLOTS: Final[Mapping[str, int]] = {
    "display": 0x01,
    "usb": 0x02,
    "scsi": 0x04,
    "input": 0x05,
    "balloon": 0x06,
    "rng": 0x07,
}
"""Slots of the root bus by purpose. Never changed: a guest's operating system remembers them."""
