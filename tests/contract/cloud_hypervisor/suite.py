"""What must hold of the driver with any Cloud Hypervisor: the real one (tests/machine), and the test's own (here)."""

import fcntl
import os
import signal
import struct
import time
from pathlib import Path

import pytest

from anyvisor.agent import placing
from anyvisor.agent.launchers import Launcher
from anyvisor.agent.volumes import qcow2
from anyvisor.hri.errors import InvalidRequest, MachineNotFound, Refused, VmmFailed
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, ResizeDisk, SetCpu, SetMemory
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, Nic, TapBackend, VolumeHandle
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_CONSOLE, OpenStreamRequest
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_KVM,
    END_REASON_FORCED,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_INTERNAL_ERROR,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    DeviceState,
    Endpoint,
    MachineState,
    Process,
)
from anyvisor.launcher import shim
from tests import guests
from tests.contract.cloud_hypervisor.rig import Guest, Rig, machine_of

MIB = 1 << 20
TUNSETIFF = 0x400454CA
TAP_FLAGS = 0x0002 | 0x1000 | 0x4000  # IFF_TAP, IFF_NO_PI, IFF_VNET_HDR


def kernel() -> int:
    return os.open(guests.tiny_kernel_64(), os.O_RDONLY | os.O_CLOEXEC)


async def boot(rig: Rig, machine: Machine | None = None, **files: int) -> Guest:
    guest = await rig.boot(machine or machine_of("m1"), {"kernel": kernel(), **files})
    await guest.said("ANYVISOR t=")
    return guest


def raw_disk(directory: Path, name: str = "disk.raw", size: int = 4 * MIB) -> Path:
    path = directory / name
    with path.open("wb") as file:
        file.truncate(size)
    return path


def disk(device_id: str, handle: str, image: VolumeHandle.Layer.Format = VolumeHandle.Layer.FORMAT_RAW) -> Disk:
    layer = VolumeHandle.Layer(handle=handle, format=image)
    return Disk(id=device_id, kind=Disk.KIND_DISK, bus=Disk.BUS_VIRTIO, volume=VolumeHandle(layers=[layer]))


def tap() -> int:
    try:
        opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(opened, TUNSETIFF, struct.pack("16sH22x", b"avch%d", TAP_FLAGS))
    except OSError as error:
        pytest.skip(f"no tap can be made here: {error}")
    return opened


def gone(state: MachineState) -> bool:
    return state.phase in (PHASE_STOPPED, PHASE_CRASHED, PHASE_LOST)


class DriverSuite:
    """Needs a fixture `rig`."""

    async def test_kernel_boots_and_answers_on_its_console(self, rig: Rig) -> None:
        guest = await boot(rig)
        await guest.said("ANYVISOR tiny")  # what was said before the first client came is kept
        state = await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
        assert (state.accelerator, state.message) == (ACCELERATOR_KVM, "")
        assert state.vmm_version.startswith("53.")
        assert state.memory_bytes == 64 * MIB
        assert [process.role for process in state.processes] == [Process.ROLE_VMM]
        assert state.graceful_stop_possible
        await guest.type("cmdline\n")
        assert await guest.said("cmdline (.*)\r") == "hello, world"

    async def test_console_stream_names_the_endpoint(self, rig: Rig) -> None:
        guest = await boot(rig)
        opened = await rig.client.open_stream(OpenStreamRequest(machine_id="m1", kind=STREAM_KIND_CONSOLE))
        endpoints = {each.id: each for each in guest.prepared.endpoints}
        assert endpoints[opened.endpoint_id].purpose == Endpoint.PURPOSE_CONSOLE
        assert endpoints[opened.endpoint_id].reader_logs

    async def test_devices_are_where_it_was_said(self, rig: Rig) -> None:
        machine = machine_of("m1")
        machine.disks.append(disk("root", "root"))
        machine.disks.append(disk("data", "data"))
        machine.disks[0].pci_address = "0000:00:1f.0"
        machine.devices.add(id="balloon0").balloon.SetInParent()
        machine.nics.append(Nic(id="net0", mac="02:00:00:00:00:11", tap=TapBackend(handles=["tap0"])))
        files = {name: os.open(raw_disk(rig.directory, f"{name}.raw"), os.O_RDWR) for name in ("root", "data")}
        guest = await boot(rig, machine, tap0=tap(), **files)
        said = {device.id: device.address for device in guest.prepared.devices}
        assert said == {
            "root": "0000:00:1f.0",
            "net0": "0000:00:05.0",
            "data": "0000:00:06.0",
            "balloon0": "0000:00:04.0",
        }
        state = await rig.client.inspect("m1")
        seen = {device.id: device.address for device in state.devices}
        assert seen == {**said, "rng0": "0000:00:03.0"}
        await guest.type("pci\n")
        await guest.said("pci end")
        for place, kind in (("1f", "1042"), ("06", "1042"), ("05", "1041"), ("04", "1045"), ("03", "1044")):
            assert f"pci 00:{place}.0 1af4:{kind}" in guest.log

    async def test_guest_power_off_is_held_until_it_is_read(self, rig: Rig) -> None:
        guest = await boot(rig)
        await guest.type("off\n")
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN)
        assert guest.process.poll() is None
        last = await rig.client.destroy("m1", generation=1)
        assert last.end_reason == END_REASON_GUEST_SHUTDOWN
        assert await guest.ended() == 0

    async def test_stop_request_is_followed(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.done(await rig.client.stop("m1", generation=1))
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN)
        assert "ANYVISOR button" in guest.log + await guest.said("ANYVISOR button")

    async def test_paused_guest_follows_a_stop_request(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.done(await rig.client.pause("m1", generation=1))
        await rig.done(await rig.client.stop("m1", generation=1))
        state = await rig.until(guest, gone)
        assert state.end_reason == END_REASON_REQUESTED_SHUTDOWN

    async def test_forced_stop_ends_a_deaf_guest(self, rig: Rig) -> None:
        guest = await boot(rig)
        await guest.type("deaf\n")
        await rig.done(await rig.client.stop("m1", generation=1, force=True))
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_FORCED)
        assert await guest.ended() == 0

    async def test_reset_starts_over_in_the_same_vmm(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.done(await rig.client.reset("m1", generation=1))
        await self._boots_again(rig, guest)

    async def test_guest_that_resets_itself_starts_over(self, rig: Rig) -> None:
        guest = await boot(rig)
        await guest.type("reset\n")
        await guest.said("ANYVISOR reset")
        await self._boots_again(rig, guest)

    async def test_reboot_request_shuts_down_and_boots_again(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.done(await rig.client.stop("m1", generation=1, reboot=True))
        await guest.said("ANYVISOR button")
        await self._boots_again(rig, guest)

    async def _boots_again(self, rig: Rig, guest: Guest) -> None:
        """The serial socket is made anew at each boot."""
        deadline = time.monotonic() + 10
        guest.log = ""
        while "ANYVISOR tiny" not in guest.log:
            assert time.monotonic() < deadline, guest.errors
            try:
                guest.open_console()
                await guest.said("ANYVISOR t=")
            except (AssertionError, OSError):
                await rig.client.inspect("m1")
        assert (await rig.client.inspect("m1")).phase == PHASE_RUNNING

    async def test_pause_and_resume(self, rig: Rig) -> None:
        guest = await boot(rig)
        for _ in range(2):
            await rig.done(await rig.client.pause("m1", generation=1))
        state = await rig.until(guest, lambda state: state.phase == PHASE_PAUSED)
        assert state.pause_reason == PAUSE_REASON_USER
        for _ in range(2):
            await rig.done(await rig.client.resume("m1", generation=1))
        await rig.until(guest, lambda state: state.phase == PHASE_RUNNING)
        guest.log = ""
        await guest.said("ANYVISOR t=")

    async def test_adopted_machine_goes_on(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.kill_driver()
        await rig.start_driver()
        with pytest.raises(MachineNotFound):
            await rig.client.inspect("m1")
        state = await rig.adopt(guest)
        assert (state.phase, state.memory_bytes) == (PHASE_RUNNING, 64 * MIB)
        assert state.graceful_stop_possible
        assert [each.id for each in state.endpoints] == [each.id for each in guest.prepared.endpoints]
        await rig.done(await rig.client.stop("m1", generation=1))
        assert (await rig.until(guest, gone)).end_reason == END_REASON_REQUESTED_SHUTDOWN

    async def test_a_machine_whose_driver_died_before_start_is_started_by_the_next(self, rig: Rig) -> None:
        guest = await rig.launch(machine_of("m1"), {"kernel": kernel()})
        await rig.kill_driver()
        await rig.start_driver()
        assert (await rig.adopt(guest)).phase == PHASE_PREPARED
        await rig.start(guest)
        guest.open_console()
        await guest.said("ANYVISOR t=")
        assert (await rig.client.inspect("m1")).phase == PHASE_RUNNING

    async def test_end_without_a_driver_is_found_and_its_cause_unknown(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.kill_driver()
        await guest.type("off\n")
        await guest.said("ANYVISOR off")
        await rig.start_driver()
        await rig.adopt(guest)
        state = await rig.until(guest, gone)
        # The guest may still have been on its way down when the driver came: then it saw that the guest did it.
        assert state.phase == PHASE_STOPPED
        assert state.end_reason in (END_REASON_UNKNOWN, END_REASON_GUEST_SHUTDOWN)

    async def test_another_machines_vmm_is_not_adopted(self, rig: Rig) -> None:
        guest = await boot(rig)
        other = machine_of("m2")
        other.identity.uuid = "11111111-2222-3333-4444-555555555555"
        second = await rig.boot(other, {"kernel": kernel()})
        await rig.kill_driver()
        await rig.start_driver()
        guest.prepared.handle = second.prepared.handle
        with pytest.raises(Refused, match="hand over the descriptors of the right one"):
            await rig.adopt(guest)

    async def test_vanished_vmm_is_not_adopted(self, rig: Rig) -> None:
        guest = await boot(rig)
        await rig.kill_driver()
        await rig.start_driver()
        tokens = await rig.tokens(guest, starting=False)
        guest.process.kill()
        await guest.ended()
        with pytest.raises(MachineNotFound, match="is gone"):
            await rig.client.adopt("m1", guest.prepared.handle, generation=1, tokens=tokens)

    async def test_killed_vmm_is_lost(self, rig: Rig) -> None:
        guest = await boot(rig)
        guest.process.kill()
        await rig.client.inspect("m1")
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_LOST, END_REASON_UNKNOWN)
        assert (await rig.client.inspect("m1")).phase == PHASE_LOST

    async def test_vmm_that_is_told_to_end_is_no_clean_end_of_the_guest(self, rig: Rig) -> None:
        guest = await boot(rig)
        guest.process.send_signal(signal.SIGTERM)
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_INTERNAL_ERROR)
        assert await guest.ended() == 0

    async def test_stop_hook_needs_no_driver(self, rig: Rig) -> None:
        guest = await boot(rig)
        script = next(each.stop_script for each in guest.prepared.endpoints if each.id == "stop")
        with guest.connect("stop") as connection:
            steps = [shim.Step(step.send, step.expect) for step in script.request]
            assert shim.play(connection, steps, time.monotonic() + 10)
        await guest.said("ANYVISOR button")
        await rig.until(guest, gone)
        assert guest.process.poll() is None
        with guest.connect("stop") as connection:
            steps = [shim.Step(step.send, step.expect) for step in script.finish]
            assert shim.play(connection, steps, time.monotonic() + 10)
        assert await guest.ended() == 0

    # Trouble at the start

    async def test_kernel_that_cannot_be_loaded(self, rig: Rig) -> None:
        guest = await rig.launch(machine_of("m1"), {"kernel": os.open("/etc/passwd", os.O_RDONLY)})
        with pytest.raises(VmmFailed, match="bzImage"):
            await rig.start(guest)
        state = await rig.until(guest, gone)
        assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_INTERNAL_ERROR)
        await rig.client.destroy("m1", generation=1)
        assert await guest.ended() == 0

    async def test_disk_is_used_by_one_machine_only(self, rig: Rig) -> None:
        path = raw_disk(rig.directory)
        first, second = machine_of("m1"), machine_of("m2")
        for machine in (first, second):
            machine.disks.append(disk("root", "root"))
        await boot(rig, first, root=os.open(path, os.O_RDWR))
        guest = await rig.launch(second, {"kernel": kernel(), "root": os.open(path, os.O_RDWR)})
        with pytest.raises(VmmFailed, match="already locked"):
            await rig.start(guest)

    async def test_format_that_was_recorded_is_not_guessed(self, rig: Rig) -> None:
        path = raw_disk(rig.directory)
        machine = machine_of("m1")
        machine.disks.append(disk("root", "root", VolumeHandle.Layer.FORMAT_QCOW2))
        guest = await rig.launch(machine, {"kernel": kernel(), "root": os.open(path, os.O_RDWR)})
        with pytest.raises(VmmFailed, match="does not match expected type"):
            await rig.start(guest)

    async def test_overlay_on_an_image_that_stays_as_it_is(self, rig: Rig) -> None:
        base = raw_disk(rig.directory, "base.raw", 1 << 30)
        top = rig.directory / "top.qcow2"
        top.write_bytes(qcow2.empty(1 << 30))
        for name in ("m1", "m2"):  # the second start finds the name of the first
            machine = machine_of(name)
            machine.disks.append(disk("root", "top", VolumeHandle.Layer.FORMAT_QCOW2))
            machine.disks[0].volume.layers.add(handle="base", format=VolumeHandle.Layer.FORMAT_RAW, read_only=True)
            files = {"top": os.open(top, os.O_RDWR), "base": os.open(base, os.O_RDONLY)}
            guest = await rig.boot(machine, {"kernel": kernel(), **files})
            await guest.said("ANYVISOR t=")
            await rig.done(await rig.client.stop(name, generation=1, force=True))
            await guest.ended()
        assert b"/proc/self/fd/" in top.read_bytes()[:4096]

    async def test_overlay_that_names_an_image_of_its_own_is_refused(self, rig: Rig) -> None:
        base, top = raw_disk(rig.directory, "base.raw", 1 << 30), rig.directory / "top.qcow2"
        image = bytearray(qcow2.empty(1 << 30))
        image[8:20] = struct.pack(">QI", 512, 11)
        image[512:523] = b"/etc/shadow"
        top.write_bytes(image)
        machine = machine_of("m1")
        machine.disks.append(disk("root", "top", VolumeHandle.Layer.FORMAT_QCOW2))
        machine.disks[0].volume.layers.add(handle="base", format=VolumeHandle.Layer.FORMAT_RAW, read_only=True)
        files = {"top": os.open(top, os.O_RDWR), "base": os.open(base, os.O_RDONLY)}
        guest = await rig.launch(machine, {"kernel": kernel(), **files})
        with pytest.raises(Refused, match="names an image of its own"):
            await rig.start(guest)
        assert top.read_bytes() == bytes(image)

    async def test_counters_of_disks_and_memory(self, rig: Rig, tmp_path: Path) -> None:
        machine = machine_of("m1")
        machine.disks.append(disk("root", "h"))
        await boot(rig, machine, h=os.open(raw_disk(tmp_path), os.O_RDWR))
        (told,) = await rig.client.get_stats(["m1"])
        assert [entry.device_id for entry in told.disks] == ["root"]
        assert told.disks[0].read_nanoseconds == 0
        assert told.memory.balloon_bytes == machine.memory.size_bytes

    # Changes

    async def test_disk_comes_and_goes(self, rig: Rig) -> None:
        guest = await boot(rig)
        raw_disk(guest.directory, "volume.raw")
        await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "volume.raw"}))
        state = await rig.until(guest, lambda state: "extra" in [device.id for device in state.devices])
        assert [device.address for device in state.devices if device.id == "extra"] == ["0000:00:05.0"]
        await guest.said("plugged 00000020")
        with pytest.raises(Refused, match="plugged in already"):
            await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "volume.raw"}))
        await self._apply(rig, ApplyRequest(detach_disk="extra"))
        await guest.said("ejected 00000020")
        state = await rig.client.inspect("m1")
        assert "extra" not in [device.id for device in state.devices]
        with pytest.raises(Refused, match="has no device"):
            await self._apply(rig, ApplyRequest(detach_disk="extra"))
        await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "volume.raw"}))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
    async def test_the_agent_places_a_disk_that_comes_and_takes_it_away(self, rig: Rig, tmp_path: Path) -> None:
        guest = await boot(rig)
        volume = raw_disk(tmp_path, "elsewhere.raw")
        directory = os.open(guest.directory, os.O_RDONLY | os.O_DIRECTORY)
        launcher = Launcher(guest.process.pid, os.pidfd_open(guest.process.pid), directory, 0, 0)
        descriptor = os.open(volume, os.O_RDWR)
        try:
            placing.place(launcher, "extra", descriptor)
            await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "extra"}))
            await guest.said("plugged 00000020")
            await self._apply(rig, ApplyRequest(detach_disk="extra"))
        finally:
            placing.remove(launcher, "extra")
            os.close(descriptor)
            launcher.close()
        assert not (guest.directory / "extra").exists()

    async def test_disk_must_be_placed_beneath_the_launcher(self, rig: Rig) -> None:
        await boot(rig)
        with pytest.raises(InvalidRequest, match="must be placed"):
            await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h")))
        with pytest.raises(InvalidRequest, match="outside"):
            await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "/etc/shadow"}))
        with pytest.raises(Refused, match="No such file"):
            await self._apply(rig, ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "nowhere"}))

    async def test_disk_grows_and_never_shrinks(self, rig: Rig) -> None:
        path = raw_disk(rig.directory)
        machine = machine_of("m1")
        machine.disks.append(disk("root", "root"))
        await boot(rig, machine, root=os.open(path, os.O_RDWR))

        def resize(size: int, current: int) -> ApplyRequest:
            return ApplyRequest(resize_disk=ResizeDisk(disk_id="root", size_bytes=size, current_bytes=current))

        await self._apply(rig, resize(8 * MIB, 4 * MIB))
        assert path.stat().st_size == 8 * MIB
        with pytest.raises(Refused, match="cannot be shrunk"):
            await self._apply(rig, resize(4 * MIB, 8 * MIB))
        with pytest.raises(InvalidRequest, match="current_bytes is missing"):
            await self._apply(rig, resize(16 * MIB, 0))
        assert path.stat().st_size == 8 * MIB

    async def test_nic_comes_and_goes(self, rig: Rig) -> None:
        guest = await boot(rig)
        opened = tap()
        try:
            token = await rig.token("t", opened)
        finally:
            os.close(opened)
        nic = Nic(id="net1", mac="02:00:00:00:00:12", tap=TapBackend(handles=["t"]))
        await self._apply(rig, ApplyRequest(attach_nic=nic, tokens=[token]))
        await guest.said("plugged 00000020")
        await self._apply(rig, ApplyRequest(detach_nic="net1"))
        await guest.said("ejected 00000020")
        kinds = {device.id: device.state for device in (await rig.client.inspect("m1")).devices}
        assert kinds == {"rng0": DeviceState.STATE_PLUGGED}

    async def test_cpus_come_and_go(self, rig: Rig) -> None:
        machine = machine_of("m1")
        machine.cpu.max_sockets = 3
        guest = await boot(rig, machine)
        await self._apply(rig, ApplyRequest(set_cpu=SetCpu(sockets=3)))
        await guest.said("cpu plugged 02")
        with pytest.raises(Refused, match="1 to 3 CPUs, not 4"):
            await self._apply(rig, ApplyRequest(set_cpu=SetCpu(sockets=4)))
        with pytest.raises(Refused, match="1 to 3 CPUs, not 0"):
            await self._apply(rig, ApplyRequest(set_cpu=SetCpu()))
        await rig.done(await rig.client.pause("m1", generation=1))  # so that the guest cannot let go yet
        await self._apply(rig, ApplyRequest(set_cpu=SetCpu(sockets=2)))
        with pytest.raises(Refused) as refused:
            await self._apply(rig, ApplyRequest(set_cpu=SetCpu(sockets=1)))
        assert (refused.value.code, refused.value.retry) == ("GUEST_BUSY", "backoff")
        await rig.done(await rig.client.resume("m1", generation=1))
        await guest.said("cpu ejected 02")

    async def test_memory_grows(self, rig: Rig) -> None:
        machine = machine_of("m1")
        machine.memory.max_bytes = (64 + 256) * MIB
        guest = await boot(rig, machine)
        await self._apply(rig, ApplyRequest(set_memory=SetMemory(size_bytes=(64 + 128) * MIB)))
        await guest.said("memory plugged")
        await rig.until(guest, lambda state: state.memory_bytes == (64 + 128) * MIB)
        for size in (64, 64 + 128 + 1, 64 + 384):
            with pytest.raises(Refused, match="steps of 128 MiB"):
                await self._apply(rig, ApplyRequest(set_memory=SetMemory(size_bytes=size * MIB)))
        await self._apply(rig, ApplyRequest(set_memory=SetMemory(size_bytes=(64 + 256) * MIB)))

    async def _apply(self, rig: Rig, request: ApplyRequest) -> None:
        await rig.done(await rig.client.apply("m1", request, generation=1))
