"""The USB controller and what hangs on it: pointers, disks, and devices of the user's own machine."""

from typing import Final

from anyvisor.drivers.qemu.translate import addresses
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.v1.machine_spec_pb2 import Device, Disk, Machine
from anyvisor.hri.v1.types_pb2 import Endpoint

PORTS: Final = 15
BUS: Final = "usb.0"
_FIRST_DISK_PORT: Final = 2
"""The pointer has the first, so that disks come and go without moving it."""
MAX_CHANNELS: Final = 4
MAX_DISKS: Final = PORTS - _FIRST_DISK_PORT + 1 - MAX_CHANNELS


def add_controller(draft: Draft, machine: Machine) -> None:
    """The controller, where something needs it: the guest's kernel polls it, and it costs memory."""
    disks = any(disk.bus == Disk.BUS_USB for disk in machine.disks)
    devices = any(_is_usb(device) for device in machine.devices)
    if disks or devices:
        draft.device("usb", "qemu-xhci", addresses.fixed("usb"), {"p2": PORTS, "p3": PORTS})


def _is_usb(device: Device) -> bool:
    match device.WhichOneof("kind"):
        case "input":
            return device.input.bus in ("", "usb")
        case "usb_redirection":
            return True
        case _:
            return False


def pointer_port() -> dict[str, str]:
    """Where the pointer is."""
    return {"bus": BUS, "port": "1"}


def disk_port(position: int) -> dict[str, str]:
    """Where the disk is that comes after so many others on USB."""
    return {"bus": BUS, "port": str(_FIRST_DISK_PORT + position)}


def add_redirection(draft: Draft, device: Device, path: str) -> None:
    """Channels by which a client offers a device of its own to the guest, one each."""
    channels = device.usb_redirection.channels or 1
    if channels > MAX_CHANNELS:
        have, want = str(MAX_CHANNELS), str(channels)
        draft.refuse("LIMIT_EXCEEDED", f"{path}.channels", "a machine has at most 4 channels", have=have, want=want)
        return
    for channel in range(channels):
        name = f"usb-redirection-{channel}"
        endpoint = Endpoint(
            id=f"usb/{channel}",
            purpose=Endpoint.PURPOSE_USB_REDIRECTION,
            protocol="usbredir",
            protocol_version="0.7",
            exclusive=True,
            device_id=device.id,
        )
        draft.option("chardev", f"socket,id={name},fd={draft.listen(endpoint)},server=on,wait=off")
        port = str(PORTS - channel)
        draft.device(f"device-{device.id}-{channel}", "usb-redir", {"bus": BUS, "port": port}, {"chardev": name})
