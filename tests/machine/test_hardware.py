"""Many devices in one real guest: what it finds, and what its watchdog does."""

import os
import re
import time
from pathlib import Path

from anyvisor.hri.v1.machine_spec_pb2 import (
    Balloon,
    CpuFeature,
    Disk,
    Input,
    Machine,
    Nic,
    Sound,
    UsbRedirection,
    VolumeHandle,
    Watchdog,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, END_REASON_WATCHDOG, PHASE_STOPPED
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig

OFFSET = 5 * 3600 + 1800
PCI = {
    "0x8086:0x25ab": "i6300esb",
    "0x8086:0x293e": "ich9 sound",
    "0x1b36:0x000d": "xhci",
    "0x1af4:0x1041": "virtio-net",
    "0x8086:0x100e": "e1000",
    "0x8086:0x10d3": "e1000e",
    "0x10ec:0x8029": "ne2k_pci",
    "0x1022:0x2000": "pcnet",
    "0x10ec:0x8139": "rtl8139",
    "0x1af4:0x1045": "balloon",
    "0x1af4:0x1048": "virtio-scsi",
}
WATCHDOG = "/sys/bus/pci/devices/0000:00:0c.0"
# Intel 6300ESB datasheet, 15: each write of a timer is unlocked by 0x80 and 0x86; both timers are to run 16 ticks, then
# the watchdog is enabled in configuration space.
FIRE = f"""echo 1 >{WATCHDOG}/enable; set -- $(head -n 1 {WATCHDOG}/resource); b=$1;
for r in 0 4; do devmem $((b+12)) 16 0x80; devmem $((b+12)) 16 0x86; devmem $((b+r)) 32 0x10; done;
devmem $((b+12)) 16 0x80; devmem $((b+12)) 16 0x86; devmem $((b+12)) 16 0x100;
printf '\\2' | dd of={WATCHDOG}/config bs=1 seek=104 conv=notrunc 2>&-""".replace("\n", " ")


def file(directory: Path, name: str) -> int:
    path = directory / name
    path.write_bytes(name.encode().ljust(1 << 20, b"\0"))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def equipped() -> Machine:
    """A Linux guest with one of nearly everything."""
    made = machine_of("all", memory_mib=256)
    made.accelerator = ACCELERATOR_EMULATION
    made.boot.kernel.kernel_handle, made.boot.kernel.initrd_handle = "kernel", "initrd"
    made.boot.kernel.command_line = guests.linux_guest().command_line + " iomem=relaxed"
    models = (Nic.MODEL_VIRTIO, Nic.MODEL_E1000, Nic.MODEL_E1000E, Nic.MODEL_NE2K_PCI, Nic.MODEL_PCNET)
    for index, model in enumerate((*models, Nic.MODEL_RTL8139)):
        made.nics.add(id=f"n{index}", model=model, mac=f"02:00:00:00:00:0{index}").user.network = "10.0.2.0/24"
    for index, bus in enumerate((Disk.BUS_VIRTIO, Disk.BUS_VIRTIO, Disk.BUS_SCSI, Disk.BUS_SATA, Disk.BUS_USB)):
        disk = made.disks.add(id=f"d{index}", kind=Disk.KIND_DISK, bus=bus, serial=f"S{index}")
        disk.volume.layers.add(handle=f"d{index}", format=VolumeHandle.Layer.FORMAT_RAW)
    made.disks[0].io_thread, made.disks[0].queues = 1, 2
    made.disks[1].dedicated_io_thread = True
    made.devices.add(id="watchdog", watchdog=Watchdog(model="i6300esb", action="poweroff"))
    made.devices.add(id="sound", sound=Sound(model="ich9"))
    made.devices.add(id="balloon", balloon=Balloon(statistics_seconds=1))
    made.devices.add(id="tablet", input=Input(type="tablet", bus="usb"))
    made.devices.add(id="redirection", usb_redirection=UsbRedirection(channels=4))
    made.identity.chassis_manufacturer, made.identity.chassis_serial = "Acme, Inc.", "C-1"
    made.identity.serial, made.identity.uuid = "M-1", "5d307ca9-b3ef-428c-8861-06e72d69f223"
    made.clock.utc_offset_seconds = OFFSET
    made.clock.timers.add(name="hpet", present=False)
    made.clock.timers.add(name="rtc", present=True, tick_policy="catchup")
    made.cpu.cores = 2
    made.cpu.model = "Nehalem"
    made.cpu.features.add(name="aes", policy=CpuFeature.POLICY_REQUIRE)
    made.cpu.features.add(name="sse4_2", policy=CpuFeature.POLICY_DISABLE)
    return made


async def ask(guest: Guest, command: str) -> str:
    """What the guest's shell answers."""
    before = len(guest.heard)
    await guest.type(f"{command}; echo answ''ered\n")
    await guest.hears("answered", before)
    return guest.heard[before:].replace("\r", "")


async def test_a_guest_finds_what_it_was_given(rig: Rig, rundir: Path) -> None:
    linux = guests.linux_guest()
    files = {f"d{index}": file(rundir, f"d{index}") for index in range(5)}
    files |= {"kernel": os.open(linux.kernel, os.O_RDONLY), "initrd": os.open(linux.initrd, os.O_RDONLY)}
    guest = await rig.boot(equipped(), files)
    for descriptor in files.values():
        os.close(descriptor)
    await guest.logged("ANYVISOR ready")
    listed = await ask(guest, "cd /sys/bus/pci/devices; for d in *; do echo $(cat $d/vendor):$(cat $d/device); done")
    assert set(PCI) <= set(re.findall(r"0x\w+:0x\w+", listed)), listed
    dmi = await ask(guest, "cd /sys/class/dmi/id; cat chassis_vendor chassis_serial product_serial product_uuid")
    assert all(text in dmi for text in ("Acme, Inc.", "C-1", "M-1", "5d307ca9-b3ef-428c-8861-06e72d69f223"))
    disks = await ask(
        guest, "cat /sys/block/vd*/serial; head -c 2 /dev/sda; cat /sys/block/sda/device/vendor; ls /sys/block/vda/mq"
    )
    assert re.search(r"S0\s*S1\s*d2QEMU", disks), disks
    assert re.search(r"^0 +1$", disks, re.MULTILINE), disks
    clock = await ask(guest, "cat /sys/class/rtc/rtc0/since_epoch; ls /sys/class/rtc; dmesg | grep -ci hpet")
    [seconds] = re.findall(r"^(\d{9,})$", clock, re.MULTILINE)
    assert abs(int(seconds) - OFFSET - time.time()) < 60
    flags = await ask(guest, "grep -m1 flags /proc/cpuinfo; nproc; grep -m1 'model name' /proc/cpuinfo")
    assert " aes" in flags
    assert "sse4_2" not in flags
    assert re.search(r"^2$", flags, re.MULTILINE)
    await guest.type(FIRE + "\n")
    state = await rig.until(guest, lambda state: state.phase == PHASE_STOPPED)
    assert state.end_reason == END_REASON_WATCHDOG
    await rig.client.destroy("all", generation=2)
    await guest.ended()
    assert "rror" not in guest.errors, guest.errors
