"""UEFI with a real guest: what it sees of its firmware, and what of it is kept."""

import os
from pathlib import Path

import pytest

from anyvisor.drivers.qemu import firmware
from anyvisor.hri.v1.machine_spec_pb2 import Firmware, Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig

NAME = "Anyvisor-5d7d1a52-2b8f-4b52-8a5e-3b8f4b3f1c11"
MOUNT = "mount -t efivarfs none /sys/firmware/efi/efivars"
VARIABLE = f"/sys/firmware/efi/efivars/{NAME}"


def uefi_machine(name: str) -> tuple[Machine, dict[str, int]]:
    """The Linux guest, its kernel given from outside and started by firmware with secure boot."""
    if firmware.find()[1] is None:
        pytest.skip(f"no UEFI firmware for secure boot here: {firmware.INSTALL}")
    guest = guests.linux_guest()
    made = machine_of(name, memory_mib=256)
    made.accelerator = ACCELERATOR_EMULATION
    made.boot.kernel.kernel_handle = "kernel"
    made.boot.kernel.initrd_handle = "initrd"
    made.boot.kernel.command_line = guest.command_line
    made.boot.kernel.firmware.kind = Firmware.KIND_UEFI
    made.boot.kernel.firmware.secure_boot = True
    made.boot.kernel.firmware.variables_handle = "variables"
    files = {"kernel": guest.kernel, "initrd": guest.initrd}
    return made, {handle: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for handle, path in files.items()}


async def boot(rig: Rig, name: str, store: Path) -> Guest:
    made, files = uefi_machine(name)
    files["variables"] = os.open(store, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    guest = await rig.boot(made, files)
    for descriptor in files.values():
        os.close(descriptor)
    await guest.logged("ANYVISOR ready")
    return guest


async def test_secure_boot_and_variables_that_are_kept(rig: Rig, rundir: Path) -> None:
    store = rundir / "variables"
    guest = await boot(rig, "first", store)
    await guest.type(f"dmesg | grep secureboot; {MOUNT} && printf '\\7\\0\\0\\0remember-me' >{VARIABLE}; echo do''ne\n")
    await guest.hears("done")
    assert "Secure boot enabled" in guest.heard
    await rig.done(await rig.client.stop("first", generation=2, force=True))
    await guest.ended()
    again = await boot(rig, "second", store)
    await again.type(f"{MOUNT}; cat {VARIABLE}; echo do''ne\n")
    await again.hears("done")
    assert "remember-me" in again.heard.replace("\r", "")
