"""Debian's guest agent in the Linux guest, asked over the channel that the driver announces."""

import os
from pathlib import Path

from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.watch import FROZEN, Guest
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, VolumeHandle
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Rig


def linux_machine(rundir: Path) -> tuple[Machine, dict[str, int]]:
    linux = guests.linux_guest_with_agent()
    machine = machine_of("m1", memory_mib=256)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.initrd_handle = "initrd"
    machine.boot.kernel.command_line = linux.command_line
    machine.nics.add(id="default", mac="02:00:00:00:00:01").user.network = "10.0.2.0/24"
    machine.devices.add(id="agent").guest_agent_port.SetInParent()
    data = rundir / "data.raw"
    data.write_bytes(b"\0" * (8 << 20))
    disk = machine.disks.add(id="data", kind=Disk.KIND_DISK, serial="S0")
    disk.volume.layers.add(handle="data", format=VolumeHandle.Layer.FORMAT_RAW)
    files = {
        "data": os.open(data, os.O_RDWR | os.O_CLOEXEC),
        "kernel": os.open(linux.kernel, os.O_RDONLY | os.O_CLOEXEC),
        "initrd": os.open(linux.initrd, os.O_RDONLY | os.O_CLOEXEC),
    }
    return machine, files


async def test_a_real_agent_tells_freezes_and_reboots(rig: Rig, rundir: Path) -> None:
    machine, files = linux_machine(rundir)
    vm = await rig.boot(machine, files)
    await rig.until(vm, lambda state: state.guest_agent.connected)

    async def connect():
        return vm.connect("guest-agent")

    client = GuestAgentClient(connect)
    guest = Guest(client, lambda: None)
    told = await guest.information()
    assert told["os"]["prettyName"] == "Anyvisor test guest 1"
    assert told["os"]["kernelRelease"]
    assert {"name": "guest-ping", "enabled": True, "successResponse": True} in told["supportedCommands"]
    assert (await guest.users())["items"] == []
    await vm.logged(r"ANYVISOR address=")
    await vm.type("mke2fs /dev/vda >/dev/null; mount -t ext4 /dev/vda /tmp && echo mount$((1 + 1))\n")
    await vm.logged("mount2")
    [mounted] = (await guest.file_systems())["items"]
    assert (mounted["mountPoint"], mounted["fileSystemType"]) == ("/tmp", "ext4")
    assert mounted["totalBytes"] > 1 << 20
    interfaces = await client.ask("guest-network-get-interfaces")
    assert any(each.get("hardware-address") == "02:00:00:00:00:01" for each in interfaces)

    await guest.freeze(600)
    assert guest.facts is not None
    assert guest.facts.freeze_status == FROZEN
    await guest.thaw()
    assert guest.facts.freeze_status == "thawed"
    assert guest.facts.interfaces["02:00:00:00:00:01"]["ipAddresses"] == ["10.0.2.2"]

    await rig.kill_driver()
    await rig.start_driver()
    state = await rig.adopt(vm)
    assert state.guest_agent.connected, "its port was opened before this driver came"

    await guest.reboot()
    guest.close()
    await vm.logged(r"(?s)ANYVISOR ready.*ANYVISOR ready")
