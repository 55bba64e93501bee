"""Level 3: each live change that is claimed works, seen in the guest; each other is refused."""

import os
from typing import Final

from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, refusal
from anyvisor.hri.conformance.standing import DRIVE, FIRST, MAX_SOCKETS, SOCKETS
from anyvisor.hri.conformance.target import GROWS_FROM, GROWS_TO, Target, growing, target
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, ChangeMedia, ResizeDisk, SetCpu, SetLink, SetMemory
from anyvisor.hri.v1.machine_spec_pb2 import Device, Disk, Nic, Rng

CHECKS = CheckList()
REFUSALS: Final = ("UNIMPLEMENTED", "FAILED_PRECONDITION")
HOT_DISK, HOT_NIC, HOT_DEVICE, MEDIUM = "hot-disk", "hot-nic", "hot-device", "conform-medium"
HOT_MAC: Final = "02:00:00:c0:ff:09"
LARGER: Final = 8 << 20
SECTOR: Final = 512


async def _claimed(session: Session, capability: str, change: ApplyRequest) -> Target | None:
    """The machine to change where the driver claims the change; where not, it must refuse, and None."""
    at = await target(session)
    statement = session.claim(capability)
    if statement is not None and statement.when == "live":
        return at
    await refusal(at.attempt(change), f"{change.WhichOneof('change')}, which is not claimed", *REFUSALS)
    return None


def _hot_disk(at: Target) -> tuple[Disk, dict[str, int]]:
    handle = f"{HOT_DISK}/0"
    if handle not in at.materials.handles:
        at.materials.raw(handle, HOT_DISK)
    disk = at.works.disk(HOT_DISK, serial=HOT_DISK, hotplugged=True)
    disk.volume.layers[0].handle = handle
    disk.volume.layers[0].direct = False
    disk.volume.layers[0].format = disk.volume.layers[0].FORMAT_RAW
    disk.volume.size_bytes = 4 << 20
    return disk, {handle: at.materials.handles[handle]}


def _hot_nic(at: Target) -> tuple[Nic, dict[str, int]]:
    nic = at.works.nic(HOT_NIC, mac=HOT_MAC)
    if at.works.user_network:
        nic.user.network = "10.0.9.0/24"
        return nic, {}
    handle = nic.tap.handles[0]
    if handle not in at.materials.handles and not at.materials.tap(handle):
        raise CheckSkippedError("no tap can be made here")
    return nic, {handle: at.materials.handles[handle]}


@CHECKS.add("change.disk.attach", "A disk that is attached appears in the guest; or the change is refused", level=3)
async def attach_disk(session: Session) -> None:
    at = await _claimed(session, "change.disk.attach", ApplyRequest(attach_disk=Disk(id="x", kind=Disk.KIND_DISK)))
    if at is None:
        return
    disk, handles = _hot_disk(at)
    await at.apply(ApplyRequest(attach_disk=disk), handles)
    await at.tells(HOT_DISK, True)
    await at.sees(lambda report: report.disk(HOT_DISK).get("label") == HOT_DISK, "a disk was attached")
    await refusal(
        at.attempt(ApplyRequest(attach_disk=disk), handles), "a second disk of the same id", *REFUSALS, "ALREADY_EXISTS"
    )


@CHECKS.add("change.disk.resize", "A disk that grows is seen to grow in the guest; or the change is refused", level=3)
async def resize_disk(session: Session) -> None:
    name = FIRST
    change = ResizeDisk(disk_id=name, size_bytes=LARGER, current_bytes=4 << 20)
    at = await _claimed(session, "change.disk.resize", ApplyRequest(resize_disk=change))
    if at is None:
        return
    os.truncate(at.materials.file(f"{name}/0"), LARGER)
    await at.apply(ApplyRequest(resize_disk=change))
    await at.sees(lambda report: report.disk(name).get("sectors") == str(LARGER // SECTOR), "a disk has grown")
    smaller = ResizeDisk(disk_id=name, size_bytes=1 << 20, current_bytes=LARGER)
    await refusal(at.attempt(ApplyRequest(resize_disk=smaller)), "a disk that shrinks", *REFUSALS, "INVALID_ARGUMENT")


@CHECKS.add("change.disk.detach", "A disk that is detached is gone in the guest; or the change is refused", level=3)
async def detach_disk(session: Session) -> None:
    at = await _claimed(session, "change.disk.detach", ApplyRequest(detach_disk=FIRST))
    if at is None:
        return
    if HOT_DISK not in {device.id for device in (await at.state()).devices}:
        raise CheckSkippedError("no disk was attached that could be detached (change.disk.attach)")
    await at.apply(ApplyRequest(detach_disk=HOT_DISK))
    await at.sees(lambda report: report.records and not report.disk(HOT_DISK), "a disk was detached")
    await at.tells(HOT_DISK, False)
    await refusal(
        at.attempt(ApplyRequest(detach_disk=HOT_DISK)), "the detaching of what is not there", *REFUSALS, "NOT_FOUND"
    )


@CHECKS.add("change.disk.media", "A medium is put into a drive and taken out; or the change is refused", level=3)
async def media(session: Session) -> None:
    at = await _claimed(
        session, "change.disk.media", ApplyRequest(change_media=ChangeMedia(disk_id=FIRST, tray_open=True))
    )
    if at is None:
        return
    if DRIVE not in {disk.id for disk in at.machine.disks}:
        raise CheckSkippedError("no drive was there to try it with: the guest sees drives on SCSI alone")
    volume = at.materials.raw(f"{MEDIUM}/0", MEDIUM, read_only=True)
    handles = {f"{MEDIUM}/0": at.materials.handles[f"{MEDIUM}/0"]}
    await at.apply(ApplyRequest(change_media=ChangeMedia(disk_id=DRIVE, volume=volume)), handles)
    await at.sees(lambda report: any(d.get("label") == MEDIUM for d in report.all("disk")), "a medium was put in")
    await at.apply(ApplyRequest(change_media=ChangeMedia(disk_id=DRIVE, tray_open=True)))
    await at.sees(
        lambda report: report.records and not any(d.get("label") == MEDIUM for d in report.all("disk")),
        "a medium was taken out",
    )


@CHECKS.add("change.nic.attach", "A NIC that is attached appears in the guest; or the change is refused", level=3)
async def attach_nic(session: Session) -> None:
    at = await _claimed(session, "change.nic.attach", ApplyRequest(attach_nic=Nic(id="x", mac=HOT_MAC)))
    if at is None:
        return
    nic, handles = _hot_nic(at)
    await at.apply(ApplyRequest(attach_nic=nic), handles)
    await at.tells(HOT_NIC, True)
    await at.sees(lambda report: report.nic(HOT_MAC), "a NIC was attached")


@CHECKS.add("change.nic.link", "A link that is set down is seen in the guest; or the change is refused", level=3)
async def link(session: Session) -> None:
    at = await target(session)
    if not at.machine.nics:
        raise CheckSkippedError("the machine has no NIC: the driver has no user-space network, and no tap can be made")
    nic = at.machine.nics[0]
    found = await _claimed(session, "change.nic.link", ApplyRequest(set_link=SetLink(nic_id=nic.id, up=False)))
    if found is None:
        return
    for up in (False, True):
        await at.apply(ApplyRequest(set_link=SetLink(nic_id=nic.id, up=up)))
        carrier = "1" if up else "0"
        await at.sees(lambda report, want=carrier: report.nic(nic.mac).get("carrier") == want, f"the link was set {up}")


@CHECKS.add("change.nic.detach", "A NIC that is detached is gone in the guest; or the change is refused", level=3)
async def detach_nic(session: Session) -> None:
    at = await _claimed(session, "change.nic.detach", ApplyRequest(detach_nic="nic-one"))
    if at is None:
        return
    if HOT_NIC not in {device.id for device in (await at.state()).devices}:
        raise CheckSkippedError("no NIC was attached that could be detached (change.nic.attach)")
    await at.apply(ApplyRequest(detach_nic=HOT_NIC))
    await at.sees(lambda report: report.records and not report.nic(HOT_MAC), "a NIC was detached")
    await at.tells(HOT_NIC, False)


@CHECKS.add("change.cpu", "CPUs that are added appear in the guest; or the change is refused", level=3)
async def cpu(session: Session) -> None:
    at = await _claimed(session, "change.cpu", ApplyRequest(set_cpu=SetCpu(sockets=MAX_SOCKETS)))
    if at is None:
        return
    await at.apply(ApplyRequest(set_cpu=SetCpu(sockets=SOCKETS + 1)))
    await at.sees(lambda report: report.one("cpu").get("present") == str(SOCKETS + 1), "a CPU was added")
    more = ApplyRequest(set_cpu=SetCpu(sockets=MAX_SOCKETS + 1))
    await refusal(at.attempt(more), "more CPUs than the machine may have", *REFUSALS, "INVALID_ARGUMENT")


@CHECKS.add("change.memory", "Memory that is added appears in the guest; or the change is refused", level=3)
async def memory(session: Session) -> None:
    grown = GROWS_FROM + (128 << 20)
    change = ApplyRequest(set_memory=SetMemory(size_bytes=grown))
    statement = session.claim("change.memory")
    if statement is None or statement.when != "live":
        await _claimed(session, "change.memory", change)
        return
    async with growing(session) as at:
        before = await at.memory()
        await at.apply(change)
        told = (await at.state()).memory_bytes
        expect(told == grown, f"after the change the state tells {told} bytes, not {grown}")
        await at.sees(lambda report: int(report.one("memory").get("bytes", "0")) > before, "memory was added")
        more = ApplyRequest(set_memory=SetMemory(size_bytes=2 * GROWS_TO))
        await refusal(at.attempt(more), "more memory than the machine may have", *REFUSALS, "INVALID_ARGUMENT")


@CHECKS.add("change.device", "A device that is attached is told of and goes again; or the change is refused", level=3)
async def device(session: Session) -> None:
    added = Device(id=HOT_DEVICE, rng=Rng())
    at = await _claimed(session, "change.device.attach", ApplyRequest(attach_device=added))
    if at is None:
        await _claimed(session, "change.device.detach", ApplyRequest(detach_device=HOT_DEVICE))
        return
    await at.apply(ApplyRequest(attach_device=added))
    await at.tells(HOT_DEVICE, True)
    if await _claimed(session, "change.device.detach", ApplyRequest(detach_device=HOT_DEVICE)) is not None:
        await at.apply(ApplyRequest(detach_device=HOT_DEVICE))
        await at.tells(HOT_DEVICE, False)


@CHECKS.add("change.nothing", "A change without content is INVALID_ARGUMENT or refused, and harms nothing", level=3)
async def nothing(session: Session) -> None:
    at = await target(session)
    await refusal(at.attempt(ApplyRequest()), "a change without content", *REFUSALS, "INVALID_ARGUMENT")
    await at.sees(lambda report: report.one("cpu"), "an empty change was refused")
