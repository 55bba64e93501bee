"""Live changes of one machine."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from anyvisor.drivers.qemu import blocks, cpus, memory
from anyvisor.drivers.qemu.qmp import Command, QmpClient, QmpRefused
from anyvisor.drivers.qemu.session import Session
from anyvisor.drivers.qemu.translate.disks import add_live, add_medium, is_virtio
from anyvisor.drivers.qemu.translate.live import LiveDraft, undo
from anyvisor.drivers.qemu.translate.nics import add_nic, netdev, nic_device
from anyvisor.hri.errors import DeadlineExceeded, HriError, NotImplementedByDriver, Refused, finding
from anyvisor.hri.kit import Descriptors
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.machine_spec_pb2 import Disk
from anyvisor.hri.v1.types_pb2 import DeviceState

REMOVAL_SECONDS: Final = 10.0
"""How long a guest may take to let go of a disk before the change has failed; it may still let go later."""
TRAY_SECONDS: Final = 5.0
MEMORY_SECONDS: Final = 30.0
"""How long a guest may take to use memory that it was given, or to give some back."""
SCSI_IDS: Final = 255
IN_USE: Final = "lock"
"""QEMU's complaint about a file that another process has open for writing names the lock."""
UNPLUGGING: Final = "process of unplug"

Change = Callable[[Session, ApplyRequest, Descriptors], Coroutine[Any, Any, None]]


async def apply(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    """Make the change that the request names. Raises an HriError."""
    kind = request.WhichOneof("change") or ""
    change = _CHANGES.get(kind)
    if change is None:
        raise NotImplementedByDriver(f"QEMU's driver does not serve the change {kind}")
    await change(session, request, descriptors)


# Disks


async def _attach_disk(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    client, disk = session.client(), request.attach_disk
    device = f"{blocks.PREFIX}{disk.id}"
    present = await blocks.peripherals(client)
    if device in present:
        raise Refused(
            f"disk {disk.id!r} is attached already, or the guest has not yet let go of it; detach it first",
            findings=[finding("DEVICE_EXISTS", "the id is in use", field="attach_disk.id", have=disk.id)],
        )
    there = await blocks.read(client)
    draft = LiveDraft(first_set=there.free_set())
    index = there.free_index()
    add_live(draft, disk, index, _place(session, disk, present))
    draft.check()
    await _carry_out(client, draft, index, descriptors)
    with session.machine.change() as state:
        state.devices.extend(draft.devices)


def _place(session: Session, disk: Disk, present: Sequence[str]) -> int:
    """A free place on the disk's bus: the lowest, so that the same order gives the same places."""
    taken = _taken(session)
    if disk.pci_address:
        raise Refused(
            "a disk that is attached while the guest runs gets a free PCI address; leave pci_address out",
            findings=[finding("CAP_NO", "no address can be asked for", field="attach_disk.pci_address")],
        )
    if is_virtio(disk):
        port = pci_ports.choose(pci_ports.DISKS, _free_ports(session, present))
        free = iter(() if port is None else (port,))
        what = "no free root port is left for a virtio disk; use bus scsi, or stop and start the machine"
    else:
        free = (number for number in range(SCSI_IDS) if f"scsi:{number}" not in taken)
        what = "no place is left on the SCSI bus"
        if "scsi0" not in present:
            free, what = iter(()), "the machine was started without a SCSI controller; stop and start it"
    found = next(free, None)
    if found is None:
        raise Refused(what, findings=[finding("LIMIT_EXCEEDED", what, field="attach_disk.bus")])
    return found


def _taken(session: Session) -> set[str]:
    return {device.address for device in session.machine.state.devices}


def _free_ports(session: Session, present: Sequence[str]) -> list[int]:
    """Root ports that have nothing behind them."""
    taken = _taken(session)
    return [port for port in blocks.ports(list(present)) if pci_ports.address(port) not in taken]


async def _carry_out(client: QmpClient, draft: LiveDraft, index: int, descriptors: Descriptors) -> None:
    """Hand the descriptors over and run the commands; what was done of them is undone when one fails."""
    done: list[Command] = []
    try:
        for handle, number in draft.sets.items():
            descriptor = descriptors.take(handle)
            try:
                arguments = {"fdset-id": number, "opaque": blocks.mark_of(index)}
                await client.execute_with(descriptor, "add-fd", arguments)
            finally:
                os.close(descriptor)
        for command in draft.commands:
            await client.execute(*command)
            done.append(command)
    except HriError as error:
        await _run_all(client, undo(done))
        await _remove_sets(client, index)
        if isinstance(error, QmpRefused):
            raise _refused(error) from error
        raise


def _refused(error: QmpRefused) -> Refused:
    if IN_USE in error.description:
        message = "the disk is in use: another machine or process has it open; detach it there first"
        return Refused(message, findings=[finding("DISK_IN_USE", message, have=error.description)], retry="backoff")
    return Refused(f"QEMU refused the disk: {error.description}")


async def _run_all(client: QmpClient, commands: Sequence[Command]) -> None:
    for command in commands:
        with contextlib.suppress(HriError):
            await client.execute(*command)


async def _remove_sets(client: QmpClient, index: int) -> None:
    with contextlib.suppress(HriError):
        found = (await blocks.read(client)).sets_of(index)
        await _run_all(client, [("remove-fd", {"fdset-id": number}) for number in found])


async def _detach_disk(session: Session, request: ApplyRequest, _descriptors: Descriptors) -> None:
    client, disk_id = session.client(), request.detach_disk
    device = f"{blocks.PREFIX}{disk_id}"
    if device not in await blocks.peripherals(client):
        raise Refused(
            f"the machine has no disk {disk_id[:80]!r}",
            findings=[finding("DEVICE_UNKNOWN", "there is no such device", want=disk_id[:80])],
        )
    session.leaves(device, await _closing(client, device))
    await _unplug(session, client, device, disk_id, f"disk {disk_id!r}", "unmount it in the guest")


async def _unplug(session: Session, client: QmpClient, device: str, device_id: str, what: str, remedy: str) -> None:
    """Ask the guest to let go of a device, and wait until it has."""
    gone = session.awaited(device)
    try:
        await client.execute("device_del", {"id": device})
    except QmpRefused as error:
        if UNPLUGGING not in error.description:
            raise Refused(f"QEMU refused to detach {what}: {error.description}") from error
    _mark_leaving(session, device_id)
    try:
        async with asyncio.timeout(REMOVAL_SECONDS):
            await gone
    except TimeoutError:
        raise DeadlineExceeded(
            f"the guest has not let go of {what} within {REMOVAL_SECONDS:g} s; {remedy}. The guest is asked again",
            retry="backoff",
        ) from None
    finally:
        session.forget(device)


async def _closing(client: QmpClient, device: str) -> list[Command]:
    """What closes the image files of a device that is gone."""
    index = await blocks.index_in(client, device)
    if index is None:
        return []
    there = await blocks.read(client)
    closing: list[Command] = [("blockdev-del", {"node-name": node}) for node in there.of_index(index)]
    return closing + [("remove-fd", {"fdset-id": number}) for number in there.sets_of(index)]


def _mark_leaving(session: Session, device_id: str) -> None:
    with session.machine.change() as state:
        for device in state.devices:
            if device.id == device_id:
                device.state = DeviceState.STATE_UNPLUGGING


# Media


async def _change_media(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    """Take out what is in the drive, and put the new medium in, if there is one."""
    client, change = session.client(), request.change_media
    drive = f"{blocks.PREFIX}{change.disk_id}"
    if drive not in await blocks.peripherals(client):
        raise Refused(
            f"the machine has no drive {change.disk_id[:80]!r}",
            findings=[finding("DEVICE_UNKNOWN", "there is no such device", want=change.disk_id[:80])],
        )
    await _open_tray(session, client, drive)
    closing = await _closing(client, drive)
    await _refusable(client, "blockdev-remove-medium", {"id": drive})
    await _run_all(client, closing)
    if change.HasField("volume"):
        there = await blocks.read(client)
        draft = LiveDraft(first_set=there.free_set())
        index = there.free_index()
        node = add_medium(draft, change.disk_id, change.volume, index)
        draft.check()
        await _carry_out(client, draft, index, descriptors)
        await _refusable(client, "blockdev-insert-medium", {"id": drive, "node-name": node})
    if not change.tray_open:
        await _refusable(client, "blockdev-close-tray", {"id": drive})


async def _refusable(client: QmpClient, name: str, arguments: Mapping[str, Any]) -> None:
    try:
        await client.execute(name, arguments)
    except QmpRefused as error:
        raise Refused(f"QEMU refused to change the medium: {error.description}") from error


async def _open_tray(session: Session, client: QmpClient, drive: str) -> None:
    """Open the tray; a guest that has locked it is asked, and told where it does not let go."""
    moved = session.awaited(drive)
    try:
        await client.execute("blockdev-open-tray", {"id": drive})
    except QmpRefused as error:
        if "locked" not in error.description and "request" not in error.description:
            raise Refused(f"QEMU refused to open the tray: {error.description}") from error
        try:
            async with asyncio.timeout(TRAY_SECONDS):
                await moved
        except TimeoutError:
            raise DeadlineExceeded(
                "the guest holds the drive's tray locked; unmount the medium in the guest. The guest is asked again",
                retry="backoff",
            ) from None
    finally:
        session.forget(drive)


# Network interfaces


async def _attach_nic(session: Session, request: ApplyRequest, descriptors: Descriptors) -> None:
    client, nic = session.client(), request.attach_nic
    present = await blocks.peripherals(client)
    if nic_device(nic.id) in present:
        raise Refused(
            f"network interface {nic.id[:80]!r} is attached already, or the guest has not yet let go of it",
            findings=[finding("DEVICE_EXISTS", "the id is in use", field="attach_nic.id", have=nic.id[:80])],
        )
    port = pci_ports.choose(pci_ports.NICS, _free_ports(session, present))
    if port is None:
        what = "no free root port is left for a network interface; stop and start the machine"
        raise Refused(what, findings=[finding("LIMIT_EXCEEDED", what, field="attach_nic")])
    draft = LiveDraft()
    add_nic(draft, nic, "attach_nic", port, None)
    draft.check()
    await _plug_nic(client, draft, descriptors)
    with session.machine.change() as state:
        state.devices.extend(draft.devices)
    if nic.link_down:
        await client.execute("set_link", {"name": nic_device(nic.id), "up": False})


async def _plug_nic(client: QmpClient, draft: LiveDraft, descriptors: Descriptors) -> None:
    """Hand the descriptors over by name and run the commands; what was done is undone when one fails."""
    done: list[Command] = []
    try:
        for handle, name in draft.named.items():
            descriptor = descriptors.take(handle)
            try:
                await client.execute_with(descriptor, "getfd", {"fdname": name})
            finally:
                os.close(descriptor)
        for command in draft.commands:
            await client.execute(*command)
            done.append(command)
    except HriError as error:
        await _run_all(client, undo(done))
        if not done:
            await _run_all(client, [("closefd", {"fdname": name}) for name in draft.named.values()])
        if isinstance(error, QmpRefused):
            raise Refused(f"QEMU refused the network interface: {error.description}") from error
        raise


async def _detach_nic(session: Session, request: ApplyRequest, _descriptors: Descriptors) -> None:
    client, nic_id = session.client(), request.detach_nic
    device = nic_device(nic_id)
    if device not in await blocks.peripherals(client):
        raise Refused(
            f"the machine has no network interface {nic_id[:80]!r}",
            findings=[finding("DEVICE_UNKNOWN", "there is no such device", want=nic_id[:80])],
        )
    session.leaves(device, [("netdev_del", {"id": netdev(nic_id)})])
    await _unplug(session, client, device, nic_id, f"network interface {nic_id!r}", "take it down in the guest")


async def _set_link(session: Session, request: ApplyRequest, _descriptors: Descriptors) -> None:
    client, nic_id = session.client(), request.set_link.nic_id
    device = nic_device(nic_id)
    if device not in await blocks.peripherals(client):
        raise Refused(
            f"the machine has no network interface {nic_id[:80]!r}",
            findings=[finding("DEVICE_UNKNOWN", "there is no such device", want=nic_id[:80])],
        )
    try:
        await client.execute("set_link", {"name": device, "up": request.set_link.up})
    except QmpRefused as error:
        raise Refused(f"QEMU refused to change the link: {error.description}") from error


# CPUs


async def _set_cpu(session: Session, request: ApplyRequest, _descriptors: Descriptors) -> None:
    client = session.client()
    added = cpus.additions(await client.execute("query-hotpluggable-cpus"), request.set_cpu.sockets)
    if added and not (await client.execute("query-kvm"))["enabled"]:
        raise Refused(cpus.EMULATED, findings=[finding("CAP_NO", cpus.EMULATED, field=cpus.FIELD)])
    for arguments in added:
        try:
            await client.execute("device_add", arguments)
        except QmpRefused as error:
            raise Refused(f"QEMU refused to add a CPU: {error.description}") from error


# Memory


async def _set_memory(session: Session, request: ApplyRequest, _descriptors: Descriptors) -> None:
    """Ask the guest to take more memory, or to give some back, and wait until it has."""
    client = session.client()
    before = await memory.read(client)
    summary: dict[str, int] = await client.execute("query-memory-size-summary")
    wanted = memory.request(before, int(summary["base-memory"]), request.set_memory.size_bytes)
    if wanted == before.size == before.requested:
        return
    await _request_memory(client, wanted)
    try:
        async with asyncio.timeout(MEMORY_SECONDS):
            await _has_memory(session, client, wanted)
    except TimeoutError:
        now = await memory.read(client)
        await _request_memory(client, now.size)
        message = (
            f"of {wanted - before.size} bytes more the guest has taken {now.size - before.size}: it needs a driver for "
            "virtio-mem (Linux: CONFIG_VIRTIO_MEM), and gives back only what it does not use"
        )
        raise Refused(message, findings=[finding("GUEST_DECLINED", message, field=memory.FIELD)]) from None
    finally:
        session.forget(memory.SIZE)
    await session.refresh()


async def _has_memory(session: Session, client: QmpClient, wanted: int) -> None:
    while True:
        changed = session.awaited(memory.SIZE)
        if (await memory.read(client)).size == wanted:
            return
        await changed


async def _request_memory(client: QmpClient, size: int) -> None:
    try:
        await client.execute("qom-set", {"path": memory.PATH, "property": "requested-size", "value": size})
    except QmpRefused as error:
        raise Refused(f"QEMU refused to change the memory: {error.description}") from error


_CHANGES: Final[Mapping[str, Change]] = {
    "attach_disk": _attach_disk,
    "detach_disk": _detach_disk,
    "change_media": _change_media,
    "attach_nic": _attach_nic,
    "detach_nic": _detach_nic,
    "set_link": _set_link,
    "set_cpu": _set_cpu,
    "set_memory": _set_memory,
}
