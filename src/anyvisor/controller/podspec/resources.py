"""Requests and limits of the compute container: what the instance asks for, and the plan's overhead.

The rules are KubeVirt's: an own request counts as it is, else the guest's size; overhead is added to both; a
machine with dedicated CPUs or with the namespace's quota gets limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from anyvisor.api.meta import Json, annotations, list_at, object_at, text_at
from anyvisor.api.quantity import Format, Quantity, QuantityError, parse_quantity
from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec import reservations
from anyvisor.controller.settings import Settings

DEVICE: Final = "devices.kubevirt.io/"
EPHEMERAL_STORAGE: Final = parse_quantity("50M")
"""Of a pod's own: logs and small files."""
PARITY: Final = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
LIMITS_RATIO_LABEL: Final = "alpha.kubevirt.io/auto-memory-limits-ratio"
Amounts = dict[str, Quantity]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What the namespace imposes on pods in it."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    quotas: Sequence[Json] = ()
    network_devices: Mapping[str, int] = field(default_factory=dict[str, int])
    """Device resources that the attached networks stand for, where nobody injects them into the pod."""

    def limits(self, resource: str) -> bool:
        """Whether a quota counts limits of a resource, so that every pod must state one."""
        return any(f"limits.{resource}" in object_at(quota, "spec", "hard") for quota in self.quotas)


def compute_resources(vmi: Json, launch: Launch, settings: Settings, tenancy: Tenancy) -> Json:
    """The `resources` of the compute container."""
    resources = object_at(vmi, "spec", "domain", "resources")
    requests, limits = _amounts(resources, "requests"), _amounts(resources, "limits")
    asked_limits = set(limits)
    requests["ephemeral-storage"] = requests.get("ephemeral-storage", Quantity.of(0)) + EPHEMERAL_STORAGE
    if "ephemeral-storage" in limits:
        limits["ephemeral-storage"] += EPHEMERAL_STORAGE
    _memory_request(vmi, settings, requests, limits)
    derived: tuple[Amounts, Amounts] = ({}, {})
    if object_at(vmi, "spec", "domain", "cpu").get("dedicatedCpuPlacement") is True:
        _dedicated_cpu(vmi, requests, limits)
    else:
        _shared_cpu(vmi, settings, tenancy, derived, asked_limits)
    if "hugepages" in object_at(vmi, "spec", "domain", "memory"):
        _huge_pages(vmi, launch, requests, limits, derived)
    else:
        _overhead(resources, launch, requests, limits)
    if tenancy.limits("memory") and "memory" not in asked_limits:
        derived[1]["memory"] = requests["memory"] * _limits_ratio(tenancy)
    counted = _counted_devices(vmi, settings)
    counted |= {key: Quantity.of(count) for key, count in tenancy.network_devices.items()}
    limits |= _device_limits(vmi, launch)
    found: Json = {
        "requests": _texts({**derived[0], **counted, **requests}),
        "limits": _texts({**derived[1], **counted, **limits}),
    }
    claims = _claims(vmi, settings)
    return {**found, "claims": claims} if claims else found


def _amounts(resources: Json, kind: str) -> Amounts:
    return {key: parse_quantity(value) for key, value in object_at(resources, kind).items()}


def _texts(amounts: Amounts) -> dict[str, str]:
    return {key: str(value) for key, value in sorted(amounts.items())}


def _guest_memory(vmi: Json) -> Quantity | None:
    memory = object_at(vmi, "spec", "domain", "memory")
    size = memory.get("guest") or object_at(memory, "hugepages").get("pageSize")
    try:
        return parse_quantity(size) if size else None
    except QuantityError:
        return None


def _memory_request(vmi: Json, settings: Settings, requests: Amounts, limits: Amounts) -> None:
    if not requests.get("memory") and limits.get("memory"):
        requests["memory"] = limits["memory"]
    size = _guest_memory(vmi)
    if "memory" in requests or size is None:
        return
    amount = Fraction(size.value) / settings.memory_overcommit
    requests["memory"] = Quantity.of(amount.numerator // amount.denominator, size.format)


def vcpus(vmi: Json) -> int:
    """The guest's CPUs; 1 when the instance states none."""
    cpu = object_at(vmi, "spec", "domain", "cpu")
    count = 1
    for part in ("cores", "sockets", "threads"):
        count *= cpu.get(part) or 1
    return count


def _io_threads(vmi: Json) -> int:
    return object_at(vmi, "spec", "domain", "ioThreads").get("supplementalPoolThreadCount") or 0


def _states_topology(vmi: Json) -> bool:
    cpu = object_at(vmi, "spec", "domain", "cpu")
    return any(cpu.get(part) for part in ("cores", "sockets", "threads"))


def _shared_cpu(
    vmi: Json, settings: Settings, tenancy: Tenancy, derived: tuple[Amounts, Amounts], asked_limits: set[str]
) -> None:
    cpus = vcpus(vmi) + _io_threads(vmi)
    derived[0]["cpu"] = Quantity.of(Fraction(cpus, settings.cpu_allocation_ratio))
    if "cpu" not in asked_limits and _wants_cpu_limit(settings, tenancy):
        derived[1]["cpu"] = Quantity.of(cpus)


def _wants_cpu_limit(settings: Settings, tenancy: Tenancy) -> bool:
    if tenancy.limits("cpu"):
        return True
    selector = settings.config.get("autoCPULimitNamespaceLabelSelector")
    return isinstance(selector, dict) and _selects(object_at({"s": selector}, "s"), tenancy.labels)


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    if not object_at(selector, "matchLabels").items() <= dict(labels).items():
        return False
    return all(_holds(one, labels) for one in list_at(selector, "matchExpressions"))


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    value = labels.get(str(requirement.get("key", "")))
    match requirement.get("operator"):
        case "In":
            return value in list_at(requirement, "values")
        case "NotIn":
            return value not in list_at(requirement, "values")
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def _dedicated_cpu(vmi: Json, requests: Amounts, limits: Amounts) -> None:
    """Whole CPUs, with limits equal to requests, since the CPU manager pins only those."""
    extra = _io_threads(vmi)
    if _states_topology(vmi):
        requests["cpu"] = limits["cpu"] = Quantity.of(vcpus(vmi) + extra)
    else:
        for amounts in (requests, limits):
            if "cpu" in amounts:
                amounts["cpu"] += Quantity.of(extra)
    if object_at(vmi, "spec", "domain", "cpu").get("isolateEmulatorThread") is True:
        _emulator_thread(vmi, requests, limits)
    if "memory" in requests:
        limits["memory"] = requests["memory"]


def _emulator_thread(vmi: Json, requests: Amounts, limits: Amounts) -> None:
    present = limits.get("cpu", Quantity.of(0))
    pool = text_at(vmi, "spec", "domain", "ioThreadsPolicy") == "supplementalPool"
    total = present.value + (_io_threads(vmi) if pool else 0)
    added = Quantity.of(2 if PARITY in annotations(vmi) and total % 2 == 0 else 1)
    limits["cpu"] = present + added
    if "cpu" in requests:
        requests["cpu"] += added


def _huge_pages(
    vmi: Json, launch: Launch, requests: Amounts, limits: Amounts, derived: tuple[Amounts, Amounts]
) -> None:
    """The guest's memory comes from huge pages; ordinary memory is the overhead and what exceeds the guest."""
    memory = object_at(vmi, "spec", "domain", "memory")
    name = f"hugepages-{object_at(memory, 'hugepages').get('pageSize')}"
    guest = _guest_memory(vmi) if memory.get("guest") else None
    request = requests.get("memory", Quantity.of_bytes(0))
    pages = guest if guest is not None and request > guest else request
    derived[0][name] = derived[1][name] = pages
    overhead = Quantity.of_bytes(launch.overhead_bytes)
    requests["memory"] = _above(request, guest) + overhead
    if "memory" in limits:
        limits["memory"] = _above(limits["memory"], guest) + overhead


def _above(amount: Quantity, guest: Quantity | None) -> Quantity:
    return amount - guest if guest is not None and amount > guest else Quantity.of_bytes(0)


def _overhead(resources: Json, launch: Launch, requests: Amounts, limits: Amounts) -> None:
    overhead = Quantity.of_bytes(launch.overhead_bytes)
    if resources.get("overcommitGuestOverhead") is not True:
        requests["memory"] = requests.get("memory", Quantity.of_bytes(0)) + overhead
    if "memory" in limits:
        limits["memory"] += overhead


def _limits_ratio(tenancy: Tenancy) -> Fraction:
    try:
        ratio = Fraction(tenancy.labels.get(LIMITS_RATIO_LABEL, "2"))
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(2)
    return ratio if ratio >= 1 else Fraction(2)


def _device_limits(vmi: Json, launch: Launch) -> Amounts:
    """Devices that every such machine takes; they are no part of what the user asked for."""
    devices = object_at(vmi, "spec", "domain", "devices")
    interfaces = list_at(devices, "interfaces")
    found = {name: Quantity.of(count) for name, count in launch.devices.items()}
    if interfaces or devices.get("autoattachPodInterface") is not False:
        found[f"{DEVICE}tun"] = Quantity.of(1)
    virtio = any(one.get("model") in {None, "", "virtio"} for one in interfaces)
    if virtio and not launch.emulation:
        found[f"{DEVICE}vhost-net"] = Quantity.of(1)
    if devices.get("autoattachVSOCK") is True:
        found[f"{DEVICE}vhost-vsock"] = Quantity.of(1)
    return found


def _counted_devices(vmi: Json, settings: Settings) -> Amounts:
    """Devices that are asked for one by one, with requests equal to limits."""
    devices = object_at(vmi, "spec", "domain", "devices")
    names = [
        str(one["deviceName"])
        for kind in ("gpus", "hostDevices")
        for one in list_at(devices, kind)
        if one.get("deviceName") and not one.get("claimName")
    ]
    security = object_at(vmi, "spec", "domain", "launchSecurity")
    kinds = set(security) if security else set(object_at(vmi, "spec", "domain").get("launchSecurity") or {})
    if kinds & {"sev", "snp"}:
        names.append(f"{DEVICE}sev")
    if "tdx" in kinds:
        names.append(f"{DEVICE}tdx")
    if settings.gate("IOMMUFD"):
        names.append(f"{DEVICE}iommufd")
    if reservations.is_asked_for(vmi):
        names.append(f"{DEVICE}pr-helper")
    return {name: Quantity.of(names.count(name), Format.DECIMAL_SI) for name in names}


def _claims(vmi: Json, settings: Settings) -> list[Json]:
    """Devices that dynamic resource allocation provides."""
    devices = object_at(vmi, "spec", "domain", "devices")
    networks = [object_at(one, "resourceClaim") for one in list_at(vmi, "spec", "networks")]
    gated = {
        "GPUsWithDRA": [one for one in list_at(devices, "gpus") if not one.get("deviceName")],
        "HostDevicesWithDRA": [one for one in list_at(devices, "hostDevices") if not one.get("deviceName")],
        "NetworkDevicesWithDRA": networks,
    }
    return [
        {"name": one["claimName"], "request": one.get("requestName", "")}
        for gate, wanted in gated.items()
        if settings.gate(gate)
        for one in wanted
        if one.get("claimName")
    ]
