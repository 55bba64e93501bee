"""What a machine's pod needs: memory with the overhead by item, CPU, devices, locked memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from anyvisor.api.meta import list_at, object_at
from anyvisor.api.quantity import NANO
from anyvisor.planning import overhead
from anyvisor.planning.manifest import Manifest
from anyvisor.planning.overhead import OverheadModel, Shape
from anyvisor.planning.plan import DeviceCount, Resources
from anyvisor.planning.predicates import number
from anyvisor.planning.values import is_map

MILLIS_PER_SHARED_VCPU: Final = 100
"""CPU request of a virtual CPU that shares its host CPU: ten of them per host CPU (KubeVirt's allocation ratio)."""
VFIO_WINDOW_BYTES: Final = 1 << 30
ACCELERATOR_DEVICES: Final = {"kvm": "devices.kubevirt.io/kvm", "mshv": "devices.kubevirt.io/mshv"}


def whole(value: Any) -> int:
    """A number or quantity as a whole number, rounded up; 0 when it is neither."""
    nanos = number(value)
    return 0 if nanos is None else -(-nanos // NANO)


def millis(value: Any) -> int:
    """The same in thousandths."""
    nanos = number(value)
    return 0 if nanos is None else -(-nanos * 1000 // NANO)


def guest_memory(spec: Mapping[str, Any]) -> int:
    """Bytes that the guest sees: memory.guest, else the pod's own request or limit; 0 = not stated."""
    return (
        whole(object_at(spec, "domain", "memory").get("guest"))
        or whole(object_at(spec, "domain", "resources", "requests").get("memory"))
        or whole(object_at(spec, "domain", "resources", "limits").get("memory"))
    )


def vcpus(spec: Mapping[str, Any]) -> int:
    """Sockets times cores times threads; without any, what the pod's CPU request or limit rounds up to; at least 1."""
    cpu = object_at(spec, "domain", "cpu")
    if any(cpu.get(part) for part in ("sockets", "cores", "threads")):
        return (
            max(whole(cpu.get("sockets")) or 1, 1) * (whole(cpu.get("cores")) or 1) * (whole(cpu.get("threads")) or 1)
        )
    resources = object_at(spec, "domain", "resources")
    asked = object_at(resources, "limits").get("cpu") or object_at(resources, "requests").get("cpu")
    return max(whole(asked), 1)


def shape(spec: Mapping[str, Any], manifest: Manifest, accelerators: Sequence[str] = ()) -> Shape:
    """What of the machine costs memory. `accelerators` are those by which it may come to run."""
    domain = object_at(spec, "domain")
    devices = object_at(domain, "devices")
    firmware = object_at(domain, "firmware")
    kind = "bios"
    if firmware.get("kernelBoot"):
        kind = "kernel"
    if object_at(firmware, "bootloader").get("efi") is not None:
        kind = "uefi"
    tpm = devices.get("tpm")
    passthrough = list_at(devices, "gpus") or list_at(devices, "hostDevices")
    sriov = any(is_map(nic) and nic.get("sriov") is not None for nic in list_at(devices, "interfaces"))
    architecture = spec.get("architecture") or manifest.architectures[0]
    return Shape(
        guest_memory_bytes=guest_memory(spec),
        vcpus=vcpus(spec),
        io_threads=io_threads(domain),
        disks=len(list_at(devices, "disks")),
        nics=len(list_at(devices, "interfaces")),
        displays=0 if devices.get("autoattachGraphicsDevice") is False else 1,
        filesystems=len(list_at(devices, "filesystems")),
        firmware=kind,
        architecture=str(architecture),
        accelerators=tuple(accelerators),
        tpm=is_map(tpm) and tpm.get("enabled") is not False,
        vfio=bool(passthrough) or sriov,
        confidential=bool(object_at(domain, "launchSecurity")),
        dedicated_cpu=object_at(domain, "cpu").get("dedicatedCpuPlacement") is True,
        added_bytes=whole(object_at(domain, "memory", "reservedOverhead").get("addedOverhead")),
        launcher=manifest.launch_mode in ("exec", "resident"),
    )


def io_threads(domain: Mapping[str, Any]) -> int:
    """Threads for disks beside the VMM's own."""
    dedicated = sum(
        1 for disk in list_at(domain, "devices", "disks") if is_map(disk) and disk.get("dedicatedIOThread") is True
    )
    policy = domain.get("ioThreadsPolicy")
    if policy == "supplementalPool":
        return min(whole(object_at(domain, "ioThreads").get("supplementalPoolThreadCount")), 256)
    return dedicated + (1 if policy else 0)


def model_of(manifest: Manifest, hypervisor_class: Mapping[str, Any]) -> OverheadModel:
    """The driver's model, with the numbers that the class sets in its place."""
    override = object_at(hypervisor_class, "spec", "overhead")
    changes: dict[str, Any] = {}
    for ours, theirs in (("fixed", "fixed"), ("per_vcpu", "perVcpu"), ("guest_memory_ratio", "guestMemoryRatio")):
        if override.get(theirs) is not None:
            changes[ours] = str(override[theirs])
    return msgspec.structs.replace(manifest.overhead, **changes) if changes else manifest.overhead


def resources(
    spec: Mapping[str, Any], manifest: Manifest, model: OverheadModel, accelerator: str, possible: Sequence[str] = ()
) -> Resources:
    """The sums. The model must have passed its check. `possible`: what `accelerator` stands for when it is `auto`."""
    what = shape(spec, manifest, possible or (accelerator,))
    items = tuple(overhead.overhead(model, what))
    extra = sum(item.bytes for item in items)
    asked = object_at(spec, "domain", "resources")
    requests, limits = object_at(asked, "requests"), object_at(asked, "limits")
    memory = whole(requests.get("memory")) or what.guest_memory_bytes
    limit = whole(limits.get("memory"))
    overcommits = asked.get("overcommitGuestOverhead") is True
    cpu, cpu_limit = _cpu(spec, what, requests, limits)
    lock = what.vfio or object_at(spec, "domain", "memory", "reservedOverhead").get("memLock") == "Required"
    device = ACCELERATOR_DEVICES.get(accelerator)
    return Resources(
        guest_memory_bytes=what.guest_memory_bytes,
        overhead=items,
        overhead_bytes=extra,
        memory_bytes=memory + (0 if overcommits else extra),
        memory_limit_bytes=limit + extra if limit else 0,
        cpu_millis=cpu,
        cpu_limit_millis=cpu_limit,
        devices=(DeviceCount(resource=device, count=1),) if device else (),
        memory_lock_bytes=what.guest_memory_bytes + (VFIO_WINDOW_BYTES if what.vfio else 0) if lock else 0,
    )


def _cpu(
    spec: Mapping[str, Any], what: Shape, requests: Mapping[str, Any], limits: Mapping[str, Any]
) -> tuple[int, int]:
    if what.dedicated_cpu:
        isolated = object_at(spec, "domain", "cpu").get("isolateEmulatorThread") is True
        count = what.vcpus * 1000 + (1000 if isolated else 0)
        return count, count
    return (
        millis(requests.get("cpu")) or what.vcpus * MILLIS_PER_SHARED_VCPU,
        millis(limits.get("cpu")),
    )
