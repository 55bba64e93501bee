"""Live changes of a machine's entry."""

from typing import Any

from anyvisor.hri.errors import Refused, finding
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.machine_spec_pb2 import Machine


def apply(machine: Machine, request: ApplyRequest) -> None:
    """Change the entry in place; refuses what contradicts it."""
    kind = request.WhichOneof("change")
    if kind == "attach_disk":
        _add(machine.disks, request.attach_disk, "disk")
    elif kind == "detach_disk":
        _remove(machine.disks, request.detach_disk, "disk")
    elif kind == "resize_disk":
        disk = _find(machine.disks, request.resize_disk.disk_id, "disk")
        if request.resize_disk.size_bytes < disk.volume.size_bytes:
            raise _refusal(f"disk {disk.id!r} cannot shrink", "resize_disk.size_bytes")
        disk.volume.size_bytes = request.resize_disk.size_bytes
    elif kind == "change_media":
        _change_media(machine, request)
    elif kind == "attach_nic":
        _add(machine.nics, request.attach_nic, "network interface")
    elif kind == "detach_nic":
        _remove(machine.nics, request.detach_nic, "network interface")
    elif kind == "set_link":
        _find(machine.nics, request.set_link.nic_id, "network interface").link_down = not request.set_link.up
    elif kind == "set_cpu":
        if not 1 <= request.set_cpu.sockets <= machine.cpu.max_sockets:
            raise _refusal(f"{machine.cpu.max_sockets} sockets are the most", "set_cpu.sockets")
        machine.cpu.sockets = request.set_cpu.sockets
    elif kind == "set_memory":
        if not 0 < request.set_memory.size_bytes <= machine.memory.max_bytes:
            raise _refusal(f"{machine.memory.max_bytes} bytes are the most", "set_memory.size_bytes")
        machine.memory.size_bytes = request.set_memory.size_bytes
    else:
        raise _refusal(f"{kind} is not supported", kind or "change")


def _change_media(machine: Machine, request: ApplyRequest) -> None:
    change = request.change_media
    disk = _find(machine.disks, change.disk_id, "disk")
    if change.HasField("volume"):
        disk.volume.CopyFrom(change.volume)
    else:
        disk.ClearField("volume")
    disk.tray_open = change.tray_open


def _refusal(message: str, field: str) -> Refused:
    return Refused(message, findings=[finding("CAP_NO", message, field=field)])


def _find(items: Any, name: str, what: str) -> Any:
    for item in items:
        if item.id == name:
            return item
    raise _refusal(f"there is no {what} {name!r}", what)


def _add(items: Any, new: Any, what: str) -> None:
    if any(item.id == new.id for item in items):
        raise _refusal(f"there is a {what} {new.id!r} already", what)
    items.append(new)


def _remove(items: Any, name: str, what: str) -> None:
    items.remove(_find(items, name, what))
