"""The libvirt driver with real guests, under a daemon of the test's own."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from anyvisor.hri import conformance, manifests
from anyvisor.hri.conformance import Options, Outcome
from anyvisor.hri.errors import HriError, Refused
from anyvisor.hri.v1.machine_pb2 import LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, VolumeHandle
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_EMULATION,
    END_REASON_FORCED,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_VMM_KILLED,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STOPPED,
)
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry
from tests import guests
from tests.driver_rig import machine_of
from tests.libvirt_daemon import missing
from tests.machine.libvirt_rig import LibvirtRig, handles, heard, running
from tests.machine.rig import Guest


@pytest.fixture
async def rig(rundir: Path) -> AsyncGenerator[LibvirtRig]:
    """A daemon and a driver."""
    if why := missing():
        pytest.skip(why)
    async with running(rundir) as started:
        yield started


def kernel_machine(name: str = "m1") -> tuple[Machine, dict[str, int]]:
    """The tiny guest by direct kernel boot."""
    machine = machine_of(name)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.command_line = "hello, <world> & all"
    return machine, {"kernel": os.open(guests.tiny_kernel(), os.O_RDONLY | os.O_CLOEXEC)}


async def boot_tiny(rig: LibvirtRig, name: str = "m1") -> Guest:
    """The tiny guest, seen to run on its console."""
    machine, files = kernel_machine(name)
    guest = await rig.boot(machine, files)
    await guest.type("")
    await heard(guest, r"ANYVISOR t=\d+")
    return guest


async def test_a_guest_runs_talks_and_obeys(rig: LibvirtRig):
    guest = await boot_tiny(rig)
    assert guest.prepared.launch.mode == LaunchPlan.MODE_EXTERNAL
    assert handles(guest.prepared) == {"kernel"}
    (told,) = await rig.client.get_stats(["m1"])
    assert [cpu.index for cpu in told.vcpus] == [0]
    assert told.memory.balloon_bytes == guest.machine.memory.size_bytes
    state = await rig.until(guest, lambda s: s.phase == PHASE_RUNNING)
    assert "QEMU" in state.vmm_version
    await guest.type("cmdline\n")
    await guest.hears("hello, <world> & all")

    await rig.done(await rig.client.pause("m1", generation=1))
    await rig.until(guest, lambda s: s.phase == PHASE_PAUSED)
    assert "paused" in rig.daemon.virsh("domstate", "anyvisor-m1")
    await rig.done(await rig.client.resume("m1", generation=1))
    await rig.until(guest, lambda s: s.phase == PHASE_RUNNING)

    await rig.done(await rig.client.stop("m1", generation=1))
    state = await rig.until(guest, lambda s: s.phase == PHASE_STOPPED)
    assert state.end_reason == END_REASON_REQUESTED_SHUTDOWN
    assert "anyvisor-m1" in rig.daemon.domains(), "how it ended can still be asked"
    await rig.client.destroy("m1", generation=1)
    assert "anyvisor-m1" not in rig.daemon.domains()


async def test_a_driver_that_was_killed_takes_over_what_runs(rig: LibvirtRig):
    guest = await boot_tiny(rig)
    counter = int(await heard(guest, r"ANYVISOR t=(\d+)"))
    await rig.kill_driver()
    guest.hang_up()
    await rig.start_driver()
    state = await rig.adopt(guest)
    assert state.phase == PHASE_RUNNING
    guest.heard = ""
    await guest.type("")
    assert int(await heard(guest, r"ANYVISOR t=(\d+)")) > counter, "the same guest goes on"
    await rig.done(await rig.client.stop("m1", generation=1, force=True))
    state = await rig.until(guest, lambda s: s.phase == PHASE_STOPPED)
    assert state.end_reason == END_REASON_FORCED


async def test_a_daemon_that_restarts_changes_nothing(rig: LibvirtRig):
    guest = await boot_tiny(rig)
    rig.daemon.stop()
    with pytest.raises(HriError, match="libvirt does not answer"):
        await rig.done(await rig.client.pause("m1", generation=1))
    rig.daemon.start()
    guest.heard = ""
    await heard(guest, r"ANYVISOR t=\d+")  # on the same connection as before
    await rig.done(await rig.client.stop("m1", generation=1))
    await rig.until(guest, lambda s: s.phase == PHASE_STOPPED)


async def test_other_peoples_domains_are_left_alone(rig: LibvirtRig, tmp_path: Path):
    foreign = tmp_path / "foreign.xml"
    foreign.write_text(
        "<domain type='qemu'><name>anyvisor-m1</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
    )
    rig.daemon.virsh("create", str(foreign))
    machine, files = kernel_machine()
    with pytest.raises(HriError, match="anyvisor-m1"):
        await rig.boot(machine, files)
    await rig.client.destroy("m1", generation=1)
    assert "anyvisor-m1" in rig.daemon.virsh("list", "--name"), "it runs on"


async def test_another_client_ends_the_domain(rig: LibvirtRig):
    guest = await boot_tiny(rig)
    rig.daemon.virsh("destroy", "anyvisor-m1")
    state = await rig.until(guest, lambda s: s.phase == PHASE_STOPPED)
    assert state.end_reason == END_REASON_VMM_KILLED
    assert "another client" in state.message


async def test_disks_reach_the_guest_as_descriptors(rig: LibvirtRig, tmp_path: Path):
    disk = tmp_path / "disk.raw"
    shutil.copyfile(guests.boot_disk(), disk)
    machine = machine_of("m2")
    machine.disks.add(
        id="root",
        kind=Disk.KIND_DISK,
        bus=Disk.BUS_VIRTIO,
        volume=VolumeHandle(
            layers=[VolumeHandle.Layer(handle="root", format=VolumeHandle.Layer.FORMAT_RAW)],
            size_bytes=disk.stat().st_size,
        ),
    )
    machine.displays.add(id="d0")
    guest = await rig.boot(machine, {"root": os.open(disk, os.O_RDWR | os.O_CLOEXEC)})
    await guest.type("")
    await heard(guest, r"ANYVISOR disk first boot")
    assert [each.address for each in guest.prepared.devices] == ["0000:02:00.0"]
    for _ in range(2):  # viewers come and go
        with guest.connect("display/d0") as viewer:
            async with asyncio.timeout(30):
                assert (await asyncio.get_running_loop().sock_recv(viewer, 12)).startswith(b"RFB 003.008")
    await rig.client.destroy("m2", generation=1)
    assert not rig.daemon.domains()


async def test_what_it_cannot_do_is_refused(rig: LibvirtRig):
    machine, files = kernel_machine()
    machine.nics.add(id="n0", mac="52:54:00:00:00:01").tap.handles.append("tap")
    with pytest.raises(Refused, match="tap"):
        await rig.client.prepare(machine, [], generation=1)
    for descriptor in files.values():
        os.close(descriptor)


async def test_it_keeps_the_contract(rig: LibvirtRig):
    raw = manifests.packaged("anyvisor.drivers.libvirt")
    options = Options(
        hri_socket=str(rig.directory / "hri.sock"),
        fd_socket=str(rig.directory / "fd.sock"),
        manifest=parse(raw.data, registry()),
        manifest_digest=raw.digest,
    )
    report = await conformance.run(options)
    assert [(result.id, result.message) for result in report.failed] == []
    assert sum(result.outcome == Outcome.PASSED for result in report.results) >= 30
