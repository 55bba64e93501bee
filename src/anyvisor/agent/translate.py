"""From a VMI and its plan to the HRI's `Machine`: pure.

Absent is never "no": a field of the VMI that has no place in `Machine`, or that this module does not know, refuses
the machine with its path. Ids carry a prefix per kind, so that a disk and an interface may share a name.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from anyvisor.agent.translate_devices import (
    DEVICE_FIELDS,
    NO_DEVICES,
    consoles,
    devices,
    disk_id,
    disks,
    displays,
    filesystems,
    nic_id,
)
from anyvisor.agent.translate_parts import TranslateError, only, quantity
from anyvisor.agent.volumes.hot import hot_names
from anyvisor.agent.volumes.shares import Share
from anyvisor.api.meta import Json, list_at, name, object_at, uid
from anyvisor.hri.v1.machine_spec_pb2 import (
    Boot,
    Clock,
    Cpu,
    CpuFeature,
    Features,
    Firmware,
    Kernel,
    Lifecycle,
    Machine,
    Memory,
    Nic,
    SystemIdentity,
    VolumeHandle,
)
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_EMULATION,
    ACCELERATOR_KVM,
    ACCELERATOR_MSHV,
    ACCELERATOR_NONE,
    ACCELERATOR_UNSPECIFIED,
    Accelerator,
)
from anyvisor.planning.plan import Plan

DEFAULT_GRACE_SECONDS: Final = 30
MORE_DISKS: Final = 4
"""Disks that may come beside those that the spec names when the guest starts."""
_ACCELERATORS: Final[Mapping[str, Accelerator]] = {
    "": ACCELERATOR_UNSPECIFIED,
    "auto": ACCELERATOR_UNSPECIFIED,
    "kvm": ACCELERATOR_KVM,
    "mshv": ACCELERATOR_MSHV,
    "emulation": ACCELERATOR_EMULATION,
    "tcg": ACCELERATOR_EMULATION,
    "none": ACCELERATOR_NONE,
}
_POLICIES: Final = {
    "force": CpuFeature.POLICY_FORCE,
    "require": CpuFeature.POLICY_REQUIRE,
    "optional": CpuFeature.POLICY_OPTIONAL,
    "disable": CpuFeature.POLICY_DISABLE,
    "forbid": CpuFeature.POLICY_FORBID,
}
_DOMAIN_FIELDS: Final = frozenset(
    {
        "chassis",
        "clock",
        "cpu",
        "devices",
        "features",
        "firmware",
        "ioThreads",
        "ioThreadsPolicy",
        "machine",
        "memory",
        "rebootPolicy",
        "resources",
    }
)
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Parts:
    """What was opened for the machine."""

    volumes: Mapping[str, VolumeHandle] = field(default_factory=dict[str, VolumeHandle])
    kernel: Kernel | None = None
    nics: Sequence[Nic] = ()
    console_log: str = ""
    """Handle of the serial console's log; empty = none."""
    variables: str = ""
    """Handle of the firmware's kept variables; empty = they are not kept."""
    tpm_state: str = ""
    """Handle of the TPM's kept state; empty = it is not kept."""
    shares: Mapping[str, Share] = field(default_factory=dict[str, Share])
    """Directories that the guest mounts, by the name of their volume."""
    agent_port: bool = True
    tells_mtu: bool = True
    """Whether the driver can tell the guest an MTU; else the guest has it by DHCP alone."""
    """Whether the driver has a channel to an agent inside the guest; no field of a VMI asks for it."""
    attachable: bool = False
    """Whether the driver attaches disks while the guest runs."""


def machine(vmi: Json, plan: Plan, parts: Parts) -> Machine:
    """The machine of this VMI; raises TranslateError with the field that stands in the way."""
    vmi = substituted(vmi, plan)
    domain = object_at(vmi, "spec", "domain")
    at = "spec.domain"
    only(domain, _DOMAIN_FIELDS, at)
    only(object_at(domain, "devices"), DEVICE_FIELDS, f"{at}.devices", ignored=NO_DEVICES)
    all_nics = [with_device_id(nic, mtu=parts.tells_mtu) for nic in parts.nics]
    result = Machine(
        id=uid(vmi),
        name=f"{vmi['metadata'].get('namespace', '')}/{name(vmi)}"[:253],
        accelerator=_accelerator(plan.accelerator),
        profile=plan.machine_type or str(object_at(domain, "machine").get("type") or ""),
        cpu=_cpu(domain, f"{at}.cpu"),
        memory=_memory(domain, plan, f"{at}.memory", shared=bool(parts.shares)),
        boot=_boot(vmi, domain, parts, f"{at}.firmware"),
        disks=disks(vmi, parts.volumes),
        nics=all_nics,
        consoles=consoles(vmi, parts.console_log),
        displays=displays(vmi),
        devices=devices(vmi, agent_port=parts.agent_port, tpm_state=parts.tpm_state),
        filesystems=filesystems(vmi, parts.shares),
        identity=_identity(vmi, domain),
        clock=_clock(object_at(domain, "clock"), f"{at}.clock"),
        lifecycle=_lifecycle(vmi, domain),
        parameters=plan.parameters,
        features=_features(object_at(domain, "features"), f"{at}.features"),
        attachable_disks=_attachable(vmi) if parts.attachable else 0,
    )
    _check_ids(result)
    return result


def substituted(vmi: Json, plan: Plan) -> Json:
    """The VMI with the plan's substitutions applied; the original is not changed."""
    for substitution in plan.substitutions:
        steps = [word or int(index) for word, index in _STEP.findall(substitution.field)]
        path = steps if steps[:1] == ["spec"] else ["spec", *steps]
        vmi = _replaced(vmi, path, substitution.to)
    return vmi


def _replaced(value: Any, steps: list[str | int], new: Any) -> Any:
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        items: list[Any] = list(cast("list[Any]", value)) if isinstance(value, list) else []
        if step < len(items):
            items[step] = _replaced(items[step], rest, new)
        return items
    fields: Json = dict(cast("Json", value)) if isinstance(value, dict) else {}
    fields[step] = _replaced(fields.get(step), rest, new)
    if fields[step] is None:
        del fields[step]
    return fields


def _accelerator(word: str) -> Accelerator:
    if word not in _ACCELERATORS:
        raise TranslateError("status.hypervisor.accelerator", f"the plan names the unknown accelerator {word!r}")
    return _ACCELERATORS[word]


def _cpu(domain: Json, at: str) -> Cpu:
    cpu = object_at(domain, "cpu")
    only(
        cpu,
        {"sockets", "cores", "threads", "maxSockets", "model", "features", "isolateEmulatorThread"},
        at,
        ignored={"dedicatedCpuPlacement": False},
    )
    topology = [int(cpu.get(part) or 0) for part in ("sockets", "cores", "threads")]
    sockets, cores, threads = topology if any(topology) else (_requested_cpus(domain), 1, 1)
    maximum = int(cpu.get("maxSockets") or 0)
    return Cpu(
        sockets=sockets or 1,
        cores=cores or 1,
        threads=threads or 1,
        max_sockets=maximum if maximum > (sockets or 1) else 0,
        model=str(cpu.get("model") or ""),
        features=[_cpu_feature(item, f"{at}.features[{i}]") for i, item in enumerate(list_at(cpu, "features"))],
        isolate_emulator=bool(cpu.get("isolateEmulatorThread")),
    )


def _requested_cpus(domain: Json) -> int:
    """Without a topology, the CPU limit or request gives the sockets, rounded up."""
    for kind in ("limits", "requests"):
        wanted = object_at(domain, "resources", kind).get("cpu")
        if wanted:
            milli = quantity(wanted, f"spec.domain.resources.{kind}.cpu", scale=1000)
            return max(-(-milli // 1000), 1)
    return 1


def _cpu_feature(feature: Json, at: str) -> CpuFeature:
    policy = str(feature.get("policy") or "require")
    if policy not in _POLICIES:
        raise TranslateError(f"{at}.policy", f"{policy!r} is no policy of a CPU feature")
    return CpuFeature(name=str(feature["name"]), policy=_POLICIES[policy])


def _memory(domain: Json, plan: Plan, at: str, *, shared: bool) -> Memory:
    memory = object_at(domain, "memory")
    only(memory, {"guest", "maxGuest", "hugepages"}, at)
    size = plan.resources.guest_memory_bytes
    if not size and memory.get("guest"):
        size = quantity(memory["guest"], f"{at}.guest")
    if not size:
        wanted = object_at(domain, "resources", "requests").get("memory")
        size = quantity(wanted, "spec.domain.resources.requests.memory") if wanted else 0
    if size <= 0:
        raise TranslateError(f"{at}.guest", "the guest has no memory: say how much")
    page = object_at(memory, "hugepages").get("pageSize")
    maximum = quantity(memory["maxGuest"], f"{at}.maxGuest") if memory.get("maxGuest") else 0
    return Memory(
        size_bytes=size,
        max_bytes=maximum if maximum > size else 0,
        page_bytes=quantity(page, f"{at}.hugepages.pageSize") if page else 0,
        shared=shared,
    )


def _boot(vmi: Json, domain: Json, parts: Parts, at: str) -> Boot:
    firmware = object_at(domain, "firmware")
    only(firmware, {"uuid", "serial", "bootloader", "kernelBoot"}, at)
    order = _boot_order(domain, hot_names(vmi))
    loader = object_at(firmware, "bootloader")
    only(loader, {"bios", "efi"}, f"{at}.bootloader")
    if parts.kernel is None:
        return Boot(firmware=_firmware(loader, parts, f"{at}.bootloader"), order=order)
    kernel = Kernel()
    kernel.CopyFrom(parts.kernel)
    if isinstance(loader.get("efi"), dict) or object_at(loader, "bios").get("useSerial"):
        kernel.firmware.CopyFrom(_firmware(loader, parts, f"{at}.bootloader"))
    return Boot(kernel=kernel, order=order)


def _firmware(loader: Json, parts: Parts, at: str) -> Firmware:
    if not isinstance(loader.get("efi"), dict):
        bios = object_at(loader, "bios")
        only(bios, {"useSerial"}, f"{at}.bios")
        return Firmware(kind=Firmware.KIND_BIOS, serial_output=bool(bios.get("useSerial")))
    efi = object_at(loader, "efi")
    only(efi, {"secureBoot", "persistent"}, f"{at}.efi")
    return Firmware(
        kind=Firmware.KIND_UEFI,
        secure_boot=efi.get("secureBoot") is not False,
        variables_handle=parts.variables,
    )


def _attachable(vmi: Json) -> int:
    """How many disks may come while the guest runs: those that the spec names already, and a few more."""
    if object_at(vmi, "spec", "domain", "devices").get("disableHotplug") is True:
        return 0
    return len(hot_names(vmi)) + MORE_DISKS


def _boot_order(domain: Json, later: Collection[str]) -> list[str]:
    from_disks = [
        (int(disk["bootOrder"]), disk_id(str(disk["name"])))
        for disk in list_at(domain, "devices", "disks")
        if disk.get("bootOrder") and (disk["name"] not in later or isinstance(disk.get("cdrom"), dict))
    ]
    from_nics = [
        (int(nic["bootOrder"]), nic_id(str(nic["name"])))
        for nic in list_at(domain, "devices", "interfaces")
        if nic.get("bootOrder")
    ]
    return [id_ for _, id_ in sorted(from_disks + from_nics)]


def with_device_id(nic: Nic, *, mtu: bool) -> Nic:
    """The interface as the driver gets it; `mtu`: whether it can tell the guest that."""
    renamed = Nic()
    renamed.CopyFrom(nic)
    renamed.id = nic_id(nic.id)
    if not mtu:
        renamed.mtu = 0
    return renamed


def _identity(vmi: Json, domain: Json) -> SystemIdentity:
    firmware, chassis = object_at(domain, "firmware"), object_at(domain, "chassis")
    only(chassis, {"asset", "manufacturer", "serial", "sku", "version"}, "spec.domain.chassis")
    return SystemIdentity(
        uuid=str(firmware.get("uuid") or uid(vmi)),
        serial=str(firmware.get("serial") or ""),
        chassis_asset=str(chassis.get("asset") or ""),
        chassis_manufacturer=str(chassis.get("manufacturer") or ""),
        chassis_serial=str(chassis.get("serial") or ""),
        chassis_sku=str(chassis.get("sku") or ""),
        chassis_version=str(chassis.get("version") or ""),
    )


def _clock(clock: Json, at: str) -> Clock:
    only(clock, {"utc", "timezone", "timer"}, at)
    timers = object_at(clock, "timer")
    only(timers, {"hpet", "kvm", "pit", "rtc", "hyperv"}, f"{at}.timer")
    result = Clock(
        timers=[
            Clock.Timer(
                name=kind,
                present=timers[kind].get("present") is not False,
                tick_policy=str(timers[kind].get("tickPolicy") or ""),
                track=str(timers[kind].get("track") or ""),
            )
            for kind in sorted(timers)
            if isinstance(timers[kind], dict)
        ]
    )
    if clock.get("timezone"):
        result.timezone = str(clock["timezone"])
    else:
        result.utc_offset_seconds = int(object_at(clock, "utc").get("offsetSeconds") or 0)
    return result


def grace_seconds(vmi: Json) -> int:
    """How long the guest may take to shut down."""
    grace = object_at(vmi, "spec").get("terminationGracePeriodSeconds")
    return grace if isinstance(grace, int) and grace >= 0 else DEFAULT_GRACE_SECONDS


def acpi_enabled(vmi: Json) -> bool:
    """Whether the guest has a power button."""
    return object_at(vmi, "spec", "domain", "features", "acpi").get("enabled") is not False


def _lifecycle(vmi: Json, domain: Json) -> Lifecycle:
    terminate = domain.get("rebootPolicy") == "Terminate"
    return Lifecycle(
        on_reboot=Lifecycle.ON_REBOOT_STOP if terminate else Lifecycle.ON_REBOOT_RESET,
        start_paused=object_at(vmi, "spec").get("startStrategy") == "Paused",
        grace_seconds=grace_seconds(vmi),
    )


def _features(features: Json, at: str) -> Features:
    known = {"acpi", "apic", "smm", "kvm", "hyperv", "pvspinlock"}
    only(features, known, at, ignored={"hypervPassthrough": {"enabled": False}})
    result = Features(
        smm=_enabled(features, "smm", absent=False),
        hidden_hypervisor=bool(object_at(features, "kvm").get("hidden")),
        hyperv=_hyperv(object_at(features, "hyperv"), f"{at}.hyperv"),
    )
    if isinstance(features.get("pvspinlock"), dict):
        result.pv_spinlocks = _enabled(features, "pvspinlock", absent=True)
    for part in ("acpi", "apic"):
        if isinstance(features.get(part), dict):
            only(object_at(features, part), {"enabled"}, f"{at}.{part}", ignored={"endOfInterrupt": False})
            setattr(result, part, _enabled(features, part, absent=True))
    return result


def _enabled(features: Json, part: str, *, absent: bool) -> bool:
    if not isinstance(features.get(part), dict):
        return absent
    return features[part].get("enabled") is not False


def _hyperv(hyperv: Json, at: str) -> dict[str, str]:
    """Enlightenments by name: `on`, `off`, or the value that belongs to it."""
    values = {"spinlocks": "spinlocks", "vendorid": "vendorid"}
    result: dict[str, str] = {}
    for kind, feature in sorted(hyperv.items()):
        if not isinstance(feature, dict):
            raise TranslateError(f"{at}.{kind}", "is no feature")
        state = "off" if object_at(hyperv, kind).get("enabled") is False else "on"
        value = object_at(hyperv, kind).get(values.get(kind, ""))
        result[kind] = str(value) if value is not None and state == "on" else state
        for part in ("direct", "extended"):
            if isinstance(object_at(hyperv, kind).get(part), dict):
                result[f"{kind}.{part}"] = "off" if object_at(hyperv, kind, part).get("enabled") is False else "on"
    return result


def _check_ids(result: Machine) -> None:
    ids: Collection[str] = [
        item.id
        for group in (result.disks, result.nics, result.consoles, result.displays, result.devices)
        for item in group
    ]
    twice = sorted({id_ for id_ in ids if list(ids).count(id_) > 1})
    if twice:
        raise TranslateError("spec.domain.devices", f"two devices are called {twice[0].partition('.')[2]!r}")
