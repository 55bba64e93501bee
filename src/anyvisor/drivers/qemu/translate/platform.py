"""The board: machine type, accelerator, CPU, memory, clock, identity, firmware and kernel."""

import re
import uuid
from collections.abc import Mapping
from typing import Final

from anyvisor.drivers.qemu.translate import firmware
from anyvisor.drivers.qemu.translate.clock import add_clock
from anyvisor.drivers.qemu.translate.cpu import add_cpu
from anyvisor.drivers.qemu.translate.draft import Draft, escaped
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.kit import board
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_spec_pb2 import Lifecycle, Machine, Nic, SystemIdentity
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

QBOOT: Final = "qboot.rom"
_NAMESPACE: Final = uuid.UUID("6c0c8f0e-2d4b-5d53-9d5a-6a1d4b1b7f6e")
_PROFILE: Final = re.compile(r"(pc-)?q35(-[A-Za-z0-9.-]{1,40})?")
MIN_MEMORY_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096


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
    options += _memory_backend(draft, machine, host)
    draft.option("machine", ",".join(options))
    draft.option("accel", _accelerator(machine, accelerator))
    add_cpu(draft, machine, host, accelerator)
    _add_memory(draft, machine)


def _accelerator(machine: Machine, accelerator: Accelerator) -> str:
    if accelerator == ACCELERATOR_KVM:
        return "kvm"
    return f"tcg,thread=multi,tb-size={machine.parameters.get('emulationCacheMiB', '64')}"


def _memory_backend(draft: Draft, machine: Machine, host: Host) -> list[str]:
    """Memory that is more than anonymous: shared with others, or of huge pages, taken at once or not at all."""
    memory = machine.memory
    if not memory.shared and not memory.page_bytes:
        return []
    backend: dict[str, Json] = {"qom-type": "memory-backend-memfd", "id": "memory", "size": memory.size_bytes}
    backend["share"] = memory.shared
    if memory.page_bytes:
        _check_pages(draft, machine, host)
        backend |= {"hugetlb": True, "hugetlbsize": memory.page_bytes, "prealloc": True}
    draft.json("object", backend)
    return ["memory-backend=memory"]


def _check_pages(draft: Draft, machine: Machine, host: Host) -> None:
    size, page = machine.memory.size_bytes, machine.memory.page_bytes
    if page not in host.huge_page_bytes:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            "memory.page_bytes",
            f"this node has no huge pages of {page >> 10} KiB; reserve some: sysctl vm.nr_hugepages",
            have=", ".join(str(each) for each in sorted(host.huge_page_bytes)),
            want=str(page),
        )
    elif size % page:
        draft.refuse("VALUE_INVALID", "memory.size_bytes", "guest memory must be a multiple of the size of its pages")


def _add_memory(draft: Draft, machine: Machine) -> None:
    size = machine.memory.size_bytes
    if size < MIN_MEMORY_BYTES or size % PAGE_BYTES:
        draft.refuse(
            "VALUE_INVALID",
            "memory.size_bytes",
            f"guest memory must be at least 1 MiB and a multiple of {PAGE_BYTES} bytes",
            have=str(size),
        )
    draft.option("m", f"size={size}B")


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
    driver of the guest's own does. `buses` is the bus of each device behind a root port.
    """
    plain = all(nic.model in (Nic.MODEL_UNSPECIFIED, Nic.MODEL_VIRTIO) for nic in machine.nics)
    free = firmware.of_machine(machine) is None and machine.parameters.get("kernelFirmware", "auto") == "auto"
    wanted = free and not machine.displays
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
