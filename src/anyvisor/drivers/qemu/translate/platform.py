"""The board: machine type, accelerator, CPU, memory, clock, identity, firmware and kernel."""

import re
import uuid
from collections.abc import Mapping
from typing import Final

from anyvisor.drivers.qemu.translate import firmware
from anyvisor.drivers.qemu.translate.draft import Draft, escaped
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.v1.machine_spec_pb2 import CpuFeature, Lifecycle, Machine, Nic, SystemIdentity
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, ACCELERATOR_UNSPECIFIED, Accelerator

QBOOT: Final = "qboot.rom"
_NAMESPACE: Final = uuid.UUID("6c0c8f0e-2d4b-5d53-9d5a-6a1d4b1b7f6e")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PROFILE: Final = re.compile(r"(pc-)?q35(-[A-Za-z0-9.-]{1,40})?")
MIN_MEMORY_BYTES: Final = 1 << 20
PAGE_BYTES: Final = 4096
MAX_CPUS: Final = 255
FEATURE_STATES: Final = {
    CpuFeature.POLICY_FORCE: "on",
    CpuFeature.POLICY_REQUIRE: "on",
    CpuFeature.POLICY_OPTIONAL: "on",
    CpuFeature.POLICY_DISABLE: "off",
}
_NAMES: Final = {ACCELERATOR_KVM: "KVM", ACCELERATOR_EMULATION: "software emulation"}


def choose_accelerator(draft: Draft, machine: Machine, host: Host) -> Accelerator:
    """The accelerator asked for, or the best on which a guest really ran."""
    wanted = machine.accelerator
    if wanted == ACCELERATOR_UNSPECIFIED:
        return host.accelerators[0]
    if wanted not in host.accelerators:
        why = host.reasons.get(wanted, "QEMU has no such accelerator on x86")
        draft.refuse(
            "ACCELERATOR_UNAVAILABLE",
            "accelerator",
            f"{_NAMES.get(wanted, 'the accelerator')} does not run guests on this node: {why}",
            have=", ".join(_NAMES[each] for each in host.accelerators),
            want=_NAMES.get(wanted, str(wanted)),
        )
    return wanted


def choose_profile(draft: Draft, machine: Machine, host: Host) -> str:
    """The machine type in full."""
    wanted = machine.profile
    if wanted in ("", "q35") and host.default_profile:
        return host.default_profile
    if not _PROFILE.fullmatch(wanted) or wanted not in host.profiles:
        draft.refuse(
            "VALUE_NOT_IN_SET",
            "profile",
            f"machine type {wanted!r} is not served here; use q35 or one of its versions that the node lists",
            have=", ".join(sorted(host.profiles)[-3:]),
            want=wanted,
        )
    return wanted


def add_board(draft: Draft, machine: Machine, profile: str, accelerator: Accelerator) -> None:
    """Machine type, accelerator, CPUs, memory and clock."""
    options = [profile, "usb=off", "vmport=off", "dump-guest-core=off"]
    options.append(f"smm={'on' if machine.features.smm or firmware.is_secure(machine) else 'off'}")
    options += firmware.board_options(machine)
    wanted = firmware.of_machine(machine)
    options.append(f"graphics={'off' if wanted is not None and wanted.serial_output else 'on'}")
    if machine.features.HasField("acpi") and not machine.features.acpi:
        options.append("acpi=off")
    options += _timers(draft, machine)
    if machine.memory.shared:
        options.append("memory-backend=memory")
        size = machine.memory.size_bytes
        draft.json("object", {"qom-type": "memory-backend-memfd", "id": "memory", "size": size, "share": True})
    draft.option("machine", ",".join(options))
    draft.option("accel", _accelerator(machine, accelerator))
    draft.option("cpu", _cpu(draft, machine, accelerator))
    _add_topology(draft, machine)
    _add_memory(draft, machine)
    draft.option("rtc", "base=utc,clock=vm")


def _accelerator(machine: Machine, accelerator: Accelerator) -> str:
    if accelerator == ACCELERATOR_KVM:
        return "kvm"
    return f"tcg,thread=multi,tb-size={machine.parameters.get('emulationCacheMiB', '64')}"


def _timers(draft: Draft, machine: Machine) -> list[str]:
    options: list[str] = []
    for index, timer in enumerate(machine.clock.timers):
        path = f"clock.timers[{index}]"
        if timer.name == "hpet" and not timer.tick_policy:
            options.append(f"hpet={'on' if timer.present else 'off'}")
        else:
            draft.refuse("CAP_NO", path, f"timer {timer.name!r} with these settings is not supported", have="hpet")
    return options


def _cpu(draft: Draft, machine: Machine, accelerator: Accelerator) -> str:
    kvm = accelerator == ACCELERATOR_KVM
    model = machine.cpu.model
    if model in ("", "host-model", "host-passthrough"):
        if model and not kvm:
            draft.note(
                "SUBSTITUTED",
                "cpu.model",
                f"{model} has no meaning under software emulation; the guest gets all that it can emulate",
                have="max",
                want=model,
            )
        model = "host" if kvm else "max"
    elif not _WORD.fullmatch(model):
        draft.refuse("VALUE_INVALID", "cpu.model", f"{model[:80]!r} is no CPU model's name", have=model[:80])
    words = [model]
    for index, feature in enumerate(machine.cpu.features):
        state = FEATURE_STATES.get(feature.policy)
        if state is None or not _WORD.fullmatch(feature.name):
            draft.refuse("CAP_NO", f"cpu.features[{index}]", "use a feature's name, and force, require or disable")
            continue
        words.append(f"{feature.name}={state}")
    if any(feature.policy == CpuFeature.POLICY_REQUIRE for feature in machine.cpu.features):
        words.append("enforce=on")
    if machine.features.hidden_hypervisor:
        words.append("kvm=off")
    return ",".join(words)


def check_cpu_model(draft: Draft, machine: Machine, host: Host) -> None:
    """A named model must be one that this binary has."""
    model = machine.cpu.model
    if model in ("", "host-model", "host-passthrough", "max") or model in host.cpu_models:
        return
    draft.refuse(
        "VALUE_NOT_IN_SET",
        "cpu.model",
        f"CPU model {model[:80]!r} is not known to this QEMU; use one that the node lists",
        want=model[:80],
    )


def _add_topology(draft: Draft, machine: Machine) -> None:
    cpu = machine.cpu
    sockets, cores, threads = cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1
    total = sockets * cores * threads
    if total > MAX_CPUS:
        draft.refuse(
            "LIMIT_EXCEEDED", "cpu", f"a machine has at most {MAX_CPUS} CPUs", have=str(MAX_CPUS), want=str(total)
        )
    draft.option("smp", f"cpus={total},sockets={sockets},cores={cores},threads={threads}")


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
    if identity.chassis_asset:
        draft.option("smbios", f"type=3,asset={escaped(identity.chassis_asset)}")
    if identity.oem_strings:
        draft.option("smbios", "type=11," + ",".join(f"value={escaped(text)}" for text in identity.oem_strings))


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
