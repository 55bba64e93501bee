"""What a VMI's status says of its machine: pure, told the time.

Phases, conditions and reasons are KubeVirt's (`kubevirt.io/v1`); sentences are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anyvisor.agent.guest.watch import FROZEN, GuestFacts
from anyvisor.agent.volumes.hot import targets
from anyvisor.api.meta import Json, conditions, list_at, object_at, text_at
from anyvisor.api.wire import Time
from anyvisor.hri.v1 import types_pb2 as hri

SCHEDULED: Final = "Scheduled"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_TIMES: Final = frozenset({"lastProbeTime", "lastTransitionTime"})
FINAL: Final = frozenset({SUCCEEDED, FAILED})

MULTUS: Final = "multus-status"
"""Source of what is known of an interface, beside `domain` and `guest-agent`: the pod's networks."""
CPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"
CREDENTIALS: Final = "AccessCredentialsSynchronized"
NODE_LABEL: Final = "kubevirt.io/nodeName"

_ACCELERATORS: Final[dict[int, str]] = {
    hri.ACCELERATOR_KVM: "kvm",
    hri.ACCELERATOR_MSHV: "mshv",
    hri.ACCELERATOR_EMULATION: "emulation",
    hri.ACCELERATOR_NONE: "none",
}
_GOOD_ENDS: Final = frozenset(
    {
        hri.END_REASON_GUEST_SHUTDOWN,
        hri.END_REASON_GUEST_REBOOT,
        hri.END_REASON_REQUESTED_SHUTDOWN,
        hri.END_REASON_MOVED,
    }
)
_SENTENCES: Final[dict[int, str]] = {
    hri.END_REASON_GUEST_SHUTDOWN: "the guest powered itself off",
    hri.END_REASON_GUEST_REBOOT: "the guest rebooted, and this machine stops on a reboot",
    hri.END_REASON_REQUESTED_SHUTDOWN: "the guest shut down as it was asked to",
    hri.END_REASON_FORCED: "the guest was ended without a shutdown of its own",
    hri.END_REASON_PANIC: "the guest's kernel panicked",
    hri.END_REASON_WATCHDOG: "the guest's watchdog expired",
    hri.END_REASON_VMM_EXITED: "the VMM ended with an error",
    hri.END_REASON_VMM_KILLED: "the VMM was killed",
    hri.END_REASON_OUT_OF_MEMORY: (
        "the machine used more memory than its launcher may; raise the memory overhead of its class or of the VMI"
    ),
    hri.END_REASON_MOVED: "the guest moved to another node",
    hri.END_REASON_INTERNAL_ERROR: "the VMM could not go on running the guest",
    hri.END_REASON_UNKNOWN: "the guest is down, and nobody saw why",
}
_PAUSE_REASONS: Final[dict[int, tuple[str, str]]] = {
    hri.PAUSE_REASON_IO_ERROR: ("PausedIOError", "the guest was paused as a disk reported an error"),
    hri.PAUSE_REASON_MIGRATION: ("PausedByMigrationMonitor", "the guest was paused by its migration"),
    hri.PAUSE_REASON_WATCHDOG: ("PausedByWatchdog", "the guest was paused as its watchdog expired"),
    hri.PAUSE_REASON_INTERNAL_ERROR: ("PausedInternalError", "the VMM paused the guest after an error of its own"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a machine from its desired state: a CamelCase reason and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CpuSockets:
    """How many CPU sockets the guest has, and why it has not as many as it should."""

    present: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GuestMemory:
    """How much memory the guest has, as a quantity, and why not as much as it should."""

    present: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    """What has changed, or failed to, of a running guest's CPUs and memory."""

    sockets: CpuSockets | None = None
    memory: GuestMemory | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a machine now. None and empty mean: say nothing about it."""

    phase: str = ""
    """The VMI's new phase."""
    state: hri.MachineState | None = None
    problem: Problem | None = None
    hypervisor: Json | None = None
    machine_type: str = ""
    interfaces: Sequence[Json] | None = None
    guest: GuestFacts | None = None
    volumes: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """What is new of volumes: fields for the entries of `volumeStatus` that there are, by name."""
    size: Size = Size()
    credentials: str | None = None
    """Why keys and passwords are not set in the guest; empty when they are."""


def final_phase(end: hri.MachineState, *, acpi: bool, grace: float) -> str:
    """Succeeded or Failed, by how the guest ended."""
    if end.end_reason in _GOOD_ENDS:
        return SUCCEEDED
    if end.end_reason == hri.END_REASON_FORCED:
        return FAILED if acpi and grace > 0 else SUCCEEDED
    # Down in an orderly way, while no client was connected that could have seen why.
    orderly = end.phase == hri.PHASE_STOPPED
    unseen = end.end_reason in (hri.END_REASON_UNKNOWN, hri.END_REASON_UNSPECIFIED)
    return SUCCEEDED if orderly and unseen else FAILED


def end_sentence(end: hri.MachineState) -> str:
    """How the run ended, for a person."""
    said = _SENTENCES.get(end.end_reason, _SENTENCES[hri.END_REASON_UNKNOWN])
    return f"{said}: {end.message}" if end.message else said


def hypervisor_status(
    *,
    hypervisor_class: str,
    driver: str,
    version: str,
    minor: int,
    digest: str,
    accelerator: int,
    images: Mapping[str, str],
) -> Json:
    """`status.hypervisor`: what runs the machine."""
    fields: Json = {
        "class": hypervisor_class,
        "driver": driver,
        "driverVersion": version,
        "hriMinor": minor,
        "planDigest": digest,
        "accelerator": _ACCELERATORS.get(accelerator, ""),
        "images": dict(images),
    }
    return {key: value for key, value in fields.items() if value}


def _interfaces(seen: Sequence[Json], old: Sequence[Json]) -> list[Json]:
    """The interfaces as seen, in the order of the VMI's. What the controller adds would be undone without end: the
    pod's interface, and that the pod's networks tell of it."""
    known = {entry.get("name"): entry for entry in old}
    order = {name: index for index, name in enumerate(known)}
    merged = [_with_pod(entry, known.get(entry["name"], {})) for entry in seen]
    return sorted(merged, key=lambda entry: order.get(entry["name"], len(order)))


def _with_pod(entry: Json, old: Json) -> Json:
    result = dict(entry)
    if "podInterfaceName" in old:
        result["podInterfaceName"] = old["podInterfaceName"]
    if MULTUS in str(old.get("infoSource") or "").split(", "):
        result["infoSource"] = f"{entry['infoSource']}, {MULTUS}"
    return result


def _volumes(vmi: Json, told: Mapping[str, Json], listed: Sequence[Json]) -> list[Json]:
    """The entries with what is told of them, and each disk's name in the guest."""
    names = targets(vmi)
    return [
        {**entry, **told.get(str(entry["name"]), {}), "target": names.get(str(entry["name"]), entry.get("target", ""))}
        for entry in listed
    ]


def patch(vmi: Json, seen: Observation, now: Time) -> Json | None:
    """The merge patch that brings the VMI's status up to `seen`; None when there is nothing to say.

    It names the resourceVersion that it was made from, as lists (conditions) are replaced whole.
    """
    old = object_at(vmi, "status")
    new: Json = {}
    if seen.phase and seen.phase != old.get("phase"):
        new["phase"] = seen.phase
        new["phaseTransitionTimestamps"] = [
            *(old.get("phaseTransitionTimestamps") or []),
            {"phase": seen.phase, "phaseTransitionTimestamp": now},
        ]
    wanted = _conditions(vmi, seen, now)
    if wanted != conditions(vmi):
        new["conditions"] = wanted
    if seen.hypervisor is not None:
        merged = {**object_at(old, "hypervisor"), **seen.hypervisor}
        if merged != old.get("hypervisor"):
            new["hypervisor"] = merged
    if seen.machine_type and text_at(old, "machine", "type") != seen.machine_type:
        new["machine"] = {"type": seen.machine_type}
    if seen.interfaces is not None:
        listed = list_at(old, "interfaces")
        interfaces = _interfaces(seen.interfaces, listed)
        if interfaces != listed:
            new["interfaces"] = interfaces
    if seen.phase == RUNNING or seen.volumes:
        listed = list_at(old, "volumeStatus")
        volumes = _volumes(vmi, seen.volumes, listed)
        if volumes != listed:
            new["volumeStatus"] = volumes
    if seen.size.sockets is not None:
        topology = {**object_at(old, "currentCPUTopology"), "sockets": seen.size.sockets.present}
        if topology != old.get("currentCPUTopology"):
            new["currentCPUTopology"] = topology
    if seen.size.memory is not None:
        size = seen.size.memory.present
        memory = {**object_at(old, "memory"), "guestCurrent": size, "guestRequested": size}
        if memory != old.get("memory"):
            new["memory"] = memory
    if seen.guest is not None:
        if seen.guest.operating_system and seen.guest.operating_system != old.get("guestOSInfo"):
            new["guestOSInfo"] = seen.guest.operating_system
        frozen = FROZEN if seen.guest.freeze_status == FROZEN else None
        if frozen != old.get("fsFreezeStatus"):
            new["fsFreezeStatus"] = frozen
    if not new:
        return None
    return {"metadata": {"resourceVersion": text_at(vmi, "metadata", "resourceVersion")}, "status": new}


def _conditions(vmi: Json, seen: Observation, now: Time) -> list[Json]:
    result = list(conditions(vmi))
    for type_, wanted in _wanted(seen).items():
        if wanted is None:
            result = [entry for entry in result if entry.get("type") != type_]
        else:
            result = replaced_condition(result, {"type": type_, **wanted}, now)
    return result


def replaced_condition(present: Sequence[Json], new: Json, now: Time) -> list[Json]:
    """The conditions with `new` in the place of the one of its type: nothing of the old one stays.

    The old entry stays as it is when it says the same; its transition time does when its status is the same.
    """
    result = list(present)
    for index, old in enumerate(result):
        if old.get("type") == new["type"]:
            if {key: value for key, value in old.items() if key not in _TIMES} != new:
                since = old.get("lastTransitionTime", now) if old.get("status") == new["status"] else now
                result[index] = {**new, "lastProbeTime": None, "lastTransitionTime": since}
            return result
    return [*result, {**new, "lastProbeTime": None, "lastTransitionTime": now}]


def _wanted(seen: Observation) -> dict[str, Json | None]:
    """The conditions that this observation decides; None takes one away.

    Ready is not among them: the controller mirrors the pod's, and two writers would not come to an end.
    """
    wanted: dict[str, Json | None] = {}
    problem = seen.problem
    wanted["Synchronized"] = _condition("False", problem.reason, problem.message) if problem else None
    if seen.phase in FINAL:
        wanted["Paused"] = None
        wanted["AgentConnected"] = None
    state = seen.state
    if seen.phase != RUNNING or state is None:
        return wanted
    wanted["Paused"] = _paused(state) if state.phase == hri.PHASE_PAUSED else None
    wanted["AgentConnected"] = _condition("True") if state.guest_agent.connected else None
    if seen.size.sockets is not None:
        failed = seen.size.sockets.problem
        wanted[CPU_CHANGE] = _condition("False", "HotPlugCPUError", failed) if failed else None
    if seen.size.memory is not None:
        failed = seen.size.memory.problem
        wanted[MEMORY_CHANGE] = _condition("False", "HotPlugMemoryError", failed) if failed else None
    if seen.credentials is not None:
        status = "False" if seen.credentials else "True"
        wanted[CREDENTIALS] = _condition(status, message=seen.credentials)
    emulated = state.accelerator == hri.ACCELERATOR_EMULATION
    wanted["SoftwareEmulation"] = (
        _condition("True", "Emulated", "the guest runs without hardware virtualization, many times slower")
        if emulated
        else None
    )
    return wanted


def _condition(status: str, reason: str = "", message: str = "") -> Json:
    condition: Json = {"status": status}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _paused(state: hri.MachineState) -> Json:
    reason, message = _PAUSE_REASONS.get(state.pause_reason, ("PausedByUser", "VMI was paused by user"))
    return _condition("True", reason, state.message or message)
