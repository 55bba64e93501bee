"""UEFI with a real guest: what it sees of its firmware, and what of it is kept."""

import asyncio
import contextlib
import os
import re
import select
from pathlib import Path

import pytest

from anyvisor.drivers.qemu import firmware
from anyvisor.hri.v1.machine_spec_pb2 import Firmware, Machine, Tpm
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig

NAME = "Anyvisor-5d7d1a52-2b8f-4b52-8a5e-3b8f4b3f1c11"
MOUNT = "mount -t efivarfs none /sys/firmware/efi/efivars"
VARIABLE = f"/sys/firmware/efi/efivars/{NAME}"
TPM = "/sys/class/tpm/tpm0"
PCR = re.compile(r"[0-9A-F]{64}")
EMPTY_PCR = re.compile("0{64}")
# TCG's "TPM 2.0 Library, Part 3": NV_DefineSpace of 8 bytes at index 0x01500000 with the owner's empty password, and
# NV_ReadPublic of the same index.
DEFINE = "80020000002d0000012a4000000100000009400000090000000000" + "0000" + "000e01500000000b0204000400000008"
READ_PUBLIC = "80010000000e0000016901500000"
SUCCESS = "00 00 00 00"


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


async def boot(rig: Rig, name: str, directory: Path) -> Guest:
    """Boot with what is kept in a directory."""
    made, files = uefi_machine(name)
    made.devices.add(id="tpm.0", tpm=Tpm(handle="tpm-state", model="crb"))
    for handle in ("variables", "tpm-state"):
        files[handle] = os.open(directory / handle, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    guest = await rig.boot(made, files)
    for descriptor in files.values():
        os.close(descriptor)
    await guest.logged("ANYVISOR ready")
    return guest


async def ask(guest: Guest, command: str) -> str:
    """What the guest's shell answers."""
    before = len(guest.heard)
    await guest.type(f"{command}; echo answ''ered\n")
    await guest.hears("answered", before)
    return guest.heard[before:].replace("\r", "")


async def ask_tpm(guest: Guest, command: str) -> str:
    """The code of the TPM's answer."""
    octets = "".join(f"\\x{command[at : at + 2]}" for at in range(0, len(command), 2))
    answer = await ask(
        guest, f"exec 3<>/dev/tpm0; printf '{octets}' >&3; dd bs=4096 count=1 <&3 2>&- | od -An -tx1; exec 3>&-"
    )
    found = re.search(r"80 0[12] .. .. .. .. (.. .. .. ..)", answer)
    assert found, answer
    return found[1]


def emulators(guest: Guest) -> list[int]:
    """Processes of the guest's session that are not the VMM."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, ProcessLookupError):
            if os.getsid(int(entry.name)) == guest.process.pid != int(entry.name):
                found.append(int(entry.name))
    return found


def wait_gone(pid: int) -> None:
    """Until the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        select.select([pidfd], [], [])
        os.close(pidfd)


async def test_secure_boot_with_kept_variables_and_a_kept_tpm(rig: Rig, rundir: Path) -> None:
    guest = await boot(rig, "first", rundir)
    assert "Secure boot enabled" in await ask(guest, "dmesg | grep secureboot")
    await ask(guest, f"{MOUNT} && printf '\\7\\0\\0\\0remember-me' >{VARIABLE}")
    assert "2" in await ask(guest, f"cat {TPM}/tpm_version_major")
    measured = await ask(guest, f"cat {TPM}/pcr-sha256/7")
    assert PCR.search(measured)
    assert not EMPTY_PCR.search(measured), "the firmware measures what it starts"
    assert await ask_tpm(guest, READ_PUBLIC) != SUCCESS
    assert await ask_tpm(guest, DEFINE) == SUCCESS
    [emulator] = emulators(guest)
    await rig.done(await rig.client.stop("first", generation=2, force=True))
    await guest.ended()
    await asyncio.wait_for(asyncio.to_thread(wait_gone, emulator), 10)
    again = await boot(rig, "second", rundir)
    assert "remember-me" in await ask(again, f"{MOUNT}; cat {VARIABLE}")
    assert await ask_tpm(again, READ_PUBLIC) == SUCCESS
