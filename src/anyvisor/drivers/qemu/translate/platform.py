"""The board: machine type, accelerator, CPU, memory, clock, identity, firmware and kernel."""

import re
import uuid
from collections.abc import Mapping
from typing import Final

from anyvisor.drivers.qemu.translate import firmware, memory
from anyvisor.drivers.qemu.translate.clock import add_clock
from anyvisor.drivers.qemu.translate.cpu import add_cpu
from anyvisor.drivers.qemu.translate.draft import Draft, escaped
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.kit import board
from anyvisor.hri.v1.machine_spec_pb2 import Lifecycle, Machine, Nic, SystemIdentity
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

QBOOT: Final = "qboot.rom"
_NAMESPACE: Final = uuid.UUID("6c0c8f0e-2d4b-5d53-9d5a-6a1d4b1b7f6e")
_PROFILE: Final = re.compile(r"(pc-)?q35(-[A-Za-z0-9.-]{1,40})?")


def choose_accelerator(draft: Draft, machine: Machine, host: Host) -> Accelerator:
    """The accelerator asked for, or the best."""
    why = "QEMU has no such accelerator on x86"
    return board.choose_accelerator(draft, machine.accelerator, host.accelerators, host.reasons, why)


def choose_profile(draft: Draft, machine: Machine, host: Host) -> str:
    """The machine type in full."""
    served = {name for name in host.profiles if _PROFILE.fullmatch(name)}
    return board.choose_profile(draft, machine.profile, "q35", host.default_profile, served)


def add_board(draft: Draft, machine: Machine, host: Host, profile: str, accelerator: Accelerator) -> None:
    """Machine type, accelerator, CPUs, memory and clock."""
    options = [profile, "usb=off", "vmport=off", "dump-guest-core=off"]
    options.append(f"smm={'on' if machine.features.smm or firmware.is_secure(machine) else 'off'}")
    options += firmware.board_options(machine)
    wanted = firmware.of_machine(machine)
    options.append(f"graphics={'off' if wanted is not None and wanted.serial_output else 'on'}")
    if machine.features.HasField("acpi") and not machine.features.acpi:
        options.append("acpi=off")
    options += add_clock(draft, machine, accelerator)
    options += memory.add_backend(draft, machine, host)
    draft.option("machine", ",".join(options))
    draft.option("accel", _accelerator(machine, accelerator))
    add_cpu(draft, machine, host, accelerator)
    memory.add_memory(draft, machine)


def _accelerator(machine: Machine, accelerator: Accelerator) -> str:
    if accelerator == ACCELERATOR_KVM:
        return "kvm"
    return f"tcg,thread=multi,tb-size={machine.parameters.get('emulationCacheMiB', '64')}"


def add_identity(draft: Draft, machine: Machine) -> None:
    """What the guest's firmware tables say about the machine. The UUID is never random: it must survive a restart."""
    identity = machine.identity
    try:
        system = str(uuid.UUID(identity.uuid)) if identity.uuid else str(uuid.uuid5(_NAMESPACE, machine.id))
    except ValueError:
        draft.refuse("VALUE_INVALID", "identity.uuid", f"{identity.uuid[:60]!r} is no UUID", have=identity.uuid[:60])
        return
    draft.option("uuid", system)
    fields = _system_fields(identity)
    if fields:
        draft.option("smbios", "type=1," + ",".join(f"{k}={escaped(v)}" for k, v in (*fields, ("uuid", system))))
    chassis = _chassis_fields(identity)
    if chassis:
        draft.option("smbios", "type=3," + ",".join(f"{key}={escaped(value)}" for key, value in chassis))
    if identity.oem_strings:
        draft.option("smbios", "type=11," + ",".join(f"value={escaped(text)}" for text in identity.oem_strings))


def _chassis_fields(identity: SystemIdentity) -> list[tuple[str, str]]:
    pairs = (
        ("manufacturer", identity.chassis_manufacturer),
        ("version", identity.chassis_version),
        ("serial", identity.chassis_serial),
        ("asset", identity.chassis_asset),
        ("sku", identity.chassis_sku),
    )
    return [(key, value) for key, value in pairs if value]


def _system_fields(identity: SystemIdentity) -> list[tuple[str, str]]:
    pairs = (
        ("manufacturer", identity.manufacturer),
        ("product", identity.product),
        ("version", identity.version),
        ("serial", identity.serial),
        ("sku", identity.sku),
        ("family", identity.family),
    )
    return [(key, value) for key, value in pairs if value]


def boots_kernel(machine: Machine) -> bool:
    """Whether the kernel is given from outside."""
    return machine.boot.WhichOneof("method") == "kernel"


def uses_qboot(machine: Machine, buses: Mapping[str, int]) -> bool:
    """Whether qboot, which starts a given kernel in half of SeaBIOS's time, is good enough for this machine.

    It numbers the buses behind several root ports the other way round, which would rename the guest's disks and NICs,
    and it hangs on an e1000 (seen with QEMU 7.2). It starts no graphics card, whose screen would stay dark until a
    driver of the guest's own does, and keeps no place for memory that comes later. `buses` is the bus of each device
    behind a root port.
    """
    plain = all(nic.model in (Nic.MODEL_UNSPECIFIED, Nic.MODEL_VIRTIO) for nic in machine.nics)
    free = firmware.of_machine(machine) is None and machine.parameters.get("kernelFirmware", "auto") == "auto"
    wanted = free and not machine.displays and not memory.grows(machine)
    return wanted and boots_kernel(machine) and plain and max(buses.values(), default=0) <= 1


def add_boot(draft: Draft, machine: Machine, *, qboot: bool) -> None:
    """Firmware, and the kernel where it is given from outside."""
    if boots_kernel(machine):
        kernel = machine.boot.kernel
        if qboot:
            draft.option("bios", QBOOT)
        draft.option("kernel", draft.reopened(kernel.kernel_handle))
        if kernel.initrd_handle:
            draft.option("initrd", draft.reopened(kernel.initrd_handle))
        if "\0" in kernel.command_line:
            draft.refuse("VALUE_INVALID", "boot.kernel.command_line", "it contains a NUL byte")
        elif kernel.command_line:
            draft.option("append", kernel.command_line)
        return
    draft.option("boot", "strict=on")


def reboot_action(machine: Machine) -> str:
    """What QEMU does when the guest reboots."""
    return "shutdown" if machine.lifecycle.on_reboot == Lifecycle.ON_REBOOT_STOP else "reset"
