"""The board: type, accelerator, CPU, memory, clock, identity, firmware and kernel."""

import re
import uuid
from typing import Final

from anyvisor.drivers.libvirt.translate.draft import Draft, element
from anyvisor.drivers.libvirt.translate.host import Host
from anyvisor.hri.kit import board
from anyvisor.hri.v1.machine_spec_pb2 import CpuFeature, Firmware, Machine, SystemIdentity
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

_NAMESPACE: Final = uuid.UUID("6c0c8f0e-2d4b-5d53-9d5a-6a1d4b1b7f6e")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MAX_CPUS: Final = 255
POLICIES: Final = {
    CpuFeature.POLICY_FORCE: "force",
    CpuFeature.POLICY_REQUIRE: "require",
    CpuFeature.POLICY_OPTIONAL: "optional",
    CpuFeature.POLICY_DISABLE: "disable",
    CpuFeature.POLICY_FORBID: "forbid",
}
TIMERS: Final = {"hpet": "hpet", "pit": "pit", "rtc": "rtc", "kvm": "kvmclock"}
"""Timer -> libvirt's name."""


def choose_accelerator(draft: Draft, machine: Machine, host: Host) -> Accelerator:
    """The accelerator asked for, or the best."""
    why = "this libvirt has no such accelerator"
    return board.choose_accelerator(draft, machine.accelerator, host.accelerators, host.reasons, why)


def choose_profile(draft: Draft, machine: Machine, host: Host) -> str:
    """The machine type in full."""
    return board.choose_profile(draft, machine.profile, "q35", host.default_profile, host.profiles)


def add_memory(draft: Draft, machine: Machine) -> None:
    """The guest's memory."""
    size = board.memory_bytes(draft, machine.memory.size_bytes)
    draft.add("memory", text=str(size), unit="b")


def add_cpu(draft: Draft, machine: Machine, accelerator: Accelerator, host: Host) -> None:
    """CPUs: how many, in which topology, and which model."""
    cpu = machine.cpu
    sockets, cores, threads = cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1
    total = sockets * cores * threads
    if total > MAX_CPUS:
        draft.refuse(
            "LIMIT_EXCEEDED", "cpu", f"a machine has at most {MAX_CPUS} CPUs", have=str(MAX_CPUS), want=str(total)
        )
    features = [
        element("feature", policy=POLICIES.get(feature.policy, "require"), name=feature.name)
        for index, feature in enumerate(cpu.features)
        if _is_word(draft, feature.name, f"cpu.features[{index}].name")
    ]
    topology = element("topology", sockets=sockets, cores=cores, threads=threads)
    draft.add("vcpu", text=str(total))
    mode, model = _cpu_model(draft, machine, accelerator, host)
    exact = "exact" if model else ""
    named = [element("model", text=model, fallback="forbid")] if model else []
    draft.add("cpu", *named, topology, *features, mode=mode, match=exact, check="partial" if model else "")


def _cpu_model(draft: Draft, machine: Machine, accelerator: Accelerator, host: Host) -> tuple[str, str]:
    """libvirt's mode, and the model's name with the mode `custom`."""
    model = machine.cpu.model
    kvm = accelerator == ACCELERATOR_KVM
    if model in ("", "host-model", "host-passthrough", "max"):
        if model.startswith("host") and not kvm:
            draft.note(
                "SUBSTITUTED",
                "cpu.model",
                f"{model} has no meaning under software emulation; the guest gets all that it can emulate",
                have="maximum",
                want=model,
            )
        if not kvm or model == "max":
            return "maximum", ""
        return "host-model" if model == "host-model" else "host-passthrough", ""
    if model not in host.cpu_models:
        draft.refuse(
            "VALUE_NOT_IN_SET",
            "cpu.model",
            f"CPU model {model[:80]!r} does not run here; use one that the node lists",
            want=model[:80],
        )
    return "custom", model


def _is_word(draft: Draft, word: str, path: str) -> bool:
    if _WORD.fullmatch(word):
        return True
    draft.refuse("VALUE_INVALID", path, f"{word[:80]!r} is no name of a CPU feature", have=word[:80])
    return False


def add_boot(draft: Draft, machine: Machine, profile: str, host: Host) -> None:
    """Firmware or kernel, and what the firmware's tables say."""
    children = [element("type", text="hvm", arch="x86_64", machine=profile)]
    if machine.boot.WhichOneof("method") == "kernel":
        kernel = machine.boot.kernel
        place = f"{host.directory}/{machine.id}"
        children.append(element("kernel", text=_file(draft, kernel.kernel_handle, place, "kernel")))
        if kernel.initrd_handle:
            children.append(element("initrd", text=_file(draft, kernel.initrd_handle, place, "initrd")))
        if kernel.command_line:
            children.append(element("cmdline", text=kernel.command_line))
    elif machine.boot.firmware.kind == Firmware.KIND_UEFI:
        draft.refuse("CAP_NO", "boot.firmware.kind", "UEFI is not supported by this driver; use BIOS", have="bios")
    if machine.boot.firmware.serial_output:
        children.append(element("bios", useserial="yes"))
    children.append(element("smbios", mode="sysinfo"))
    draft.add("os", *children)


def _file(draft: Draft, handle: str, place: str, name: str) -> str:
    """The path of a file that the driver will have put there: libvirt takes kernels by path only."""
    if not handle:
        draft.refuse("FIELD_MISSING", "boot.kernel.kernel_handle", "a kernel must be given")
    draft.kernel_files[name] = handle
    return f"{place}/{name}"


def add_identity(draft: Draft, machine: Machine) -> None:
    """What the guest's firmware tables say about the machine. The UUID is never random: it must survive a restart."""
    identity = machine.identity
    try:
        system = str(uuid.UUID(identity.uuid)) if identity.uuid else str(uuid.uuid5(_NAMESPACE, machine.id))
    except ValueError:
        draft.refuse("VALUE_INVALID", "identity.uuid", f"{identity.uuid[:60]!r} is no UUID", have=identity.uuid[:60])
        return
    draft.add("uuid", text=system)
    entries = [element("entry", text=text, name=name) for name, text in _system_fields(identity) if text]
    tables = [element("system", *entries, element("entry", text=system, name="uuid"))]
    chassis = [element("entry", text=text, name=name) for name, text in _chassis_fields(identity) if text]
    if chassis:
        tables.append(element("chassis", *chassis))
    if identity.oem_strings:
        tables.append(element("oemStrings", *(element("entry", text=text) for text in identity.oem_strings)))
    draft.add("sysinfo", *tables, type="smbios")


def _chassis_fields(identity: SystemIdentity) -> list[tuple[str, str]]:
    return [
        ("manufacturer", identity.chassis_manufacturer),
        ("version", identity.chassis_version),
        ("serial", identity.chassis_serial),
        ("asset", identity.chassis_asset),
        ("sku", identity.chassis_sku),
    ]


def _system_fields(identity: SystemIdentity) -> tuple[tuple[str, str], ...]:
    return (
        ("manufacturer", identity.manufacturer),
        ("product", identity.product),
        ("version", identity.version),
        ("serial", identity.serial),
        ("sku", identity.sku),
        ("family", identity.family),
    )


def add_features(draft: Draft, machine: Machine) -> None:
    """ACPI, APIC, SMM, and whether the guest sees its hypervisor."""
    features = machine.features
    if features.HasField("apic") and not features.apic:
        draft.refuse("CAP_NO", "features.apic", "a machine without APIC is not supported; leave features.apic out")
    children = [
        element(name)
        for name, present in (("acpi", features.acpi), ("apic", features.apic))
        if present or not features.HasField(name)
    ]
    children.append(element("smm", state="on" if features.smm else "off"))
    if features.hidden_hypervisor:
        children.append(element("kvm", element("hidden", state="on")))
    draft.add("features", *children)


def add_clock(draft: Draft, machine: Machine) -> None:
    """The clock's base and timers."""
    clock = machine.clock
    timers = [
        element(
            "timer",
            name=TIMERS[timer.name],
            present="yes" if timer.present else "no",
            tickpolicy=timer.tick_policy,
            track=timer.track,
        )
        for index, timer in enumerate(clock.timers)
        if _known_timer(draft, timer.name, f"clock.timers[{index}].name")
    ]
    if clock.WhichOneof("base") == "timezone":
        draft.add("clock", *timers, offset="timezone", timezone=clock.timezone)
    elif clock.utc_offset_seconds:
        draft.add("clock", *timers, offset="variable", basis="utc", adjustment=clock.utc_offset_seconds)
    else:
        draft.add("clock", *timers, offset="utc")


def _known_timer(draft: Draft, name: str, path: str) -> bool:
    if name in TIMERS:
        return True
    draft.refuse("CAP_NO", path, f"there is no timer {name[:40]!r} here", have=", ".join(TIMERS), want=name[:40])
    return False
