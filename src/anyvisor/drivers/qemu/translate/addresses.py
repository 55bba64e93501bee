"""Where each device sits. Addresses are given once, reported, and given back with the machine's next start.

Disks and NICs sit behind root ports, one each: bus N, slot 0, where N counts from 1. All else has a fixed slot on the
root bus, so that a disk more or less moves nothing. Ports are only ever added at the end.
"""

from collections.abc import Mapping
from typing import Final

SLOTS: Final[Mapping[str, int]] = {
    "display": 0x01,
    "usb": 0x02,
    "serial": 0x03,
    "scsi": 0x04,
    "input": 0x05,
    "balloon": 0x06,
    "rng": 0x07,
    "panic": 0x08,
    "display1": 0x09,
    "display2": 0x0A,
    "display3": 0x0B,
    "watchdog": 0x0C,
    "sound": 0x0D,
    "vsock": 0x0E,
    "filesystem": 0x0F,
    "memory": 0x16,
}
"""Slots of the root bus by purpose. Never changed: a guest's operating system remembers them."""


def fixed(purpose: str) -> dict[str, str]:
    """Bus and slot of a device on the root bus."""
    return {"bus": "pcie.0", "addr": f"{SLOTS[purpose]:#x}"}


def function(purpose: str, index: int) -> dict[str, str]:
    """Bus, slot and function of one of up to eight devices that share a slot."""
    return {"bus": "pcie.0", "addr": f"{SLOTS[purpose]:#x}.{index}"}


def behind(bus: int) -> dict[str, str]:
    """Bus and slot of the only device behind a root port."""
    return {"bus": f"port{bus}", "addr": "0x0"}
