"""`check_move`: can a machine that runs go to another class, driver version or node; while it runs, or by a stop. Pure.

It only answers: nothing is planned to happen by it. Unknown is not yes: what nobody told of the machine, of its volumes
or of the target stands against a live move, with a finding that says what is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from anyvisor.api.meta import list_at, object_at, text_at
from anyvisor.planning.facts import DriverFacts, NodeFacts
from anyvisor.planning.judge import Policy
from anyvisor.planning.manifest import Manifest
from anyvisor.planning.plan import Finding, Plan, Severity
from anyvisor.planning.planner import Driver, assess
from anyvisor.planning.values import is_map

How = Literal["live", "cold", "no"]
Scope = Literal["restart", "upgrade", "move", "driver-change"]

SHARED_MODES: Final = ("ReadWriteMany", "ReadOnlyMany")
"""Access modes by which two nodes have a volume at once, as a live move needs it."""
CLAIMS: Final = {"persistentVolumeClaim": "claimName", "dataVolume": "name", "ephemeral": ""}
"""Volumes that are claims, and where their name stands."""
OWN_DISKS: Final = ("containerDisk", "emptyDisk", "ephemeral")
"""Volumes of which the guest writes to a disk that lies on its node."""
_SCOPES: Final[Mapping[Scope, str]] = {
    "restart": "over a restart",
    "upgrade": "with another version of the driver",
    "move": "over a live move",
    "driver-change": "with another hypervisor",
}
_NAMELESS_MODELS: Final = ("host-model", "host-passthrough")
_OWN_CPU: Final = ("emulation", "none")
"""The guest's CPU is no part of the host then."""


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """What is known of a claim."""

    access_modes: tuple[str, ...] = ()
    nodes: tuple[str, ...] | None = None
    """The nodes that can reach it; None: every node."""


@dataclass(frozen=True, slots=True)
class Running:
    """A machine as it runs, or would."""

    spec: Mapping[str, Any]
    """With its defaults."""
    driver: Driver
    """The driver that runs it; its manifest may be of a newer version than `version`."""
    version: str
    """Of the driver that started it."""
    hri_minor: int
    """The one that it started with."""
    node: str = ""
    """Where it runs; empty: nowhere."""
    accelerator: str = ""
    cpu_model: str = ""
    """What `host-model` became when it started; empty: not known."""
    paused: bool = False
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict[str, VolumeFacts])
    """By the claim's name."""
    defaulted: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Target:
    """Where it would go."""

    hypervisor_class: Mapping[str, Any]
    driver: Driver
    nodes: Sequence[NodeFacts]
    node: str = ""
    """One node; empty: any that can."""
    policy: Policy = field(default_factory=Policy)


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """The best way, and for each way that is barred, why."""

    how: How
    against_live: tuple[Finding, ...]
    against_cold: tuple[Finding, ...]
    """These stand against a live move as well."""
    notes: tuple[Finding, ...]
    """What the guest would notice of the way that is open."""
    plan: Plan
    """What the machine would run by."""


def check_move(machine: Running, target: Target) -> MoveAnswer:
    """Ask for one machine and one target. No machine and no target makes it raise."""
    nodes = [node for node in target.nodes if not target.node or node.name == target.node]
    made = assess(
        machine.spec, target.hypervisor_class, target.driver, nodes, target.policy, defaulted=machine.defaulted
    )
    spec = made.judgement.spec
    cold = [
        *_unplanned(made.plan),
        *_nowhere(target, nodes, made.plan),
        *_without_model(machine, target, nodes),
        *_unreachable(machine, target),
    ]
    live = (
        [*_not_running(machine)]
        or [*_other_hypervisor(machine, target)]
        or [
            *_of_driver(machine, target),
            *_of_place(machine, target, nodes),
            *_of_devices(spec),
            *_of_volumes(machine, target),
            *_changed(machine.spec, spec),
            *_identity(machine, target, "move", "error"),
        ]
    )
    how: How = "no" if cold else "cold" if live else "live"
    notes = _identity(machine, target, _scope(machine, target), "warn") if how == "cold" else []
    return MoveAnswer(how, tuple(live), tuple(cold), tuple(notes), made.plan)


def _error(code: str, message: str, at: str = "spec.hypervisor", **more: str) -> Finding:
    return Finding(code=code, severity="error", message=message, field=at, **more)  # pyright: ignore[reportArgumentType]


def _unplanned(made: Plan) -> list[Finding]:
    return [finding for finding in made.findings if finding.severity == "error"]


def _nowhere(target: Target, nodes: Sequence[NodeFacts], made: Plan) -> Iterator[Finding]:
    """A move is made now, so a driver that may come later is none."""
    if not nodes:
        which = f"a node {target.node}" if target.node else "any node"
        yield _error("NODE_LACKS", f"nothing is known of {which}: `anyvisor nodes` shows those that are")
        return
    for finding in made.findings:
        if finding.code in ("DRIVER_ABSENT", "DRIVER_UNHEALTHY") and finding.severity == "warn":
            where = f"node {target.node}: " if target.node else ""
            yield _error(finding.code, f"{where}{finding.message}", finding.field)


def _without_model(machine: Running, target: Target, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """A CPU model that the machine names, and no node has: its pod would wait for ever."""
    model = text_at(machine.spec, "domain", "cpu", "model")
    if not model or model in _NAMELESS_MODELS:
        return
    told = [one.narrowed.get("cpu.model.named") for one in _facts(target, nodes)]
    lists = [narrowed.values for narrowed in told if narrowed is not None and narrowed.values is not None]
    if lists and len(lists) == len(told) and not any(model in values for values in lists):
        message = f"no target has the CPU model {model}"
        yield _error("NODE_LACKS", message, "spec.domain.cpu.model", capability="cpu.model.named", want=model)


def _facts(target: Target, nodes: Sequence[NodeFacts]) -> list[DriverFacts]:
    """Of the target's driver, where it works."""
    return [one for node in nodes if (one := node.drivers.get(target.driver.manifest.driver)) and one.healthy]


def _unreachable(machine: Running, target: Target) -> Iterator[Finding]:
    """Volumes that only other nodes have."""
    if target.node in ("", machine.node):
        return
    for at, claim in _claims(machine.spec):
        facts = machine.volumes.get(claim)
        if facts is not None and facts.nodes is not None and target.node not in facts.nodes:
            where = ", ".join(facts.nodes[:8]) or "no node"
            yield _error("VOLUME_ELSEWHERE", f"claim {claim} is reached from {where} alone, not {target.node}", at)
    for at, volume in _volumes(machine.spec):
        if "hostDisk" in volume:
            message = "a host disk is a file of its node; copy it into a claim to move the machine"
            yield _error("VOLUME_ELSEWHERE", message, at)


def _scope(machine: Running, target: Target) -> Scope:
    if machine.driver.manifest.driver != target.driver.manifest.driver:
        return "driver-change"
    return "restart" if machine.version == target.driver.manifest.version else "upgrade"


def _not_running(machine: Running) -> Iterator[Finding]:
    if not machine.node:
        yield _error("NOT_RUNNING", "the machine does not run: its next start is the move")


def _other_hypervisor(machine: Running, target: Target) -> Iterator[Finding]:
    """It reads no state of ours, and what else there is does not matter then."""
    ours, theirs = machine.driver.manifest, target.driver.manifest
    if ours.driver != theirs.driver:
        yield _error(
            "STATE_FORMAT",
            f"{theirs.title or theirs.driver} cannot read the state of a guest that {ours.title or ours.driver} runs: "
            "the machine moves by a stop",
            have=ours.driver,
            want=theirs.driver,
        )


def _of_driver(machine: Running, target: Target) -> Iterator[Finding]:
    """Both ends must be able to, and read each other's state."""
    theirs = target.driver.manifest
    yield from _lacking(theirs, "move.live", "to move a guest while it runs")
    if machine.paused:
        yield from _lacking(theirs, "move.paused", "to move a guest that is paused; resume it")
    if machine.version != theirs.version:
        modes = theirs.takes(machine.version)
        staying = "local" in modes and target.node == machine.node
        if "live" not in modes and not staying:
            way = f"only by mode {', '.join(sorted(modes))}" if modes else "not named in its skew table"
            yield _error(
                "SKEW",
                f"version {theirs.version} of {theirs.driver} takes over machines of {machine.version}: {way}",
                have=machine.version,
                want=theirs.version,
            )
    if not theirs.hri.min_minor <= machine.hri_minor <= theirs.hri.max_minor:
        spoken = f"{theirs.hri.min_minor}..{theirs.hri.max_minor}"
        message = f"the machine started with HRI minor {machine.hri_minor or 'unknown'}; the target speaks {spoken}"
        yield _error("SKEW", message, have=str(machine.hri_minor), want=spoken)


def _lacking(manifest: Manifest, capability: str, what: str) -> Iterator[Finding]:
    statement = manifest.capabilities.get(capability)
    if statement is None or not statement.yes:
        code = "CAP_NOT_STATED" if statement is None else "CAP_NO"
        note = f": {statement.note}" if statement is not None and statement.note else ""
        message = f"{manifest.title or manifest.driver} does not have {capability}, {what}{note}"
        yield _error(code, message, capability=capability)


def _of_place(machine: Running, target: Target, nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Where it goes: another node, a CPU that is as good, the same accelerator."""
    if target.node == machine.node:
        yield from _lacking(target.driver.manifest, "move.local-handover", "to pass a guest on within its node")
        return
    others = [node for node in nodes if node.name != machine.node]
    facts = _facts(target, others)
    if not facts:
        yield _error("NODE_LACKS", "no other node is known that could take it over")
        return
    able = [one for one in facts if _runs_on(machine, one)]
    if not able:
        yield _error(
            "ACCELERATOR_UNAVAILABLE",
            f"the guest runs by {machine.accelerator or 'an unknown accelerator'}, which no target offers",
            have=",".join(sorted({name for one in facts for name in one.accelerators or ()})),
            want=machine.accelerator,
        )
    yield from _of_cpu(machine, able or facts)


def _runs_on(machine: Running, facts: DriverFacts) -> bool:
    return bool(machine.accelerator) and facts.accelerators is not None and machine.accelerator in facts.accelerators


def _of_cpu(machine: Running, facts: Sequence[DriverFacts]) -> Iterator[Finding]:
    at, model = "spec.domain.cpu.model", text_at(machine.spec, "domain", "cpu", "model")
    if machine.accelerator in _OWN_CPU:
        return
    if model == "host-passthrough":
        message = "the guest has the CPU of its host as it is, and another host's may differ; name a model"
        yield _error("IDENTITY_WOULD_CHANGE", message, at, capability="identity.cpu-model", have=model)
        return
    named = machine.cpu_model if model in _NAMELESS_MODELS else model
    if model == "host-model" and not named:
        message = "nobody told which named model host-model became on its node, so no other can be compared"
        yield _error("IDENTITY_WOULD_CHANGE", message, at, capability="identity.cpu-model", have=model)
    elif named and not any(_has_model(one, named) for one in facts):
        message = f"no target tells that it has the CPU model {named}"
        yield _error("NODE_LACKS", message, at, capability="cpu.model.named", want=named)


def _has_model(facts: DriverFacts, model: str) -> bool:
    narrowed = facts.narrowed.get("cpu.model.named")
    return narrowed is not None and narrowed.state and narrowed.values is not None and model in narrowed.values


def _of_devices(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """What is a part of its node."""
    for name in ("hostDevices", "gpus"):
        for index, device in enumerate(list_at(spec, "domain", "devices", name)):
            what = device.get("name") if is_map(device) else ""
            message = f"{what or 'a device'} is a device of the node, which a running guest cannot leave behind"
            yield _error("DEVICE_OF_NODE", message, f"spec.domain.devices.{name}[{index}]")
    for index, nic in enumerate(list_at(spec, "domain", "devices", "interfaces")):
        if is_map(nic) and "sriov" in nic:
            message = "a virtual function of a network card stays on its node; detach the interface first"
            yield _error("DEVICE_OF_NODE", message, f"spec.domain.devices.interfaces[{index}].sriov")
    for index, shared in enumerate(list_at(spec, "domain", "devices", "filesystems")):
        if is_map(shared) and "virtiofs" in shared:
            message = "the state of a shared file system lies in a process beside the guest, and stays behind"
            yield _error("DEVICE_OF_NODE", message, f"spec.domain.devices.filesystems[{index}].virtiofs")


def _of_volumes(machine: Running, target: Target) -> Iterator[Finding]:
    """During a live move two nodes have the disks, unless the driver copies them."""
    if target.node and target.node == machine.node:
        return
    copies = machine.driver.manifest.states("move.storage") and target.driver.manifest.states("move.storage")
    if copies:
        return
    for at, claim in _claims(machine.spec):
        facts = machine.volumes.get(claim)
        if facts is None:
            yield _error("VOLUME_UNKNOWN", f"nothing is known of claim {claim}: does it exist?", at)
        elif not set(facts.access_modes).intersection(SHARED_MODES):
            message = f"claim {claim} is on one node at a time; a live move needs ReadWriteMany, or move.storage"
            yield _error("VOLUME_NOT_SHARED", message, at, have=",".join(facts.access_modes), want="ReadWriteMany")
    for at, volume in _volumes(machine.spec):
        kind = next((name for name in OWN_DISKS if name in volume), "")
        if kind:
            message = f"what the guest wrote to its {kind} lies on its node; a live move needs move.storage"
            yield _error("VOLUME_NOT_SHARED", message, at, capability="move.storage")


def _volumes(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for index, volume in enumerate(list_at(spec, "volumes")):
        if is_map(volume):
            yield f"spec.volumes[{index}]", volume


def _claims(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for at, volume in _volumes(spec):
        for kind in CLAIMS:
            if kind in volume:
                yield f"{at}.{kind}", _claim(volume)


def claims_of(spec: Mapping[str, Any]) -> list[str]:
    """The claims that a machine has its volumes of, each once."""
    return list(dict.fromkeys(claim for _, claim in _claims(spec) if claim))


def _claim(volume: Mapping[str, Any]) -> str:
    for kind, name in CLAIMS.items():
        if kind in volume:
            source = object_at(volume, kind)
            return text_at(source, name) if name else text_at(source, "persistentVolumeClaim", "claimName")
    return ""


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Finding]:
    """A default that the target replaces is another machine, which no running guest becomes."""
    if before != after:
        yield _error(
            "IDENTITY_WOULD_CHANGE",
            "the target replaces defaults of the machine (see its substitutions), which takes effect by a start alone",
        )


def _identity(machine: Running, target: Target, scope: Scope, severity: Severity) -> list[Finding]:
    """What the guest can be known by, and the target does not promise to keep; told as one finding."""
    manifest = target.driver.manifest
    lost = [(facet, at) for facet, at in _facets(machine.spec) if scope not in manifest.identity.get(facet, ())]
    if not lost:
        return []
    names, (_, first) = ", ".join(facet for facet, _ in lost), lost[0]
    return [
        Finding(
            code="IDENTITY_WOULD_CHANGE",
            severity=severity,
            field=first,
            message=f"{manifest.title or manifest.driver} does not promise that these stay the same for the guest "
            f"{_SCOPES[scope]}: {names}",
            want=names,
        )
    ]


def _facets(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What this guest can be known by: facet, and where the machine asks for it."""
    yield "uuid", "spec.domain.firmware.uuid"
    yield "profile", "spec.domain.machine.type"
    devices = object_at(spec, "domain", "devices")
    if list_at(devices, "interfaces"):
        yield "mac", "spec.domain.devices.interfaces"
    yield "pci", "spec.domain.devices"
    if object_at(spec, "domain", "firmware", "bootloader", "efi").get("persistent") is True:
        yield "firmware-vars", "spec.domain.firmware.bootloader.efi.persistent"
    if object_at(devices, "tpm").get("persistent") is True:
        yield "tpm-state", "spec.domain.devices.tpm.persistent"
