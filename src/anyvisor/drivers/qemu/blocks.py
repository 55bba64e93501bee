"""What a running QEMU has of disks: block nodes, descriptor sets, devices and their places. Read, never remembered."""

import re
from dataclasses import dataclass
from typing import Any, Final

from anyvisor.drivers.qemu.qmp import QmpClient, QmpRefused
from anyvisor.drivers.qemu.translate.nics import NIC_PREFIX
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.v1.types_pb2 import DeviceState

PREFIX: Final = "disk-"
_PLUGGED: Final = ("disk.", "nic.")
"""How the ids of devices begin that come and go while the guest runs."""
FIRST_INDEX: Final = 100
"""Names of block nodes that came later begin with `d100-`: those of the start are numbered by their place."""
LAST_INDEX: Final = 999
_INDEX: Final = re.compile(r"d(\d+)-")
_PORT: Final = re.compile(r"/port(\d+)(?:/|$)")
_PERIPHERAL: Final = "/machine/peripheral"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block nodes and descriptor sets."""

    nodes: tuple[str, ...]
    sets: dict[int, str]
    """Number -> the mark of whom it belongs to; empty for those of the start."""

    def free_index(self) -> int:
        """A number for new nodes; raises StopIteration when there is none, after 900 disks at a time."""
        taken = {int(match[1]) for match in map(_INDEX.match, self.nodes) if match}
        return next(index for index in range(FIRST_INDEX, LAST_INDEX + 1) if index not in taken)

    def free_set(self) -> int:
        """The first number of all above those in use."""
        return max(self.sets, default=0) + 1

    def of_index(self, index: int) -> list[str]:
        """The nodes of one disk, from the top down."""
        found = [node for node in self.nodes if (match := _INDEX.match(node)) and int(match[1]) == index]
        return sorted(found, key=_depth)

    def sets_of(self, index: int) -> list[int]:
        """The descriptor sets of one disk that came later."""
        return [number for number, mark in self.sets.items() if mark == mark_of(index)]


def mark_of(index: int) -> str:
    """The mark of a disk's descriptor sets."""
    return f"d{index}"


def _depth(node: str) -> tuple[int, bool]:
    """Place in the chain: `d100-root-0`, `d100-root-0-f`, `d100-root-1`, ..."""
    is_file = node.endswith("-f")
    return int(node.removesuffix("-f").rpartition("-")[2]), is_file


async def read(client: QmpClient) -> Blocks:
    """The nodes and sets as they are now."""
    nodes: list[dict[str, Any]] = await client.execute("query-named-block-nodes", {"flat": True})
    sets: list[dict[str, Any]] = await client.execute("query-fdsets")
    return Blocks(
        tuple(str(node["node-name"]) for node in nodes),
        {int(one["fdset-id"]): next((str(fd.get("opaque", "")) for fd in one["fds"]), "") for one in sets},
    )


async def index_in(client: QmpClient, device: str) -> int | None:
    """The number of the nodes that a device has, None when it has none (an empty drive) or is not there."""
    drives: list[dict[str, Any]] = await client.execute("query-block")
    for drive in drives:
        if device in str(drive.get("qdev", "")).split("/"):
            match = _INDEX.match(str(drive.get("inserted", {}).get("node-name", "")))
            return int(match[1]) if match else None
    return None


async def peripherals(client: QmpClient) -> list[str]:
    """The ids of all devices that have one."""
    listed: list[dict[str, Any]] = await client.execute("qom-list", {"path": _PERIPHERAL})
    return [str(each["name"]) for each in listed if str(each.get("type", "")).startswith("child<")]


async def devices(client: QmpClient, known: list[DeviceState]) -> list[DeviceState]:
    """The devices as they are: `known` less the disks and NICs that are gone, and those that came later."""
    present = await peripherals(client)
    there = {
        name.removeprefix(prefix): name
        for prefix in (PREFIX, NIC_PREFIX)
        for name in present
        if name.startswith(prefix)
    }
    kept = [device for device in known if not device.id.startswith(_PLUGGED) or device.id in there]
    ids = {device.id for device in kept}
    for device_id in sorted(set(there) - ids):
        address = await _address(client, f"{_PERIPHERAL}/{there[device_id]}")
        kept.append(DeviceState(id=device_id, address=address, state=DeviceState.STATE_PLUGGED))
    return kept


async def _address(client: QmpClient, path: str) -> str:
    try:
        return f"scsi:{int(await client.execute('qom-get', {'path': path, 'property': 'scsi-id'}))}"
    except QmpRefused:
        bus = str(await client.execute("qom-get", {"path": path, "property": "parent_bus"}))
        match = _PORT.search(bus)
        return pci_ports.address(int(match[1])) if match else ""


def ports(present: list[str]) -> list[int]:
    """The root ports that the machine has."""
    return sorted(int(match[1]) for name in present if (match := re.fullmatch(r"port(\d+)", name)))
