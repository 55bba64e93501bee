"""Disks and media that come and go while a guest runs on QEMU."""

import os
from pathlib import Path

import pytest

from anyvisor.hri.errors import DeadlineExceeded, Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, VolumeHandle
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, DescriptorToken, DeviceState
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig

SIZE = 1 << 20


def a_machine(firmware: str) -> Machine:
    """The tiny guest with an empty drive."""
    machine = machine_of("m1")
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    machine.parameters["kernelFirmware"] = firmware
    machine.attachable_disks = 2
    machine.disks.add(id="disk.cd", kind=Disk.KIND_CDROM, bus=Disk.BUS_SATA, read_only=True)
    return machine


async def boot(rig: Rig, firmware: str = "auto") -> Guest:
    kernel = os.open(guests.tiny_kernel(), os.O_RDONLY | os.O_CLOEXEC)
    guest = await rig.boot(a_machine(firmware), {"kernel": kernel})
    await guest.logged("ANYVISOR t=")
    return guest


def volume(handle: str, *, read_only: bool = False) -> VolumeHandle:
    layer = VolumeHandle.Layer(handle=handle, format=VolumeHandle.Layer.FORMAT_RAW, read_only=read_only)
    return VolumeHandle(layers=[layer], size_bytes=SIZE)


def disk(name: str, bus: Disk.Bus = Disk.BUS_SCSI) -> ApplyRequest:
    return ApplyRequest(attach_disk=Disk(id=name, kind=Disk.KIND_DISK, bus=bus, volume=volume(name), serial=name))


async def apply(rig: Rig, change: ApplyRequest, handle: str = "", path: Path | None = None) -> None:
    """One change, with the file of one handle."""
    tokens: list[DescriptorToken] = []
    if path is not None:
        readable = os.O_RDONLY if change.HasField("change_media") else os.O_RDWR
        descriptor = os.open(path, readable | os.O_CLOEXEC)
        tokens.append(await rig.client.send_descriptor(handle, descriptor))
        os.close(descriptor)
    await rig.done(await rig.client.apply("m1", change, generation=1, tokens=tokens))


async def devices(rig: Rig) -> dict[str, str]:
    state = await rig.client.inspect("m1")
    return {each.id: each.address for each in state.devices if each.state == DeviceState.STATE_PLUGGED}


def image(rundir: Path, name: str) -> Path:
    path = rundir / name
    path.write_bytes(b"\0" * SIZE)
    return path


async def test_a_disk_comes_is_found_by_another_driver_and_goes(rig: Rig, rundir: Path) -> None:
    guest = await boot(rig)
    first, second = image(rundir, "first"), image(rundir, "second")
    await apply(rig, disk("disk.first"), "disk.first", first)
    await apply(rig, disk("disk.second"), "disk.second", second)
    assert await devices(rig) == {"disk.cd": "sata:0", "disk.first": "scsi:0", "disk.second": "scsi:1"}
    with pytest.raises(Refused, match="attached already"):
        await apply(rig, disk("disk.first"), "disk.first", first)
    with pytest.raises(Refused, match="the disk is in use"):
        await apply(rig, disk("disk.third"), "disk.third", first)
    await rig.kill_driver()
    await rig.start_driver()
    state = await rig.adopt(guest)
    assert {each.id: each.address for each in state.devices} == await devices(rig)
    await apply(rig, ApplyRequest(detach_disk="disk.first"))
    assert await devices(rig) == {"disk.cd": "sata:0", "disk.second": "scsi:1"}
    await apply(rig, disk("disk.third"), "disk.third", first)
    assert (await devices(rig))["disk.third"] == "scsi:0"
    with pytest.raises(Refused, match="has no disk"):
        await apply(rig, ApplyRequest(detach_disk="disk.first"))


async def test_a_medium_is_put_in_replaced_and_taken_out(rig: Rig, rundir: Path) -> None:
    await boot(rig)
    first, second = image(rundir, "first"), image(rundir, "second")
    insert = ApplyRequest()
    insert.change_media.disk_id = "disk.cd"
    insert.change_media.volume.CopyFrom(volume("medium", read_only=True))
    await apply(rig, insert, "medium", first)
    await apply(rig, insert, "medium", second)
    # The first is closed again: it can be opened for writing.
    await apply(rig, disk("disk.first"), "disk.first", first)
    eject = ApplyRequest()
    eject.change_media.disk_id = "disk.cd"
    await apply(rig, eject)
    await apply(rig, disk("disk.second"), "disk.second", second)
    unknown = ApplyRequest()
    unknown.change_media.disk_id = "disk.none"
    with pytest.raises(Refused, match="has no drive"):
        await apply(rig, unknown)


async def test_a_virtio_disk_takes_a_spare_port_and_stays_until_the_guest_lets_go(rig: Rig, rundir: Path) -> None:
    await boot(rig, "seabios")
    path = image(rundir, "first")
    await apply(rig, disk("disk.first", Disk.BUS_VIRTIO), "disk.first", path)
    assert (await devices(rig))["disk.first"] == "0000:02:00.0"
    with pytest.raises(DeadlineExceeded, match="has not let go of disk"):
        await apply(rig, ApplyRequest(detach_disk="disk.first"))


async def test_without_a_port_a_virtio_disk_is_refused_with_what_helps(rig: Rig, rundir: Path) -> None:
    await boot(rig)
    with pytest.raises(Refused, match="use bus scsi"):
        await apply(rig, disk("disk.first", Disk.BUS_VIRTIO), "disk.first", image(rundir, "first"))
