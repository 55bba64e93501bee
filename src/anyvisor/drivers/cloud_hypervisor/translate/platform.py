"""CPU, memory, boot, identity, and the small devices."""

import uuid
from collections.abc import Sequence
from typing import Final

from anyvisor.drivers.cloud_hypervisor.translate import slots
from anyvisor.drivers.cloud_hypervisor.translate.host import Host
from anyvisor.hri.kit.drafts import Draft, Json
from anyvisor.hri.v1.machine_spec_pb2 import Boot, Cpu, Device, Firmware, Machine, Memory

MAX_VCPUS: Final = 254
MAX_THREADS: Final = 2
PAGE: Final = 4096
HUGE_PAGES: Final = frozenset({2 << 20, 1 << 30})
HOTPLUG_STEP: Final = 128 << 20
COMMAND_LINE_BYTES: Final = 2047
"""What the x86 boot protocol's loader reserves, without its final zero."""
_WORD_BYTES: Final = 256
_TIMERS: Final = {"kvm": True, "hpet": False}
"""Timers whose presence is fixed."""


def vcpus(cpu: Cpu) -> int:
    """How many the guest begins with."""
    return cpu.sockets * cpu.cores * cpu.threads


def add_cpus(draft: Draft, cpu: Cpu) -> Json:
    """CpusConfig. The topology counts the CPUs that may come, as its product must be their number."""
    packages = max(cpu.max_sockets, cpu.sockets)
    most = packages * cpu.cores * cpu.threads
    if not vcpus(cpu):
        draft.refuse("FIELD_MISSING", "cpu", "sockets, cores and threads must all be at least 1")
    if most > MAX_VCPUS:
        draft.refuse("LIMIT_EXCEEDED", "cpu", "too many vCPUs", have=str(MAX_VCPUS), want=str(most))
    if cpu.threads > MAX_THREADS:
        draft.refuse("LIMIT_EXCEEDED", "cpu.threads", "a core has at most two threads", have="2", want=str(cpu.threads))
    if cpu.model not in ("", "host-passthrough"):
        draft.refuse(
            "VALUE_NOT_IN_SET", "cpu.model", "the guest sees the host's CPU; use host-passthrough", want=cpu.model
        )
    return {
        "boot_vcpus": vcpus(cpu),
        "max_vcpus": most,
        "topology": {
            "threads_per_core": cpu.threads,
            "cores_per_die": cpu.cores,
            "dies_per_package": 1,
            "packages": packages,
        },
    }


def add_memory(draft: Draft, memory: Memory) -> Json:
    """MemoryConfig."""
    page = memory.page_bytes or PAGE
    if page != PAGE and page not in HUGE_PAGES:
        draft.refuse("VALUE_NOT_IN_SET", "memory.page_bytes", "pages have 4 KiB, 2 MiB or 1 GiB", want=str(page))
    if not memory.size_bytes:
        draft.refuse("FIELD_MISSING", "memory.size_bytes", "the guest has no memory; say how much")
    if memory.size_bytes % page or memory.max_bytes % page:
        draft.refuse("VALUE_INVALID", "memory", f"sizes must be a multiple of the page size, {page} bytes")
    config: dict[str, Json] = {"size": memory.size_bytes, "shared": memory.shared}
    if page != PAGE:
        config |= {"hugepages": True, "hugepage_size": page}
    if memory.max_bytes:
        _check_hotplug(draft, memory)
        config |= {"hotplug_method": "Acpi", "hotplug_size": memory.max_bytes - memory.size_bytes}
    return config


def _check_hotplug(draft: Draft, memory: Memory) -> None:
    more = memory.max_bytes - memory.size_bytes
    if more <= 0:
        draft.refuse("VALUE_INVALID", "memory.max_bytes", "must be more than the guest begins with")
    elif more % HOTPLUG_STEP:
        draft.refuse(
            "VALUE_INVALID", "memory.max_bytes", "memory is added in steps of 128 MiB; make the difference a multiple"
        )


def add_boot(draft: Draft, boot: Boot, host: Host, chosen_firmware: str) -> Json:
    """PayloadConfig: a kernel from outside, or a UEFI firmware of the launcher image."""
    if boot.WhichOneof("method") == "kernel":
        return _kernel(draft, boot)
    firmware = boot.firmware
    path = chosen_firmware or host.firmware
    if firmware.kind != Firmware.KIND_UEFI:
        draft.refuse("CAP_NO", "boot.firmware.kind", "there is no BIOS; use UEFI or a kernel", have="uefi", want="bios")
    elif firmware.secure_boot:
        draft.refuse("CAP_NO", "boot.firmware.secure_boot", "secure boot is not supported; switch it off", have="off")
    elif not path:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            "boot.firmware.kind",
            "no firmware is installed on this node; install CLOUDHV.fd, or boot a kernel",
        )
    return {"firmware": path}


def _kernel(draft: Draft, boot: Boot) -> Json:
    kernel = boot.kernel
    if len(kernel.command_line.encode()) > COMMAND_LINE_BYTES or "\0" in kernel.command_line:
        draft.refuse(
            "LIMIT_EXCEEDED", "boot.kernel.command_line", f"at most {COMMAND_LINE_BYTES} bytes and no zero byte"
        )
    payload: dict[str, Json] = {"kernel": draft.reopened(kernel.kernel_handle), "cmdline": kernel.command_line}
    if kernel.initrd_handle:
        payload["initramfs"] = draft.reopened(kernel.initrd_handle)
    return payload


def add_identity(draft: Draft, machine: Machine) -> dict[str, Json]:
    """PlatformConfig. Empty words are left to the VMM."""
    identity = machine.identity
    words = {
        "system_uuid": identity.uuid,
        "system_serial_number": identity.serial,
        "system_manufacturer": identity.manufacturer,
        "system_product_name": identity.product,
        "system_version": identity.version,
        "system_sku_number": identity.sku,
        "system_family": identity.family,
        "chassis_asset_tag": identity.chassis_asset,
    }
    for word in (*words.values(), *identity.oem_strings):
        if len(word.encode()) > _WORD_BYTES or "\0" in word:
            draft.refuse("LIMIT_EXCEEDED", "identity", f"a word has at most {_WORD_BYTES} bytes and no zero byte")
    if identity.uuid:
        try:
            words["system_uuid"] = str(uuid.UUID(identity.uuid))
        except ValueError:
            draft.refuse("VALUE_INVALID", "identity.uuid", "is no UUID", want=identity.uuid[:80])
    platform: dict[str, Json] = {name: word for name, word in words.items() if word}
    if identity.oem_strings:
        platform["oem_strings"] = list(identity.oem_strings)
    return platform


def add_devices(draft: Draft, devices: Sequence[Device]) -> dict[str, Json]:
    """Balloon, random numbers, panic. Random numbers are there in any case, at a fixed place."""
    config: dict[str, Json] = {"rng": _rng("rng0")}
    kinds: set[str] = set()
    for index, device in enumerate(devices):
        path = f"devices[{index}]"
        kind = device.WhichOneof("kind") or ""
        if kind in kinds:
            draft.refuse("LIMIT_EXCEEDED", path, f"there can be one {kind} only")
        kinds.add(kind)
        match kind:
            case "balloon":
                config["balloon"] = _balloon(draft, device, path)
            case "rng":
                config["rng"] = _rng(device.id)
                draft.plug(device.id, slots.address(slots.RNG))
            case "panic":
                _check_panic(draft, device, path)
                config["pvpanic"] = True
                draft.plug(device.id, "")
            case _:
                draft.refuse("CAP_NO", f"{path}.{kind}", "this device is not supported")
    return config


def _balloon(draft: Draft, device: Device, path: str) -> Json:
    if device.balloon.statistics_seconds:
        draft.note("VALUE_UNAVAILABLE", f"{path}.balloon.statistics_seconds", "the balloon reports no statistics")
    draft.plug(device.id, slots.address(slots.BALLOON))
    return {
        "id": device.id,
        "size": 0,
        "deflate_on_oom": True,
        "free_page_reporting": device.balloon.free_page_reporting,
        "pci_segment": 0,
        "pci_device_id": slots.BALLOON,
    }


def _rng(device_id: str) -> Json:
    return {"id": device_id, "src": "/dev/urandom", "pci_segment": 0, "pci_device_id": slots.RNG}


def _check_panic(draft: Draft, device: Device, path: str) -> None:
    if device.panic.model not in ("", "pvpanic"):
        draft.refuse(
            "VALUE_NOT_IN_SET", f"{path}.panic.model", "the panic device is pvpanic (PCI)", want=device.panic.model
        )


def check_switches(draft: Draft, machine: Machine) -> None:
    """Switches that stand one way only."""
    for name in ("acpi", "apic"):
        if machine.features.HasField(name) and not getattr(machine.features, name):
            draft.refuse("CAP_NO", f"features.{name}", "cannot be switched off", have="on", want="off")
    if machine.clock.utc_offset_seconds:
        draft.refuse("CAP_NO", "clock.utc_offset_seconds", "the clock runs in UTC only", have="0")
    for index, timer in enumerate(machine.clock.timers):
        if _TIMERS.get(timer.name) is not timer.present or timer.tick_policy or timer.track:
            draft.refuse("CAP_NO", f"clock.timers[{index}]", "kvm is always present, hpet never; others have no switch")
    if machine.lifecycle.start_paused:
        draft.refuse("CAP_NO", "lifecycle.start_paused", "a guest cannot be held before its first instruction")
    if machine.lifecycle.on_reboot == machine.lifecycle.ON_REBOOT_STOP:
        draft.refuse(
            "VALUE_NOT_IN_SET", "lifecycle.on_reboot", "a guest that reboots always starts again", have="reset"
        )
