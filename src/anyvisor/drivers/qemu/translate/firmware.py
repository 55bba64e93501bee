"""UEFI firmware in flash: its code, read-only and shared by all machines, and the machine's own variable store."""

from typing import Final

from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Firmware as HostFirmware
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_pb2 import Seed
from anyvisor.hri.v1.machine_spec_pb2 import Firmware, Machine

CODE: Final = "firmware"
STORE: Final = "variables"
"""Names of block nodes; the second is also the handle of a store that is not kept."""
INSTALL: Final = "apt-get install ovmf"


def of_machine(machine: Machine) -> Firmware | None:
    """The firmware that the machine asks for, by whichever way it boots."""
    match machine.boot.WhichOneof("method"):
        case "firmware":
            return machine.boot.firmware
        case "kernel" if machine.boot.kernel.HasField("firmware"):
            return machine.boot.kernel.firmware
        case _:
            return None


def is_uefi(machine: Machine) -> bool:
    """Whether the machine starts by UEFI."""
    wanted = of_machine(machine)
    return wanted is not None and wanted.kind == Firmware.KIND_UEFI


def is_secure(machine: Machine) -> bool:
    """Whether it starts only what is signed."""
    wanted = of_machine(machine)
    return wanted is not None and wanted.kind == Firmware.KIND_UEFI and wanted.secure_boot


def board_options(machine: Machine) -> list[str]:
    """What the board is told: both flash chips. The firmware guards its variables in SMM, where it is secure."""
    return [f"pflash0={CODE}", f"pflash1={STORE}"] if is_uefi(machine) else []


def add_uefi(draft: Draft, machine: Machine, host: Host) -> None:
    """The flash chips of a machine that starts by UEFI; nothing for any other."""
    wanted = of_machine(machine)
    if wanted is None or not is_uefi(machine):
        return
    at = f"boot.{machine.boot.WhichOneof('method')}{'' if machine.boot.HasField('firmware') else '.firmware'}"
    if wanted.serial_output:
        draft.refuse("CAP_NO", f"{at}.serial_output", "UEFI always writes to the first serial console; leave it out")
    found = host.uefi_secure if wanted.secure_boot else host.uefi
    if found is None:
        what = "UEFI firmware for secure boot" if wanted.secure_boot else "UEFI firmware"
        draft.refuse("FIRMWARE_MISSING", f"{at}.kind", f"{what} is not installed on this node: {INSTALL}", want="uefi")
        return
    _add_flash(draft, wanted, found)
    # Debian's firmware cannot resume from S3 with its variables guarded (QEMU, docs/specs and OVMF's README).
    draft.option("global", "ICH9-LPC.disable_s3=1")
    if wanted.secure_boot:
        draft.option("global", "driver=cfi.pflash01,property=secure,value=on")


def _add_flash(draft: Draft, wanted: Firmware, found: HostFirmware) -> None:
    handle = wanted.variables_handle or STORE
    draft.seeds.append(Seed(handle=handle, content=found.variables))
    for node, filename, read_only in ((CODE, found.code, True), (STORE, draft.fdset(handle), False)):
        common: dict[str, Json] = {"read-only": read_only, "auto-read-only": False}
        draft.json("blockdev", {"node-name": f"{node}-f", "driver": "file", "filename": filename, **common})
        draft.json("blockdev", {"node-name": node, "driver": "raw", "file": f"{node}-f", "read-only": read_only})
