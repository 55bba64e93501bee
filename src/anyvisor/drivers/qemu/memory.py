"""Memory that comes to a running guest and goes: what the device for it has, and what it is to have."""

from dataclasses import dataclass
from typing import Any, Final

from anyvisor.drivers.qemu.qmp import QmpClient
from anyvisor.drivers.qemu.translate.memory import MORE
from anyvisor.hri.errors import Refused, finding

SIZE: Final = "memory-size"
"""What is notified when the guest took or gave memory."""
FIELD: Final = "set_memory.size_bytes"
PATH: Final = f"/machine/peripheral/{MORE}"


@dataclass(frozen=True, slots=True)
class Added:
    """The device, in bytes: what the guest has of it, is to have of it, and can have at most; steps of `block`."""

    size: int = 0
    requested: int = 0
    most: int = 0
    block: int = 1


async def read(client: QmpClient) -> Added:
    """The device; nothing for a machine without."""
    devices: list[dict[str, Any]] = await client.execute("query-memory-devices")
    for device in devices:
        data: dict[str, Any] = device["data"]
        if device["type"] == "virtio-mem" and data.get("id") == MORE:
            return Added(int(data["size"]), int(data["requested-size"]), int(data["max-size"]), int(data["block-size"]))
    return Added()


def request(added: Added, base: int, wanted: int) -> int:
    """What the device is to have so that the guest has `wanted` bytes, having begun with `base`.

    Raises:
        Refused: less than it began with, more than it can have, or no whole number of steps.
    """
    more = wanted - base
    if 0 <= more <= added.most and more % added.block == 0:
        return more
    most = base + added.most
    message = (
        f"the guest began with {base} bytes of memory and can have up to {most}, in steps of {added.block}, "
        f"not {wanted}; stop and start it with another size"
    )
    code = "VALUE_INVALID" if 0 <= more <= added.most else "LIMIT_EXCEEDED"
    raise Refused(message, findings=[finding(code, "out of range", field=FIELD, have=str(most), want=str(wanted))])
