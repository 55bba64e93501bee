"""An instance type and a preference applied to a VM's template: the sizes are set, the wishes fill gaps.

An instance type is the word on what it says: a template that says it too is refused. A preference only fills
what nobody said. Source: KubeVirt's user guide on instance types, and its API (instancetype/v1beta1).
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from anyvisor.api.quantity import Quantity, QuantityError, parse_quantity
from anyvisor.api.values import Obj, integer, items, mapping, text

GROUP: Final = "instancetype.kubevirt.io"
KINDS: Final = {
    "instancetype": ("VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"),
    "preference": ("VirtualMachinePreference", "VirtualMachineClusterPreference"),
}
"""By the field of a VM that refers to one: the kind in a namespace, and that of the whole cluster."""

TOPOLOGY: Final = ("cores", "sockets", "threads")
SPREAD_RATIO: Final = 2
"""vCPUs of one group where a spread topology names no ratio."""

_CPU: Final = {
    "model": "model",
    "dedicatedCPUPlacement": "dedicatedCpuPlacement",
    "numa": "numa",
    "isolateEmulatorThread": "isolateEmulatorThread",
    "realtime": "realtime",
    "maxSockets": "maxSockets",
}
_SPEC: Final = ("schedulerName",)
_DOMAIN: Final = ("ioThreadsPolicy", "ioThreads", "launchSecurity")
_DEVICES: Final = ("gpus", "hostDevices")


def referred(spec: Obj, field: str) -> tuple[str, str] | None:
    """Kind and name of what a VM's spec refers to; the cluster's kind where it names none."""
    matcher = mapping(spec.get(field))
    name = text(matcher.get("name"))
    if not name:
        return None
    namespaced, clusterwide = KINDS[field]
    named = text(matcher.get("kind")).lower().removesuffix("s")
    return (namespaced if named == namespaced.lower() else clusterwide, name)


def shortage(preference: Obj, template: Obj) -> str:
    """What a preference requires and the expanded template does not give; empty when it is enough."""
    required = mapping(preference.get("requirements"))
    domain = mapping(mapping(template.get("spec")).get("domain"))
    cpu = mapping(domain.get("cpu"))
    vcpus = 1
    for name in TOPOLOGY:
        vcpus *= integer(cpu.get(name)) or 1
    wanted = integer(mapping(required.get("cpu")).get("guest"))
    if wanted > vcpus:
        return f"insufficient CPU resources of {vcpus} vCPU, preference requires {wanted} vCPU"
    least = _quantity(mapping(required.get("memory")).get("guest"))
    given = _quantity(mapping(domain.get("memory")).get("guest"))
    if least > given:
        return f"insufficient memory of {given}, preference requires {least}"
    return ""


def apply(instancetype: Obj | None, preference: Obj | None, template: Obj) -> list[str]:
    """Change a VM's template; returns the paths in it that say what the instance type says, too."""
    spec = _child(template, "spec")
    conflicts = _apply_instancetype(instancetype, preference or {}, template, spec) if instancetype is not None else []
    if preference is not None and not conflicts:
        _apply_preference(preference, template, spec)
    return conflicts


def _apply_instancetype(wanted: Obj, preference: Obj, template: Obj, spec: Obj) -> list[str]:
    domain = _child(spec, "domain")
    conflicts = _apply_cpu(mapping(wanted.get("cpu")), _topology_wishes(preference), domain)
    conflicts += _apply_memory(mapping(wanted.get("memory")), domain)
    conflicts += _move(wanted, domain, _DOMAIN, "spec.domain")
    conflicts += _move(wanted, _child(domain, "devices"), _DEVICES, "spec.domain.devices")
    conflicts += _move(wanted, spec, _SPEC, "spec")
    conflicts += _merge(wanted.get("nodeSelector"), spec, "nodeSelector", "spec.nodeSelector")
    conflicts += _merge(wanted.get("annotations"), _child(template, "metadata"), "annotations", "metadata.annotations")
    return conflicts


def _apply_cpu(wanted: Obj, preference: Obj, domain: Obj) -> list[str]:
    cpu = _child(domain, "cpu")
    conflicts = [f"spec.domain.cpu.{name}" for name in TOPOLOGY if integer(cpu.get(name))]
    for source, target in _CPU.items():
        if wanted.get(source) is None:
            continue
        if cpu.get(target):
            conflicts.append(f"spec.domain.cpu.{target}")
        cpu[target] = wanted[source]
    conflicts += _reserved(domain, "cpu")
    cpu.update(topology(integer(wanted.get("guest")), preference))
    return conflicts


def _topology_wishes(preference: Obj) -> Obj:
    """The preference's `cpu`; its ratio may also stand where earlier versions of the API had it."""
    wishes = mapping(preference.get("cpu"))
    ratio = integer(preference.get("preferSpreadSocketToCoreRatio"))
    return {**wishes, "spreadOptions": {"ratio": ratio, **mapping(wishes.get("spreadOptions"))}} if ratio else wishes


def topology(vcpus: int, preference: Obj) -> dict[str, int]:
    """Return sockets, cores and threads of `vcpus` as a preference wants them; sockets where it says nothing."""
    shape = dict.fromkeys(TOPOLOGY, 1)
    kind = text(preference.get("preferredCPUTopology")).removeprefix("prefer").lower()
    if kind == "spread":
        options = mapping(preference.get("spreadOptions"))
        ratio = max(integer(options.get("ratio")) or SPREAD_RATIO, 1)
        return shape | _spread(vcpus, ratio, text(options.get("across")))
    return shape | {kind if kind in TOPOLOGY else "sockets": vcpus}


def _spread(vcpus: int, ratio: int, across: str) -> dict[str, int]:
    match across:
        case "CoresThreads":
            return {"cores": vcpus // 2 or 1, "threads": 2 if vcpus > 1 else 1}
        case "SocketsCoresThreads":
            threads = 2
            cores = ratio
            return {"sockets": vcpus // (cores * threads) or 1, "cores": cores, "threads": threads}
        case _:
            return {"sockets": vcpus // ratio or 1, "cores": ratio}


def _apply_memory(wanted: Obj, domain: Obj) -> list[str]:
    memory = _child(domain, "memory")
    conflicts: list[str] = []
    for name in ("guest", "hugepages", "maxGuest"):
        if wanted.get(name) is None:
            continue
        if memory.get(name) is not None:
            conflicts.append(f"spec.domain.memory.{name}")
        memory[name] = wanted[name]
    conflicts += _reserved(domain, "memory")
    percent = integer(wanted.get("overcommitPercent"))
    if percent and not conflicts:
        requests = _child(_child(domain, "resources"), "requests")
        requests["memory"] = str(_quantity(wanted.get("guest")) * Fraction(100 - percent, 100))
    return conflicts


def _reserved(domain: Obj, resource: str) -> list[str]:
    """Where the template states an amount itself."""
    resources = mapping(domain.get("resources"))
    stated = (name for name in ("requests", "limits") if mapping(resources.get(name)).get(resource) is not None)
    return [f"spec.domain.resources.{name}.{resource}" for name in stated]


def _quantity(value: Any) -> Quantity:
    try:
        return parse_quantity(value) if isinstance(value, str | int) else Quantity.of_bytes(0)
    except QuantityError:
        return Quantity.of_bytes(0)


def _move(source: Obj, target: Obj, names: tuple[str, ...], at: str) -> list[str]:
    conflicts: list[str] = []
    for name in names:
        if not source.get(name):
            continue
        if target.get(name):
            conflicts.append(f"{at}.{name}")
        target[name] = source[name]
    return conflicts


def _merge(wanted: Any, holder: Obj, key: str, at: str) -> list[str]:
    entries = mapping(wanted)
    if not entries:
        return []
    present = mapping(holder.get(key))
    holder[key] = {**present, **entries}
    return [f"{at}.{name}" for name, value in entries.items() if name in present and present[name] != value]


_FILLED: Final[Mapping[str, str]] = {
    "machine.preferredMachineType": "spec.domain.machine.type",
    "preferredArchitecture": "spec.architecture",
    "preferredSubdomain": "spec.subdomain",
    "preferredTerminationGracePeriodSeconds": "spec.terminationGracePeriodSeconds",
    "preferredLaunchSecurity": "spec.domain.launchSecurity",
    "clock.preferredTimer": "spec.domain.clock.timer",
    "cpu.preferredCPUFeatures": "spec.domain.cpu.features",
    "features.preferredAcpi": "spec.domain.features.acpi",
    "features.preferredApic": "spec.domain.features.apic",
    "features.preferredHyperv": "spec.domain.features.hyperv",
    "features.preferredKvm": "spec.domain.features.kvm",
    "features.preferredPvspinlock": "spec.domain.features.pvspinlock",
    "features.preferredSmm": "spec.domain.features.smm",
    "devices.preferredAutoattachGraphicsDevice": "spec.domain.devices.autoattachGraphicsDevice",
    "devices.preferredAutoattachInputDevice": "spec.domain.devices.autoattachInputDevice",
    "devices.preferredAutoattachMemBalloon": "spec.domain.devices.autoattachMemBalloon",
    "devices.preferredAutoattachPodInterface": "spec.domain.devices.autoattachPodInterface",
    "devices.preferredAutoattachSerialConsole": "spec.domain.devices.autoattachSerialConsole",
    "devices.preferredBlockMultiQueue": "spec.domain.devices.blockMultiQueue",
    "devices.preferredDisableHotplug": "spec.domain.devices.disableHotplug",
    "devices.preferredNetworkInterfaceMultiQueue": "spec.domain.devices.networkInterfaceMultiqueue",
    "devices.preferredRng": "spec.domain.devices.rng",
    "devices.preferredTPM": "spec.domain.devices.tpm",
    "devices.preferredUseVirtioTransitional": "spec.domain.devices.useVirtioTransitional",
}
"""Where each wish goes that fills one field; both paths are those of the API."""

_OF_DISKS: Final = {"preferredDiskCache": "cache", "preferredDiskIO": "io", "preferredDiskBlockSize": "blockSize"}
_BUSES: Final = {"disk": "preferredDiskBus", "cdrom": "preferredCdromBus", "lun": "preferredLunBus"}


def _apply_preference(wanted: Obj, template: Obj, spec: Obj) -> None:
    for source, target in _FILLED.items():
        value = _at(wanted, source)
        if value is not None:
            _fill(template, target, value)
    domain, devices = _child(spec, "domain"), mapping(wanted.get("devices"))
    offset = _at(wanted, "clock.preferredClockOffset")
    if offset is not None and not {"utc", "timezone"} & mapping(domain.get("clock")).keys():
        _child(domain, "clock").update(mapping(offset))
    _prefer_firmware(mapping(wanted.get("firmware")), domain)
    _prefer_devices(devices, _child(domain, "devices"))
    annotations = mapping(wanted.get("annotations"))
    if annotations:
        metadata = _child(template, "metadata")
        metadata["annotations"] = {**annotations, **mapping(metadata.get("annotations"))}


def _prefer_firmware(wanted: Obj, domain: Obj) -> None:
    if mapping(domain.get("firmware")).get("bootloader") is not None:
        return
    efi = wanted.get("preferredEfi")
    if efi is None and (wanted.get("preferredUseEfi") or wanted.get("preferredUseSecureBoot")):
        efi = {"secureBoot": bool(wanted.get("preferredUseSecureBoot"))}
    if efi is not None:
        _child(_child(domain, "firmware"), "bootloader")["efi"] = efi
    elif wanted.get("preferredUseBios"):
        serial = {"useSerial": True} if wanted.get("preferredUseBiosSerial") else {}
        _child(_child(domain, "firmware"), "bootloader")["bios"] = serial


def _prefer_devices(wanted: Obj, devices: Obj) -> None:
    for disk in items(devices.get("disks")):
        kind = next((each for each in _BUSES if disk.get(each) is not None), "disk")
        bus = wanted.get(_BUSES[kind])
        if bus is not None and not mapping(disk.get(kind)).get("bus"):
            _child(disk, kind)["bus"] = bus
        for source, target in _OF_DISKS.items():
            if kind == "disk" and wanted.get(source) is not None:
                disk.setdefault(target, wanted[source])
        on_virtio = mapping(disk.get("disk")).get("bus") == "virtio"
        if on_virtio and wanted.get("preferredDiskDedicatedIoThread"):
            disk.setdefault("dedicatedIOThread", True)
    for interface in items(devices.get("interfaces")):
        if wanted.get("preferredInterfaceModel"):
            interface.setdefault("model", wanted["preferredInterfaceModel"])
    for given in items(devices.get("inputs")):
        for source, target in (("preferredInputBus", "bus"), ("preferredInputType", "type")):
            if wanted.get(source):
                given.setdefault(target, wanted[source])
    for key, source, target in (
        ("sound", "preferredSoundModel", "model"),
        ("video", "preferredVideoType", "type"),
    ):
        if wanted.get(source) and key in devices:
            _child(devices, key).setdefault(target, wanted[source])


def _at(obj: Obj, path: str) -> Any:
    *parents, last = path.split(".")
    for step in parents:
        obj = mapping(obj.get(step))
    return obj.get(last)


def _fill(obj: Obj, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for step in parents:
        obj = _child(obj, step)
    if obj.get(last) is None:
        obj[last] = value


def _child(holder: Obj, key: str) -> Obj:
    child = mapping(holder.get(key))
    holder[key] = child
    return child
