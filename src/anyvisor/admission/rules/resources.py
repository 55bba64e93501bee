"""Rules for memory and CPU resources, hugepages and the machine type."""

from fnmatch import fnmatchcase

from anyvisor.admission import quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import items, mapping, shown, text
from anyvisor.admission.view import Spec

_SMALLEST_REQUEST = 10**6 * quantity.NANO


def memory(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The memory request and limit: not negative, not tiny, the request not above the limit."""
    del config
    request, limit = quantity.nanos(spec.requests.get("memory")), quantity.nanos(spec.limits.get("memory"))
    at = f"{spec.at}.domain.resources.requests.memory"
    if request < 0:
        out.invalid(at, f"{at} is {spec.requests['memory']}; memory cannot be negative: give at least 1M")
    elif 0 < request < _SMALLEST_REQUEST:
        out.invalid(at, f"{at} is {spec.requests['memory']}; it must be at least 1M (did you mean Mi or Gi?)")
    limit_at = f"{spec.at}.domain.resources.limits.memory"
    if limit < 0:
        out.invalid(
            limit_at, f"{limit_at} is {spec.limits['memory']}; memory cannot be negative: raise it or remove it"
        )
    if limit > 0 and quantity.value(spec.requests.get("memory")) > quantity.value(spec.limits.get("memory")):
        out.invalid(
            at,
            f"{at} ({spec.requests['memory']}) is more than {limit_at} ({spec.limits['memory']}); "
            "lower the request or raise the limit",
        )


def hugepages(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Guest memory on hugepages must be a whole number of pages."""
    del config
    if spec.memory.get("hugepages") is None:
        return
    written = mapping(spec.memory["hugepages"]).get("pageSize")
    page_at = f"{spec.at}.domain.memory.hugepages.pageSize"
    page = quantity.value(written)
    if page <= 0:
        out.invalid(page_at, f"{page_at} is {shown(written)}; it must be the size of a page, such as 2Mi or 1Gi")
        return
    at = f"{spec.at}.domain.resources.requests.memory"
    asked = (spec.requests.get("memory"), spec.memory.get("guest"), spec.limits.get("memory"))
    amount = next((size for size in map(quantity.value, asked) if size), 0)
    if amount == 0 and spec.memory.get("guest") is None:
        out.required(
            f"{spec.at}.domain.memory.guest",
            f"{page_at} is set but no memory size; set {spec.at}.domain.memory.guest to a multiple of {written}",
        )
    elif amount and amount < page:
        out.invalid(at, f"{at}: the memory of {amount} bytes is less than one page of {written}; ask for at least one")
    elif amount % page:
        out.invalid(at, f"{at}: the memory of {amount} bytes is not a multiple of the page size {written}; round it")


def guest_memory(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Guest memory is not negative. It fits the limit unless changes roll out live, when the limit is derived anew."""
    guest = spec.memory.get("guest")
    for name in ("guest", "maxGuest"):
        if quantity.nanos(spec.memory.get(name)) < 0:
            at = f"{spec.at}.domain.memory.{name}"
            out.invalid(at, f"{at} is {spec.memory[name]}; memory cannot be negative: give the guest's size, as 1Gi")
            return
    if config.live_update or guest is None:
        return
    limit = quantity.value(spec.limits.get("memory"))
    if limit and limit < quantity.value(guest):
        at = f"{spec.at}.domain.memory.guest"
        out.invalid(
            at,
            f"{at} ({guest}) is more than the limit {spec.at}.domain.resources.limits.memory "
            f"({spec.limits['memory']}); lower the guest's memory or raise the limit",
        )


def machine_type(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The machine type must match one of the patterns that the cluster allows."""
    machine = text(mapping(spec.domain.get("machine")).get("type"))
    if not machine:
        return
    allowed = config.emulated_machines(spec.architecture)
    if not any(fnmatchcase(machine, pattern) for pattern in allowed):
        at = f"{spec.at}.domain.machine.type"
        out.invalid(
            at,
            f"{at} {machine!r} is not allowed on {spec.architecture or config.architecture}; "
            f"use one that matches {', '.join(allowed)}, or leave it out for the cluster's default",
        )


def cpu(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The CPU request and limit: not negative, the request not above the limit."""
    del config
    request, limit = quantity.milli(spec.requests.get("cpu")), quantity.milli(spec.limits.get("cpu"))
    at, limit_at = f"{spec.at}.domain.resources.requests.cpu", f"{spec.at}.domain.resources.limits.cpu"
    if request < 0:
        out.invalid(at, f"{at} is {spec.requests['cpu']}; it cannot be negative: raise it or remove it")
    if limit < 0:
        out.invalid(limit_at, f"{limit_at} is {spec.limits['cpu']}; it cannot be negative: raise it or remove it")
    if 0 < limit < request:
        out.invalid(
            at,
            f"{at} ({spec.requests['cpu']}) is more than {limit_at} ({spec.limits['cpu']}); "
            "lower the request or raise the limit",
        )


def reserved_overhead(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Reserved memory overhead needs its gate."""
    if spec.memory.get("reservedOverhead") is not None and not config.on("ReservedOverheadMemlock"):
        at = f"{spec.at}.domain.memory.reservedOverhead"
        out.invalid(at, f"{at} needs the feature gate ReservedOverheadMemlock; enable it or remove the field")


def acpi_tables(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """ACPI tables come from Secret volumes of the same VM."""
    del config
    firmware = mapping(spec.domain.get("firmware"))
    if firmware.get("acpi") is None:
        return
    acpi = mapping(firmware["acpi"])
    at, real = f"{spec.at}.acpi", f"{spec.at}.domain.firmware.acpi"
    references = [(name, text(acpi.get(name))) for name in ("slicNameRef", "msdmNameRef")]
    if not any(volume for _, volume in references):
        out.invalid(at, f"{real} names no table; set slicNameRef or msdmNameRef to the name of a Secret volume", real)
        return
    sources = {text(volume.get("name")): volume for volume in reversed(items(spec.raw.get("volumes")))}
    for name, volume in references:
        if not volume:
            continue
        if volume not in sources:
            out.invalid(
                f"{at}.{name}", f"{real}.{name} names {volume!r}, and there is no such volume; add it", f"{real}.{name}"
            )
        elif sources[volume].get("secret") is None:
            out.invalid(
                f"{at}.{name}",
                f"{real}.{name} names the volume {volume!r}, which is no Secret; use a volume with a secret source",
                f"{real}.{name}",
            )
