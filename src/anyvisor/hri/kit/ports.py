"""Root ports of a PCI Express board, one for each disk and NIC: bus N, slot 0, where N counts from 1.

Addresses are given once, reported, and given back with the machine's next start. Ports are only ever added at the end.
NICs have the odd buses and disks the even ones, as long as there are enough: so a NIC that came while the guest ran,
and stands among the others at the next start, is where it was, and moves no disk.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

MAX_PORTS: Final = 48
NICS: Final = 1
DISKS: Final = 2
"""The first bus of each kind."""
_PORT_SLOTS: Final = range(0x10, 0x16)
_FUNCTIONS: Final = 8
_ADDRESS: Final = re.compile(r"(?:0000:)?([0-9a-f]{2}):00\.0")


class AddressError(ValueError):
    """An address that is not among those that are given here, or is given twice."""


@dataclass(frozen=True, slots=True)
class Port:
    """A root port: the bus behind it, and its own slot and function on the root bus."""

    bus: int
    slot: int
    function: int

    @property
    def name(self) -> str:
        """Its id, by which devices name it as their bus."""
        return f"port{self.bus}"


def address(bus: int) -> str:
    """The same as the guest sees it."""
    return f"0000:{bus:02x}:00.0"


def allocate(nics: Iterable[tuple[str, str]], disks: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The bus of each device; both have (device id, earlier address or empty) in the machine's order."""
    wanted = [*((*each, NICS) for each in nics), *((*each, DISKS) for each in disks)]
    buses: dict[str, int] = {}
    for device_id, earlier, _ in wanted:
        if earlier:
            bus = _bus(earlier)
            if bus in buses.values():
                raise AddressError(f"{earlier} is given to two devices; leave one empty to get a free one")
            buses[device_id] = bus
    for device_id, earlier, first in wanted:
        if not earlier:
            bus = choose(first, set(range(1, MAX_PORTS + 1)) - set(buses.values()))
            if bus is None:
                raise AddressError(f"the machine has more than {MAX_PORTS} disks and NICs")
            buses[device_id] = bus
    return buses


def choose(first: int, free: Collection[int]) -> int | None:
    """The bus for one more device (`first`: NICS or DISKS): the lowest of its kind, else of all; None: none is left."""
    own = [bus for bus in free if bus % 2 == first % 2]
    return min(own or free, default=None)


def _bus(earlier: str) -> int:
    match = _ADDRESS.fullmatch(earlier.lower())
    bus = int(match[1], 16) if match else 0
    if not 1 <= bus <= MAX_PORTS:
        raise AddressError(
            f"{earlier} is no place for a device here; use 0000:01:00.0 to 0000:{MAX_PORTS:02x}:00.0, or none"
        )
    return bus


def ports(count: int) -> list[Port]:
    """The root ports for buses 1 to `count`, in the order in which firmware numbers the buses."""
    places = [(slot, function) for slot in _PORT_SLOTS for function in range(_FUNCTIONS)][:count]
    return [Port(bus, slot, function) for bus, (slot, function) in enumerate(places, start=1)]
