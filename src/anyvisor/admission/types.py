"""Admission of instance types and preferences, of a namespace and of the whole cluster."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import CREATE, UPDATE, AdmissionRequest, AdmissionResult, Causes, refuse
from anyvisor.admission.values import Obj, integer, mapping, shown

_TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any")
_DEPRECATED = tuple(f"prefer{name.capitalize()}" for name in _TOPOLOGIES)
_ACROSS = ("SocketsCoresThreads", "SocketsCores", "CoresThreads")
_THREADS = 2
"""Threads of a core where vCPUs are spread over cores and threads: what processors have."""


def admit_instancetype(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Memory can be promised beyond what there is only where nothing reserves it."""
    del config
    out, at = Causes(), "spec.memory.overcommitPercent"
    memory = mapping(mapping(request.object.get("spec")).get("memory"))
    percent = integer(memory.get("overcommitPercent"))
    if not 0 <= percent <= 100:
        out.invalid(at, f"{at} is {percent}; it must be from 0 to 100")
    elif percent and memory.get("hugepages") is not None:
        out.invalid(at, f"{at} and hugepages exclude each other: huge pages are reserved; keep one of them")
    return _answer(request, out)


def admit_preference(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """The wished topology is one of those that there are."""
    del config
    out = Causes()
    cpu = mapping(mapping(request.object.get("spec")).get("cpu"))
    topology = cpu.get("preferredCPUTopology")
    if topology is not None and topology not in (*_TOPOLOGIES, *_DEPRECATED):
        at = "spec.cpu.preferredCPUTopology"
        out.invalid(at, f"{at} is {shown(topology)}; use one of {', '.join(_TOPOLOGIES)}")
    if topology in ("spread", "preferSpread"):
        _check_spread(mapping(cpu.get("spreadOptions")), out)
    return _answer(request, out)


def _check_spread(options: Obj, out: Causes) -> None:
    across, ratio = options.get("across"), integer(options.get("ratio"))
    if across is not None and across not in _ACROSS:
        at = "spec.cpu.spreadOptions.across"
        out.invalid(at, f"{at} is {shown(across)}; use one of {', '.join(_ACROSS)}")
    elif across == "CoresThreads" and ratio not in (0, _THREADS):
        at = "spec.cpu.spreadOptions.ratio"
        out.invalid(at, f"{at} is {ratio}; a core has {_THREADS} threads")


def _answer(request: AdmissionRequest, out: Causes) -> AdmissionResult:
    if out and request.operation in (CREATE, UPDATE):
        return refuse(request.object, out)
    return AdmissionResult(allowed=True, object=request.object)
