"""Live changes of one machine, each guarded against what the VMM itself would do without a word."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from anyvisor.drivers.cloud_hypervisor import readback
from anyvisor.drivers.cloud_hypervisor.rest import RestClosed, RestError, RestRefused, RestTimeout
from anyvisor.drivers.cloud_hypervisor.session import Session
from anyvisor.drivers.cloud_hypervisor.translate import disk_config, nic_request, slots
from anyvisor.drivers.cloud_hypervisor.translate.platform import HOTPLUG_STEP
from anyvisor.hri.errors import (
    DeadlineExceeded,
    HriError,
    InvalidRequest,
    NotImplementedByDriver,
    Refused,
    VmmFailed,
    finding,
)
from anyvisor.hri.kit import Descriptors
from anyvisor.hri.kit.drafts import Draft
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, ResizeDisk
from anyvisor.hri.v1.types_pb2 import DeviceState

REMOVAL_SECONDS: Final = 60.0
"""How long a guest may take to let go of a device before the change has failed; it may still let go later."""
TOO_MANY_REQUESTS: Final = 429
GONE: Final = "Failed to find device corresponding to the given identifier"

Change = Callable[[Session, ApplyRequest, Descriptors], Coroutine[Any, Any, None]]


async def apply(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    """Make the change that the request names. Raises an HriError."""
    kind = request.WhichOneof("change") or ""
    change = _CHANGES.get(kind)
    if change is None:
        raise NotImplementedByDriver(f"Cloud Hypervisor's driver does not serve the change {kind}")
    try:
        await change(session, request, descriptors)
    except RestError as error:
        raise _translated(kind, error) from error


def _translated(kind: str, error: RestError) -> HriError:
    what = kind.replace("_", " ")
    if isinstance(error, RestTimeout):
        return DeadlineExceeded(f"{what}: {error}; ask for the machine's state and try again")
    if isinstance(error, RestClosed):
        return VmmFailed(f"{what}: the control channel is lost: {error}")
    if isinstance(error, RestRefused) and error.status == TOO_MANY_REQUESTS:
        return Refused(
            f"{what}: the guest has not yet let go of the CPUs that were taken away before; try again later",
            findings=[finding("GUEST_BUSY", "a removal of CPUs is under way", retry="backoff")],
            retry="backoff",
        )
    return Refused(f"{what}: Cloud Hypervisor refused: {error}")


# Disks


async def _attach_disk(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    disk = request.attach_disk
    info = await session.info()
    draft = Draft()
    slot = _slot(info, disk.id, disk.pci_address, "disks")
    _, most = readback.vcpus(info)
    config = disk_config(draft, disk, "attach_disk", slot, most, lambda handle: _placed(request, handle))
    if len(disk.volume.layers) > 1:
        draft.refuse("CAP_NO", "attach_disk.volume.layers", "a disk with an overlay can only be there from the start")
    draft.check()
    await _plug(session, "vm.add-disk", config or {}, ())


def _placed(request: ApplyRequest, handle: str) -> str:
    name = request.placed.get(handle, "")
    if not name:
        raise InvalidRequest(
            f"the volume {handle!r} must be placed in the launcher's directory, since Cloud Hypervisor opens disks "
            "by name; name it in `placed`"
        )
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise InvalidRequest(f"the volume {handle!r} is placed at {name[:80]!r}, outside of the launcher's directory")
    return name


async def _detach_disk(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    await _unplug(session, "disks", request.detach_disk)


async def _resize_disk(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    """Grow a disk. The VMM would shrink one as well, and cut off what it holds."""
    change = request.resize_disk
    if not readback.disk(await session.info(), change.disk_id):
        raise _no_device("disk", change.disk_id)
    _check_growth(change)
    await session.call("vm.resize-disk", {"id": change.disk_id, "desired_size": change.size_bytes})


def _check_growth(change: ResizeDisk) -> None:
    if not change.current_bytes:
        raise InvalidRequest("current_bytes is missing: without it nobody could tell growing from cutting off")
    if change.size_bytes < change.current_bytes:
        raise Refused(
            f"disk {change.disk_id!r} has {change.current_bytes} bytes and cannot be shrunk to {change.size_bytes}",
            findings=[
                finding(
                    "VALUE_INVALID",
                    "a disk is never shrunk",
                    field="resize_disk.size_bytes",
                    have=str(change.current_bytes),
                    want=str(change.size_bytes),
                )
            ],
        )


# Network interfaces


async def _attach_nic(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    nic = request.attach_nic
    info = await session.info()
    draft = Draft()
    slot = _slot(info, nic.id, nic.pci_address, "net")
    boot_vcpus, _ = readback.vcpus(info)
    made = nic_request(draft, nic, "attach_nic", slot, boot_vcpus)
    draft.check()
    assert made is not None
    taken = [descriptors.take(handle) for handle in made.handles]
    try:
        await _plug(session, "vm.add-net", made.config, taken)
    finally:
        close_all(taken)


async def _detach_nic(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    await _unplug(session, "net", request.detach_nic)


# Devices in common


def _slot(info: Mapping[str, Any], device_id: str, asked: str, kind: str) -> int:
    """The place of a new device, away from those that another holds, or will hold again after a reboot."""
    if readback.has_device(info, kind, device_id) or readback.still_plugged(info, device_id):
        raise Refused(
            f"device {device_id!r} is plugged in already, or the guest has not yet let go of it; detach it first",
            findings=[finding("DEVICE_EXISTS", "the id is in use", have=device_id)],
        )
    taken = readback.taken_slots(info)
    try:
        if not asked:
            return slots.lowest_free(taken)
        slot = slots.allocate([(device_id, asked)])[device_id]
    except slots.SlotError as error:
        raise Refused(f"PCI addresses: {error}", findings=[finding("LIMIT_EXCEEDED", str(error))]) from error
    if slot in taken:
        raise Refused(
            f"PCI addresses: {asked} is taken; leave the address out",
            findings=[finding("VALUE_UNAVAILABLE", f"{asked} is taken", want=asked)],
        )
    return slot


async def _plug(session: Session, path: str, config: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    session.removal(str(config["id"])).clear()
    answer = await session.call(path, config, descriptors=descriptors)
    address = answer.get("bdf")
    with session.machine.change() as state:
        state.devices.append(
            DeviceState(
                id=str(config["id"]),
                address=address if isinstance(address, str) else "",
                state=DeviceState.STATE_PLUGGED,
            )
        )


async def _unplug(session: Session, kind: str, device_id: str) -> None:
    """Ask the guest to let go of a device, and wait until it did. Asked again, the VMM knows the device no more."""
    info = await session.info()
    plugged = readback.has_device(info, kind, device_id)
    if not plugged and not readback.still_plugged(info, device_id):
        raise _no_device("device", device_id)
    gone = session.removal(device_id)
    gone.clear()
    if plugged:
        try:
            await session.call("vm.remove-device", {"id": device_id})
        except RestRefused as error:
            if not error.says(GONE):
                raise
    _mark_leaving(session, device_id)
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            await gone.wait()
    except TimeoutError:
        raise DeadlineExceeded(
            f"the guest has not let go of {device_id!r} within {REMOVAL_SECONDS:g} s; it may do so later, or at its "
            "next reboot",
            retry="backoff",
        ) from None


def _mark_leaving(session: Session, device_id: str) -> None:
    with session.machine.change() as state:
        for device in state.devices:
            if device.id == device_id:
                device.state = DeviceState.STATE_UNPLUGGING


def _no_device(what: str, device_id: str) -> Refused:
    return Refused(
        f"the machine has no {what} {device_id[:80]!r}",
        findings=[finding("DEVICE_UNKNOWN", "there is no such device", want=device_id[:80])],
    )


def close_all(descriptors: list[int]) -> None:
    """Close our copies; the VMM has its own."""
    for descriptor in descriptors:
        os.close(descriptor)


# CPU and memory


async def _set_cpu(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    info = await session.info()
    wanted = request.set_cpu.sockets * readback.per_socket(info)
    _, most = readback.vcpus(info)
    if not 1 <= wanted <= most:
        raise Refused(
            f"the guest can have 1 to {most} CPUs, not {wanted}",
            findings=[
                finding("LIMIT_EXCEEDED", "out of range", field="set_cpu.sockets", have=str(most), want=str(wanted))
            ],
        )
    await session.call("vm.resize", {"desired_vcpus": wanted})


async def _set_memory(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    """Add memory. Taking away would be accepted too, and happen only at a reboot."""
    wanted, now, most = request.set_memory.size_bytes, readback.memory(await session.info()), session.memory_max
    if wanted == now:
        return
    if not now < wanted <= most or (wanted - now) % HOTPLUG_STEP:
        raise Refused(
            f"the guest has {now} bytes of memory and can get up to {most} in steps of 128 MiB, not {wanted}",
            findings=[
                finding(
                    "VALUE_INVALID", "out of range", field="set_memory.size_bytes", have=str(most), want=str(wanted)
                )
            ],
        )
    await session.call("vm.resize", {"desired_ram": wanted})
    await session.refresh()


_CHANGES: Final[Mapping[str, Change]] = {
    "attach_disk": _attach_disk,
    "detach_disk": _detach_disk,
    "resize_disk": _resize_disk,
    "attach_nic": _attach_nic,
    "detach_nic": _detach_nic,
    "set_cpu": _set_cpu,
    "set_memory": _set_memory,
}
