"""The QEMU driver with real guests, each by its own process and no agent but the test."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anyvisor.hri.errors import MachineNotFound, Refused, VmmFailed
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Firmware, Lifecycle, Machine, Nic, VolumeHandle
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_CONSOLE, OpenStreamRequest
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_EMULATION,
    END_REASON_FORCED,
    END_REASON_GUEST_REBOOT,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    END_REASON_VMM_EXITED,
    PAUSE_REASON_IO_ERROR,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    Endpoint,
    MachineState,
    StopScript,
    Thread,
)
from anyvisor.launcher import shim
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig


def kernel_machine(name: str = "m1") -> tuple[Machine, dict[str, int]]:
    """The tiny guest by direct kernel boot."""
    machine = machine_of(name)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.command_line = "hello, world"
    return machine, {"kernel": os.open(guests.tiny_kernel(), os.O_RDONLY | os.O_CLOEXEC)}


async def boot_tiny(rig: Rig, name: str = "m1") -> Guest:
    machine, files = kernel_machine(name)
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    return guest


def ended(state: MachineState) -> bool:
    return state.phase in (PHASE_STOPPED, PHASE_CRASHED, PHASE_LOST)


async def test_kernel_boots_and_answers_on_its_console(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    state = await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
    assert state.accelerator == ACCELERATOR_EMULATION
    assert state.vmm_version
    await guest.type("cmdline\n")
    assert await guest.logged("cmdline (.*)\r") == "hello, world"
    inspected = await rig.client.inspect("m1")
    assert inspected.memory_bytes == 64 << 20
    assert [thread.role for thread in inspected.threads] == [Thread.ROLE_VCPU]
    assert "warning" not in guest.errors


async def test_console_stream_names_the_endpoint(rig: Rig) -> None:
    await boot_tiny(rig)
    request = OpenStreamRequest(machine_id="m1", kind=STREAM_KIND_CONSOLE)
    opened = await rig.client.open_stream(request)
    assert opened.endpoint_id == "console/serial0"
    endpoints = {each.id: each for each in await rig.client.list_endpoints("m1")}
    assert endpoints["console/serial0"].purpose == Endpoint.PURPOSE_CONSOLE
    assert endpoints["stop"].stop_script.request


def disk_image(directory: Path, base: Path | None = None) -> tuple[int, int]:
    """A qcow2 overlay (read-write) over the raw boot disk (read-only), as descriptors."""
    base, overlay = base or directory / "base.raw", directory / "overlay.qcow2"
    shutil.copyfile(guests.boot_disk(), base)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay], check=True, timeout=60
    )
    return os.open(overlay, os.O_RDWR | os.O_CLOEXEC), os.open(base, os.O_RDONLY | os.O_CLOEXEC)


def disk_machine(name: str, bus: Disk.Bus = Disk.BUS_VIRTIO) -> Machine:
    machine = machine_of(name)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.firmware.kind = Firmware.KIND_BIOS
    disk = machine.disks.add(id="root", kind=Disk.KIND_DISK, bus=bus)
    disk.volume.size_bytes = 1 << 20
    disk.volume.layers.add(handle="overlay", format=VolumeHandle.Layer.FORMAT_QCOW2)
    disk.volume.layers.add(handle="base", format=VolumeHandle.Layer.FORMAT_RAW, read_only=True)
    return machine


@pytest.mark.parametrize("bus", [Disk.BUS_VIRTIO, Disk.BUS_SATA, Disk.BUS_SCSI, Disk.BUS_USB])
async def test_bios_boots_an_overlay_over_a_raw_disk(rig: Rig, rundir: Path, bus: Disk.Bus) -> None:
    overlay, base = disk_image(rundir)
    guest = await rig.boot(disk_machine("d1", bus), {"overlay": overlay, "base": base})
    await guest.logged("ANYVISOR disk first boot")
    await guest.type("wX")
    await guest.logged("written")
    os.close(overlay)
    os.close(base)
    await rig.done(await rig.client.stop("d1", generation=2, force=True))
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_FORCED)
    assert await guest.ended() == 0
    assert (rundir / "base.raw").read_bytes() == guests.boot_disk().read_bytes()
    await rig.client.destroy("d1", generation=3)
    again = await rig.boot(
        disk_machine("d2", bus),
        {
            "overlay": os.open(rundir / "overlay.qcow2", os.O_RDWR | os.O_CLOEXEC),
            "base": os.open(rundir / "base.raw", os.O_RDONLY | os.O_CLOEXEC),
        },
    )
    await again.logged("ANYVISOR disk Xirst boot")


async def test_second_opener_of_a_disk_is_refused_by_its_lock(rig: Rig, rundir: Path) -> None:
    overlay, base = disk_image(rundir)
    first = await rig.boot(disk_machine("d1"), {"overlay": overlay, "base": base})
    await first.logged("ANYVISOR t=")
    other = {
        "overlay": os.open(rundir / "overlay.qcow2", os.O_RDWR | os.O_CLOEXEC),
        "base": os.open(rundir / "base.raw", os.O_RDONLY | os.O_CLOEXEC),
    }
    second = await rig.launch(disk_machine("d2"), other)
    with pytest.raises(VmmFailed, match="before it had built the machine"):
        await rig.start(second)
    state = await rig.until(second, ended)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_VMM_EXITED)
    assert "lock" in second.errors
    assert await second.ended() == 1


async def test_stop_request_ends_in_the_guests_own_shutdown(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.done(await rig.client.stop("m1", generation=2))
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN)
    assert guest.process.poll() is None, "the VMM holds the end state until it is destroyed"
    last = await rig.client.destroy("m1", generation=3)
    assert last.end_reason == END_REASON_REQUESTED_SHUTDOWN
    assert await guest.ended() == 0
    assert "ANYVISOR button" in guest.log


async def test_guest_power_off_is_told_from_a_request(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await guest.type("off\n")
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN)


async def test_forced_stop_of_a_guest_that_ignores_the_button(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await guest.type("deaf\necho deaf now\n")
    await guest.logged("deaf now")
    await rig.done(await rig.client.stop("m1", generation=2))
    await rig.done(await rig.client.stop("m1", generation=3, force=True))
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_FORCED)
    assert await guest.ended() == 0


async def test_reset_starts_the_guest_over(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.done(await rig.client.reset("m1", generation=2))
    await guest.logged("(?s)ANYVISOR tiny.*ANYVISOR tiny")
    assert (await rig.client.inspect("m1")).phase == PHASE_RUNNING


async def test_soft_reboot_goes_through_the_guests_shutdown(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.done(await rig.client.stop("m1", generation=2, reboot=True))
    await guest.logged("(?s)ANYVISOR button.*ANYVISOR tiny.*ANYVISOR t=")
    assert (await rig.client.inspect("m1")).phase == PHASE_RUNNING


async def test_guests_own_reboot_ends_a_machine_that_stops_on_reboot(rig: Rig) -> None:
    machine, files = kernel_machine()
    machine.lifecycle.on_reboot = Lifecycle.ON_REBOOT_STOP
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    await guest.type("reset\n")
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_GUEST_REBOOT)


async def test_pause_holds_the_guest_and_resume_lets_it_go(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.done(await rig.client.pause("m1", generation=2))
    state = await rig.until(guest, lambda state: state.phase == PHASE_PAUSED)
    assert state.pause_reason == PAUSE_REASON_USER
    held = guest.log
    await asyncio.sleep(0.3)  # three ticks of a guest that runs
    assert guest.log == held
    await rig.done(await rig.client.resume("m1", generation=3))
    await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
    ticks = held.count("ANYVISOR t=")
    await guest.logged(f"ANYVISOR t={ticks + 2}\r")


async def test_starts_paused_on_request(rig: Rig) -> None:
    machine, files = kernel_machine()
    machine.lifecycle.start_paused = True
    guest = await rig.boot(machine, files)
    await rig.until(guest, lambda state: state.phase == PHASE_PAUSED)
    assert guest.log == ""
    await rig.done(await rig.client.resume("m1", generation=2))
    await guest.logged("ANYVISOR t=")


async def test_killed_driver_harms_no_guest_and_its_successor_adopts(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.kill_driver()
    before = int(await guest.logged(r"(?s).*ANYVISOR t=(\d+)"))
    await rig.start_driver()
    state = await rig.adopt(guest)
    assert state.phase == PHASE_RUNNING
    assert state.accelerator == ACCELERATOR_EMULATION
    assert {each.id for each in state.endpoints} == {"control", "stop", "console/serial0"}
    await guest.logged(f"ANYVISOR t={before + 3}\r")
    assert guest.log.count("ANYVISOR tiny") == 1
    await rig.done(await rig.client.stop("m1", generation=2))
    state = await rig.until(guest, ended)
    assert state.end_reason == END_REASON_REQUESTED_SHUTDOWN


async def test_driver_killed_before_the_first_instruction(rig: Rig) -> None:
    machine, files = kernel_machine()
    guest = await rig.launch(machine, files)
    await rig.kill_driver()
    await rig.start_driver()
    assert (await rig.adopt(guest)).phase == PHASE_PREPARED
    assert guest.log == "", "a guest that was never started has not run"
    await rig.done(await rig.client.start("m1", generation=1))
    await guest.logged("ANYVISOR t=")
    state = await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
    assert state.graceful_stop_possible


async def test_guest_that_went_down_unseen_has_an_unknown_cause(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.kill_driver()
    await guest.type("off\n")
    await guest.logged("ANYVISOR off")
    await rig.start_driver()
    state = await rig.adopt(guest)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_UNKNOWN)
    assert (await rig.client.destroy("m1", generation=2)).phase == PHASE_STOPPED
    assert await guest.ended() == 0


async def test_adoption_of_another_machines_vmm_is_refused(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.kill_driver()
    await rig.start_driver()
    guest.machine.id = "m2"
    with pytest.raises(Refused, match="runs machine 'm1'"):
        await rig.adopt(guest)


async def test_vmm_that_was_killed_is_lost(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    guest.process.send_signal(signal.SIGKILL)
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_LOST, END_REASON_UNKNOWN)
    last = await rig.client.destroy("m1", generation=2)
    assert last.phase == PHASE_LOST
    with pytest.raises(MachineNotFound):
        await rig.client.inspect("m1")


async def test_what_is_not_served_is_refused_with_all_findings(rig: Rig) -> None:
    machine, files = kernel_machine()
    machine.cpu.dedicated.append(3)
    machine.memory.locked = True
    with pytest.raises(Refused) as caught:
        await rig.boot(machine, files)
    fields = {finding.field for finding in caught.value.findings}
    assert {"cpu.dedicated[0]", "memory.locked"} <= fields


def shim_steps(steps: Sequence[StopScript.Step]) -> list[shim.Step]:
    return [shim.Step(step.send, step.expect) for step in steps]


async def test_stop_script_shuts_the_guest_down_without_a_driver(rig: Rig) -> None:
    guest = await boot_tiny(rig)
    await rig.kill_driver()
    script = next(each for each in guest.prepared.endpoints if each.id == "stop").stop_script
    with guest.connect("stop") as connection:
        connection.setblocking(True)
        assert await asyncio.to_thread(shim.play, connection, shim_steps(script.request), time.monotonic() + 20)
        assert "ANYVISOR off" in guest.log
        assert guest.process.poll() is None
        assert await asyncio.to_thread(shim.play, connection, shim_steps(script.finish), time.monotonic() + 5)
    assert await guest.ended() == 0
    await rig.start_driver()


def full_machine(name: str, rundir: Path) -> tuple[Machine, dict[str, int]]:
    """Linux with everything that the driver states, on user-mode networking."""
    linux = guests.linux_guest()
    machine = machine_of(name, memory_mib=192)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.cpu.sockets = 2
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.initrd_handle = "initrd"
    machine.boot.kernel.command_line = linux.command_line
    machine.nics.add(id="default", mac="02:00:00:00:00:01").user.network = "10.0.2.0/24"
    machine.nics.add(id="dark", mac="02:00:00:00:00:02", link_down=True).user.network = "10.0.3.0/24"
    models = (Nic.MODEL_E1000, Nic.MODEL_E1000E, Nic.MODEL_RTL8139, Nic.MODEL_PCNET, Nic.MODEL_NE2K_PCI)
    for index, model in enumerate(models):
        machine.nics.add(id=f"n{index}", model=model, mac=f"02:00:00:00:01:0{index}").user.network = "10.1.0.0/24"
    for index, size in enumerate((1, 2)):
        path = rundir / f"data{index}.raw"
        path.write_bytes(b"\0" * (size << 20))
        disk = machine.disks.add(id=f"data{index}", kind=Disk.KIND_DISK, serial=f"SERIAL{index}")
        disk.volume.layers.add(handle=f"data{index}", format=VolumeHandle.Layer.FORMAT_RAW)
    machine.disks[0].dedicated_io_thread = True
    machine.disks[0].queues = 2
    machine.disks[0].block_size.logical = machine.disks[0].block_size.physical = 4096
    cdrom = machine.disks.add(id="tray", kind=Disk.KIND_CDROM, bus=Disk.BUS_SATA)
    assert not cdrom.HasField("volume")
    machine.devices.add(id="balloon").balloon.free_page_reporting = True
    machine.devices.add(id="rng").rng.SetInParent()
    machine.devices.add(id="panic").panic.model = "pvpanic"
    machine.devices.add(id="agent").guest_agent_port.SetInParent()
    machine.identity.product = "Anyvisor, with a comma"
    machine.identity.serial = "S-1"
    machine.identity.chassis_asset = "A-1"
    machine.features.acpi = True
    machine.features.smm = True
    files = {
        "kernel": os.open(linux.kernel, os.O_RDONLY | os.O_CLOEXEC),
        "initrd": os.open(linux.initrd, os.O_RDONLY | os.O_CLOEXEC),
        **{f"data{i}": os.open(rundir / f"data{i}.raw", os.O_RDWR | os.O_CLOEXEC) for i in (0, 1)},
    }
    return machine, files


async def test_linux_finds_every_device_and_shuts_down_cleanly(rig: Rig, rundir: Path) -> None:
    machine, files = full_machine("linux", rundir)
    guest = await rig.boot(machine, files)
    assert await guest.logged(r"ANYVISOR disk vda (sectors=\d+ serial=\w+)") == "sectors=2048 serial=SERIAL0"
    assert await guest.logged(r"ANYVISOR disk vdb (sectors=\d+ serial=\w+)") == "sectors=4096 serial=SERIAL1"
    assert await guest.logged(r"ANYVISOR address=(\S+ \S+)") == "10.0.2.2/24 gateway=10.0.2.1"
    await guest.logged("ANYVISOR t=")
    command = "touch /run/quiet; cat /sys/class/dmi/id/product_name /sys/class/net/*/address; ls /sys/bus/pci/devices\n"
    await guest.type(command)
    places = {each.id: each.address for each in guest.prepared.devices}
    assert places["default"] == "0000:01:00.0"
    assert places["data0"] == "0000:02:00.0", "disks have ports of their own parity, whatever the NICs are"
    assert "Anyvisor, with a comma" in await guest.logged(rf"(?s)(Anyvisor, with a comma.*){places['data0']}")
    await guest.type("readlink -f /sys/class/net/eth0/device; cat /sys/class/net/eth0/address\n")
    await guest.logged(r"/0000:01:00.0/virtio\d+\r\n02:00:00:00:00:01")
    await guest.type(
        "ip link set eth1 up; echo carrier $(cat /sys/class/net/eth0/carrier /sys/class/net/eth1/carrier)\n"
    )
    assert await guest.logged(r"carrier (\d \d)") == "1 0"
    inspected = await rig.client.inspect("linux")
    assert [thread.role for thread in inspected.threads] == [Thread.ROLE_VCPU, Thread.ROLE_VCPU, Thread.ROLE_IO]
    await rig.done(await rig.client.stop("linux", generation=2))
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN)


async def test_panic_holds_the_guest_as_crashed(rig: Rig, rundir: Path) -> None:
    machine, files = full_machine("linux", rundir)
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    await guest.type("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger\n")
    state = await rig.until(guest, ended)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_PANIC)
    assert "panicked" in state.message
    assert guest.process.poll() is None


@pytest.fixture
def small_disk(rundir: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = rundir / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_full_storage_pauses_the_guest_until_there_is_room(rig: Rig, small_disk: Path, rundir: Path) -> None:
    overlay, base = disk_image(small_disk, base=rundir / "base.raw")
    guest = await rig.boot(disk_machine("d1"), {"overlay": overlay, "base": base})
    await guest.logged("ANYVISOR t=")
    filler = small_disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    await guest.type("wX")
    state = await rig.until(guest, lambda state: state.phase == PHASE_PAUSED)
    assert state.pause_reason == PAUSE_REASON_IO_ERROR
    assert "disk root: the storage is full" in state.message
    filler.unlink()
    await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
    await guest.logged("written")


async def test_flooded_log_stops_nobody(rig: Rig, small_disk: Path) -> None:
    machine, files = kernel_machine()
    (small_disk / "filler").write_bytes(b"x" * ((1 << 20) - (32 << 10)))
    log = os.open(small_disk / "serial.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
    machine.consoles[0].log_handle = "small log"
    guest = await rig.boot(machine, {**files, "small log": log})
    await guest.type("")
    await guest.hears("ANYVISOR t=")
    await guest.type("flood\n")
    async with asyncio.timeout(60):
        while (small_disk / "serial.log").stat().st_size < 32 << 10:
            await asyncio.sleep(0.1)
    await guest.type("\nping\n")
    await guest.hears("pong")
    assert (await rig.client.inspect("m1")).phase == PHASE_RUNNING


@pytest.mark.parametrize("count", [1, 10])
async def test_guest_sees_devices_where_the_driver_said(rig: Rig, count: int) -> None:
    machine, files = kernel_machine()
    ids = {Nic.MODEL_E1000: "8086:100e", Nic.MODEL_VIRTIO: "1af4:1041", Nic.MODEL_RTL8139: "10ec:8139"}
    models = [Nic.MODEL_VIRTIO, Nic.MODEL_E1000, Nic.MODEL_RTL8139, Nic.MODEL_VIRTIO, *[Nic.MODEL_E1000] * 6]
    for index, model in enumerate(models[:count]):
        nic = machine.nics.add(id=f"n{index}", model=model, mac=f"02:00:00:00:01:{index:02x}")
        nic.user.network = "10.1.0.0/24"
    guest = await rig.boot(machine, files)
    await guest.logged("ANYVISOR t=")
    expected = {
        f"pci {place.address.removeprefix('0000:')} {ids[nic.model]}"
        for nic, place in zip(machine.nics, guest.prepared.devices, strict=True)
    }
    assert [nic.id for nic in machine.nics] == [place.id for place in guest.prepared.devices]
    await guest.type("pci\n")
    await guest.hears("pci end")
    assert {line for line in expected if line not in guest.heard} == set()
