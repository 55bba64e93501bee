"""Rules for the guest's CPUs: topology, dedicated placement, NUMA, realtime, features, growth."""

from anyvisor.admission import quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.values import integer, items, mapping, shown, text
from anyvisor.admission.view import Spec

FEATURE_POLICIES = ("", "force", "require", "optional", "disable", "forbid")
_ALIGNMENT = 2 << 20
_ALIGNMENT_1GI = 1 << 30
_SMALLEST_GROWING_GUEST = 1 << 30
_MAX_THREADS_DEDICATED = 2


def vcpus(cpu: dict[str, object]) -> int:
    """The number of guest CPUs; a count that is not given does not multiply."""
    total = 0
    for name in ("cores", "sockets", "threads"):
        count = integer(cpu.get(name))
        if count:
            total = total * count if total else count
    return total


def dedicated(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Dedicated CPUs: whole numbers, requests equal to limits, sizes that agree."""
    if spec.cpu.get("dedicatedCpuPlacement") is not True:
        return
    _dedicated_memory(spec, out)
    _dedicated_counts(spec, out)
    threads = integer(spec.cpu.get("threads"))
    if threads > 1 and (spec.architecture or config.architecture) == "arm64":
        out.invalid(
            f"{spec.at}.architecture",
            f"{spec.at}.domain.cpu.threads is {threads}, but arm64 has one thread per core; set it to 1",
            f"{spec.at}.domain.cpu.threads",
        )
    if threads > _MAX_THREADS_DEDICATED:
        out.invalid(
            f"{spec.at}.domain.cpu.dedicatedCpuPlacement",
            f"{spec.at}.domain.cpu.threads is {threads}; dedicated CPUs allow at most 2 threads per core",
            f"{spec.at}.domain.cpu.threads",
        )


def _dedicated_memory(spec: Spec, out: Causes) -> None:
    request, limit = quantity.value(spec.requests.get("memory")), quantity.value(spec.limits.get("memory"))
    resources = f"{spec.at}.domain.resources"
    said = (
        quantity.nanos(spec.limits.get("memory"))
        or quantity.nanos(spec.requests.get("memory"))
        or spec.memory.get("hugepages") is not None
        or quantity.nanos(spec.memory.get("guest"))
    )
    if not said:
        out.invalid(
            f"{resources}.limits.memory",
            f"dedicated CPUs need a memory size; set {spec.at}.domain.memory.guest",
            f"{spec.at}.domain.memory.guest",
        )
    if request > 0 and limit > 0 and request != limit:
        out.invalid(
            f"{resources}.requests.memory",
            f"with dedicated CPUs {resources}.requests.memory and {resources}.limits.memory must be equal",
        )


def _dedicated_counts(spec: Spec, out: Causes) -> None:
    resources, at = f"{spec.at}.domain.resources", f"{spec.at}.domain.cpu.dedicatedCpuPlacement"
    counts = {"requests": spec.requests.get("cpu"), "limits": spec.limits.get("cpu")}
    for name, written in counts.items():
        whole = quantity.value(written)
        if whole > 0 and whole * 1000 != quantity.milli(written):
            out.invalid(
                f"{resources}.{name}.cpu",
                f"{resources}.{name}.cpu is {written}; dedicated CPUs come whole: give an integer",
            )
    request, limit = quantity.value(counts["requests"]), quantity.value(counts["limits"])
    guest = vcpus(spec.cpu)
    if request == 0 and limit == 0 and guest == 0:
        out.invalid(at, f"{at} needs a number of CPUs; set {spec.at}.domain.cpu.cores")
    if request > 0 and limit > 0 and request != limit:
        out.invalid(at, f"with {at} the CPU request ({request}) and limit ({limit}) must be equal")
    if (request > 0 or limit > 0) and guest > 0 and guest not in (request, limit):
        out.invalid(
            at,
            f"{at}: the guest has {guest} CPUs, but the resources ask for {request or limit}; "
            "make them equal or leave the resources out",
        )


def numa(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Passing NUMA cells through needs dedicated CPUs and hugepages."""
    del config
    if mapping(spec.cpu.get("numa")).get("guestMappingPassthrough") is None:
        return
    at = f"{spec.at}.domain.cpu.numa.guestMappingPassthrough"
    if spec.cpu.get("dedicatedCpuPlacement") is not True:
        out.invalid(at, f"{at} needs dedicated CPUs; set {spec.at}.domain.cpu.dedicatedCpuPlacement to true")
    if spec.memory.get("hugepages") is None:
        out.invalid(at, f"{at} needs hugepages; set {spec.at}.domain.memory.hugepages.pageSize")


def isolated_emulator(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """A CPU of its own for the emulator needs dedicated CPUs."""
    del config
    if spec.cpu.get("isolateEmulatorThread") is True and spec.cpu.get("dedicatedCpuPlacement") is not True:
        at = f"{spec.at}.domain.cpu.isolateEmulatorThread"
        out.invalid(at, f"{at} has no meaning without dedicated CPUs; set dedicatedCpuPlacement or remove it")


def features(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """CPU features: a known policy."""
    del config
    for index, feature in enumerate(items(spec.cpu.get("features"))):
        policy = text(feature.get("policy"))
        if policy not in FEATURE_POLICIES:
            at = f"{spec.at}.domain.cpu.features[{index}].policy"
            out.unsupported(at, f"{at} is {policy!r}; use one of {', '.join(FEATURE_POLICIES[1:])}")


def sockets(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The sockets at boot must not be more than those to grow to."""
    del config
    limit, now = integer(spec.cpu.get("maxSockets")), integer(spec.cpu.get("sockets"))
    if limit and now > limit:
        at = f"{spec.at}.domain.cpu.sockets"
        out.invalid(at, f"{at} ({now}) is more than maxSockets ({limit}); lower it or raise maxSockets")


def realtime(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Realtime guests need dedicated CPUs and their NUMA cells."""
    del config
    if spec.cpu.get("realtime") is None:
        return
    at = f"{spec.at}.domain.cpu"
    if spec.cpu.get("dedicatedCpuPlacement") is not True:
        out.required(f"{at}.dedicatedCpuPlacement", f"{at}.realtime needs {at}.dedicatedCpuPlacement: true")
    if mapping(spec.cpu.get("numa")).get("guestMappingPassthrough") is None:
        out.required(
            f"{at}.numa.guestMappingPassthrough", f"{at}.realtime needs {at}.numa.guestMappingPassthrough: {{}}"
        )


def memory_growth_problem(spec: Spec, max_guest: object) -> str:
    """Why guest memory cannot grow to `max_guest` while running; empty when it can."""
    if spec.cpu.get("realtime") is not None:
        return "the memory of realtime guests cannot grow"
    if mapping(spec.cpu.get("numa")).get("guestMappingPassthrough") is not None:
        return "memory with NUMA passthrough cannot grow"
    if spec.domain.get("launchSecurity") is not None:
        return "encrypted memory cannot grow"
    guest = spec.memory.get("guest")
    if guest is None:
        return "the guest's memory at boot is not given"
    if max_guest is None:
        return "the size to grow to is not given"
    return _size_problem(spec, guest, max_guest)


def _size_problem(spec: Spec, guest: object, max_guest: object) -> str:
    huge = mapping(spec.memory.get("hugepages")).get("pageSize") == "1Gi"
    alignment = _ALIGNMENT_1GI if huge else _ALIGNMENT
    if quantity.nanos(guest) > quantity.nanos(max_guest):
        return f"the memory at boot ({shown(guest)}) is more than maxGuest ({shown(max_guest)})"
    if quantity.value(guest) % alignment:
        return f"the memory at boot ({shown(guest)}) is not a multiple of {quantity.binary(alignment)}"
    if quantity.value(max_guest) % alignment:
        return f"maxGuest ({shown(max_guest)}) is not a multiple of {quantity.binary(alignment)}"
    if spec.architecture != "amd64":
        return f"memory can grow on amd64 only, not on {spec.architecture or 'this architecture'}"
    if quantity.value(guest) < _SMALLEST_GROWING_GUEST:
        return f"the memory at boot ({shown(guest)}) is less than 1Gi"
    return ""
