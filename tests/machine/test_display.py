"""Displays of real guests, seen over the sockets that the driver announces."""

import asyncio
import os
import shutil
import struct
from pathlib import Path

import pytest

from anyvisor.gateway.picture import take_picture
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Firmware, Machine, VolumeHandle
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_DISPLAY, OpenStreamRequest
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, Endpoint
from tests import guests
from tests.driver_rig import machine_of
from tests.ends import TcpEnd
from tests.machine.rig import Guest, Rig


def kernel_machine(name: str, *models: str) -> tuple[Machine, dict[str, int]]:
    """The tiny guest by direct kernel boot, with displays."""
    machine = machine_of(name)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    for index, model in enumerate(models):
        machine.displays.add(id=f"display{index}", model=model, heads=1)
    return machine, {"kernel": os.open(guests.tiny_kernel(), os.O_RDONLY | os.O_CLOEXEC)}


async def picture(guest: Guest, display: str = "display0") -> tuple[int, int]:
    """Width and height of a picture of the display."""
    [endpoint] = [each for each in guest.prepared.endpoints if each.device_id == display]
    assert endpoint.purpose == Endpoint.PURPOSE_DISPLAY
    path = guest.directory / endpoint.vmm_path
    assert path.stat().st_mode & 0o077 == 0, "nobody but the launcher's user looks"
    png = await take_picture(TcpEnd(*await asyncio.open_unix_connection(path)))
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize("model", ["vga", "virtio", "bochs", "cirrus", "ramfb"])
async def test_the_tiny_guest_has_a_screen(rig: Rig, model: str) -> None:
    machine, files = kernel_machine("m1", model)
    machine.devices.add(id="input.pen").input.type = "tablet"
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    width, height = await picture(guest)
    assert width >= 320
    assert height >= 200
    opened = await rig.client.open_stream(OpenStreamRequest(machine_id="m1", kind=STREAM_KIND_DISPLAY))
    assert opened.endpoint_id == "display/display0"
    assert opened.protocol == "rfb"


async def test_the_disk_that_boots_shows_its_firmware(rig: Rig, rundir: Path) -> None:
    copy = rundir / "disk.raw"
    shutil.copyfile(guests.boot_disk(), copy)
    machine = machine_of("m1")
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.firmware.kind = Firmware.KIND_BIOS
    machine.displays.add(id="display0")
    disk = machine.disks.add(id="root", kind=Disk.KIND_DISK, bus=Disk.BUS_VIRTIO)
    disk.volume.layers.add(handle="root", format=VolumeHandle.Layer.FORMAT_RAW)
    guest = await rig.boot(machine, {"root": os.open(copy, os.O_RDWR | os.O_CLOEXEC)})
    await guest.logged("ANYVISOR t=")
    assert await picture(guest) == (720, 400)


async def test_two_displays_are_two_screens_and_several_look_at_one(rig: Rig) -> None:
    machine, files = kernel_machine("m1", "vga", "bochs")
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    sizes = await asyncio.gather(picture(guest), picture(guest), picture(guest, "display1"))
    assert all(width and height for width, height in sizes)


async def test_a_successor_of_the_driver_still_announces_the_display(rig: Rig) -> None:
    machine, files = kernel_machine("m1", "vga")
    guest = await rig.boot(machine, files)
    await rig.kill_driver()
    await picture(guest)
    await rig.start_driver()
    await rig.adopt(guest)
    opened = await rig.client.open_stream(OpenStreamRequest(machine_id="m1", kind=STREAM_KIND_DISPLAY))
    assert opened.endpoint_id == "display/display0"
