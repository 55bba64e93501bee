"""Defaults of a VMI spec: what a VMI gets in full, and what a VM's template is checked with."""

from anyvisor.admission import quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.defaults.features import fill_clock, fill_features, fill_needs
from anyvisor.admission.defaults.filler import BUILT_IN, Filler, child
from anyvisor.admission.rules.cpu import memory_growth_problem
from anyvisor.admission.values import Obj, integer, items, mapping, text
from anyvisor.admission.view import Spec

_TOPOLOGY = ("cores", "sockets", "threads")
_PROBE = (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3))
_BUSES = {"arm64": "virtio", "s390x": "virtio"}
_WATCHDOGS = {"amd64": "i6300esb", "s390x": "diag288"}
_KINDS = ("disk", "cdrom", "lun")
_MAX_VCPUS = 512


def fill_common(spec: Obj, at: str, config: ClusterConfig, filler: Filler) -> str:
    """The defaults without which a spec cannot be checked; gives a sentence when none can be chosen."""
    fill_architecture(spec, at, config, filler)
    domain = child(spec, "domain")
    where = f"{at}.domain"
    fill_machine(spec, at, config, filler)
    _fill_requests(domain, where, config, filler)
    _fill_guest_memory(domain, where, filler)
    _fill_topology(domain, where, filler)
    _fill_volumes(spec, at, filler)
    if spec.get("evictionStrategy") is None:
        filler.set(spec, "evictionStrategy", config.eviction_strategy.value, at, config.eviction_strategy.source)
    problem = _fill_network(spec, at, config, filler)
    if not problem:
        _fill_disks_of_volumes(spec, at, filler)
    return problem


def fill_architecture(spec: Obj, at: str, config: ClusterConfig, filler: Filler) -> None:
    """The cluster's architecture."""
    if not text(spec.get("architecture")):
        filler.set(spec, "architecture", config.architecture, at, "the cluster's architecture")


def fill_machine(spec: Obj, at: str, config: ClusterConfig, filler: Filler) -> None:
    """The cluster's machine type for the architecture."""
    machine = child(child(spec, "domain"), "machine")
    if not text(machine.get("type")):
        default = config.machine_type(text(spec.get("architecture")))
        filler.set(machine, "type", default.value, f"{at}.domain.machine", default.source)


def _fill_requests(domain: Obj, at: str, config: ClusterConfig, filler: Filler) -> None:
    resources = mapping(domain.get("resources"))
    limit = mapping(resources.get("limits")).get("cpu")
    request = mapping(resources.get("requests")).get("cpu")
    where, dedicated = f"{at}.resources.requests", mapping(domain.get("cpu")).get("dedicatedCpuPlacement") is True
    if quantity.nanos(limit) and not quantity.nanos(request):
        filler.set(_requests(domain), "cpu", limit, where, f"{at}.resources.limits.cpu")
    elif (default := config.cpu_request) is not None and request is None and not dedicated:
        filler.set(_requests(domain), "cpu", default.value, where, default.source)


def _requests(domain: Obj) -> Obj:
    return child(child(domain, "resources"), "requests")


def _fill_guest_memory(domain: Obj, at: str, filler: Filler) -> None:
    memory = mapping(domain.get("memory"))
    if memory.get("guest") is not None:
        return
    resources = mapping(domain.get("resources"))
    page = mapping(memory.get("hugepages")).get("pageSize")
    for written, source in (
        (mapping(resources.get("requests")).get("memory"), f"{at}.resources.requests.memory"),
        (mapping(resources.get("limits")).get("memory"), f"{at}.resources.limits.memory"),
        (page, f"{at}.memory.hugepages.pageSize"),
    ):
        if quantity.nanos(written):
            filler.set(child(domain, "memory"), "guest", written, f"{at}.memory", source)
            return


def _fill_topology(domain: Obj, at: str, filler: Filler) -> None:
    if any(integer(mapping(domain.get("cpu")).get(name)) for name in _TOPOLOGY):
        return
    resources = mapping(domain.get("resources"))
    sockets, source = 1, BUILT_IN
    for name in ("limits", "requests"):
        written = mapping(resources.get(name)).get("cpu")
        if written is not None:
            sockets, source = max(quantity.value(written), 0), f"{at}.resources.{name}.cpu"
            break
    cpu = child(domain, "cpu")
    filler.set(cpu, "sockets", sockets, f"{at}.cpu", source)
    filler.set(cpu, "cores", 1, f"{at}.cpu")
    filler.set(cpu, "threads", 1, f"{at}.cpu")


def fill_host_disks(spec: Obj, at: str, filler: Filler) -> None:
    """A host disk without a capacity has the one of its file."""
    for index, volume in enumerate(items(spec.get("volumes"))):
        if type(volume.get("hostDisk")) is dict:
            filler.default(mapping(volume["hostDisk"]), "capacity", "0", f"{at}.volumes[{index}].hostDisk")


def _fill_volumes(spec: Obj, at: str, filler: Filler) -> None:
    fill_host_disks(spec, at, filler)
    for index, volume in enumerate(items(spec.get("volumes"))):
        if volume.get("containerDisk") is None:
            continue
        disk = mapping(volume["containerDisk"])
        if text(disk.get("imagePullPolicy")):
            continue
        image = text(disk.get("image"))
        moving = image.endswith(":latest") or not (":" in image or "@" in image)
        policy = "Always" if moving else "IfNotPresent"
        filler.set(disk, "imagePullPolicy", policy, f"{at}.volumes[{index}].containerDisk", "the tag of the image")


def _fill_network(spec: Obj, at: str, config: ClusterConfig, filler: Filler) -> str:
    devices = mapping(mapping(spec.get("domain")).get("devices"))
    if devices.get("autoattachPodInterface") is False or spec.get("networks") or devices.get("interfaces"):
        return ""
    default = config.network_interface
    if default.value == "slirp":
        return (
            f"{at}: the cluster's default network interface is slirp, which is gone since v1.3; "
            "set network.defaultNetworkInterface to masquerade or bridge, or name the interfaces of this guest"
        )
    if default.value == "bridge" and not config.bridge_on_pod_network:
        return (
            f"{at}: the cluster's default network interface is a bridge, which it does not permit on the pod network; "
            "set network.defaultNetworkInterface to masquerade, or name the interfaces of this guest"
        )
    devices = child(child(spec, "domain"), "devices")
    interface = {"name": "default", default.value: dict[str, object]()}
    filler.set(devices, "interfaces", [interface], f"{at}.domain.devices", default.source)
    filler.set(spec, "networks", [{"name": "default", "pod": dict[str, object]()}], at, default.source)
    return ""


def _fill_disks_of_volumes(spec: Obj, at: str, filler: Filler) -> None:
    volumes = items(spec.get("volumes"))
    if not volumes:
        return
    devices = child(child(spec, "domain"), "devices")
    disks = items(devices.get("disks"))
    shown = {text(device.get("name")) for device in (*disks, *items(devices.get("filesystems")))}
    added = [{"name": text(volume.get("name"))} for volume in volumes if text(volume.get("name")) not in shown]
    if added:
        filler.set(devices, "disks", [*disks, *added], f"{at}.domain.devices", f"volumes without a disk ({len(added)})")


def fill_instance(spec: Obj, at: str, config: ClusterConfig, filler: Filler, firmware_uuid: str) -> None:
    """The defaults that a VMI gets beyond the common ones."""
    domain, where = child(spec, "domain"), f"{at}.domain"
    arch = text(spec.get("architecture"))
    firmware = child(domain, "firmware")
    if not text(firmware.get("uuid")):
        filler.set(firmware, "uuid", firmware_uuid, f"{where}.firmware", "random")
    fill_clock(domain, where, filler)
    fill_features(domain, where, filler, acpi=arch != "s390x")
    fill_needs(domain, where, filler)
    _fill_devices(mapping(domain.get("devices")), f"{where}.devices", arch, filler)
    for probe in ("readinessProbe", "livenessProbe"):
        if type(spec.get(probe)) is dict:
            for name, value in _PROBE:
                if integer(mapping(spec[probe]).get(name)) < 1:
                    filler.set(mapping(spec[probe]), name, value, f"{at}.{probe}")
    if arch == "arm64":
        _fill_arm64(domain, where, filler)
    cpu = child(domain, "cpu")
    if not text(cpu.get("model")):
        filler.set(cpu, "model", config.cpu_model.value, f"{where}.cpu", config.cpu_model.source)
    if arch != "arm64" and config.live_update:
        _fill_growth(spec, at, config, filler)


def _fill_devices(devices: Obj, at: str, arch: str, filler: Filler) -> None:
    bus = _BUSES.get(arch, "sata")
    for index, disk in enumerate(items(devices.get("disks"))):
        _fill_disk(disk, f"{at}.disks[{index}]", bus, filler)
    for index, device in enumerate(items(devices.get("inputs"))):
        for key, value in (("bus", "usb"), ("type", "tablet")):
            if not text(device.get(key)):
                filler.set(device, key, value, f"{at}.inputs[{index}]")
    for index, gpu in enumerate(items(devices.get("gpus"))):
        buffer = mapping(mapping(gpu.get("virtualGPUOptions")).get("display")).get("ramFB")
        if type(buffer) is dict:
            filler.default(mapping(buffer), "enabled", True, f"{at}.gpus[{index}].virtualGPUOptions.display.ramFB")
    # An architecture without a watchdog of its own gets the one of amd64, as everywhere in this API.
    watchdog = _WATCHDOGS.get(arch, "" if arch == "arm64" else "i6300esb")
    if watchdog and type(devices.get("watchdog")) is dict:
        device = child(mapping(devices["watchdog"]), watchdog)
        if not text(device.get("action")):
            filler.set(device, "action", "reset", f"{at}.watchdog.{watchdog}")


def _fill_disk(disk: Obj, at: str, bus: str, filler: Filler) -> None:
    if all(disk.get(kind) is None for kind in _KINDS):
        filler.set(disk, "disk", {}, at)
    for kind in _KINDS:
        if type(disk.get(kind)) is dict and not text(mapping(disk[kind]).get("bus")):
            # A CD-ROM cannot be on virtio.
            suitable = "scsi" if kind == "cdrom" and bus == "virtio" else bus
            filler.set(mapping(disk[kind]), "bus", suitable, f"{at}.{kind}")
    if type(disk.get("cdrom")) is dict:
        filler.default(mapping(disk["cdrom"]), "readonly", True, f"{at}.cdrom")
        if not text(mapping(disk["cdrom"]).get("tray")):
            filler.set(mapping(disk["cdrom"]), "tray", "closed", f"{at}.cdrom")
    matched = mapping(disk.get("blockSize")).get("matchVolume")
    if type(matched) is dict:
        filler.default(mapping(matched), "enabled", True, f"{at}.blockSize.matchVolume")


def _fill_arm64(domain: Obj, at: str, filler: Filler) -> None:
    cpu = child(domain, "cpu")
    if not text(cpu.get("model")):
        filler.set(cpu, "model", "host-passthrough", f"{at}.cpu", "the only CPU model on arm64")
    firmware = child(domain, "firmware")
    if firmware.get("bootloader") is None:
        filler.set(firmware, "bootloader", {"efi": dict[str, object]()}, f"{at}.firmware", "arm64 machines boot by EFI")
    efi = mapping(firmware["bootloader"]).get("efi")
    if type(efi) is dict:
        filler.default(mapping(efi), "secureBoot", False, f"{at}.firmware.bootloader.efi")


def _fill_growth(spec: Obj, at: str, config: ClusterConfig, filler: Filler) -> None:
    """How far CPUs and memory may grow while the guest runs."""
    domain, where = child(spec, "domain"), f"{at}.domain"
    cpu = child(domain, "cpu")
    if not integer(cpu.get("maxSockets")):
        _fill_max_sockets(cpu, f"{where}.cpu", config, filler)
    memory = mapping(domain.get("memory"))
    if memory.get("maxGuest") is not None or memory.get("guest") is None:
        return
    limit, source = config.max_guest, "cluster configuration liveUpdateConfiguration.maxGuest"
    if limit is None:
        limit = quantity.binary(quantity.value(memory["guest"]) * config.max_hotplug_ratio)
        source = f"{where}.memory.guest times {config.max_hotplug_ratio}"
    if not memory_growth_problem(Spec.of(spec, at), limit):
        filler.set(memory, "maxGuest", limit, f"{where}.memory", source)


def _fill_max_sockets(cpu: Obj, at: str, config: ClusterConfig, filler: Filler) -> None:
    sockets = max(integer(cpu.get("sockets")), 0)
    if config.max_sockets:
        source = "cluster configuration liveUpdateConfiguration.maxCpuSockets"
        filler.set(cpu, "maxSockets", max(config.max_sockets, sockets), at, source)
        return
    limit = sockets * config.max_hotplug_ratio
    per_socket = max(integer(cpu.get("cores")), 0) * max(integer(cpu.get("threads")), 0)
    if limit * per_socket > _MAX_VCPUS:
        limit = max(_MAX_VCPUS // per_socket, sockets)
    if limit:
        filler.set(
            cpu, "maxSockets", limit, at, f"{at}.sockets times {config.max_hotplug_ratio}, at most {_MAX_VCPUS} CPUs"
        )
