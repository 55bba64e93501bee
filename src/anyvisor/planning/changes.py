"""What a change of a machine's spec means while it runs: at once, at the next start, by a move, or not at all. Pure.

Two rules decide, and both must say yes before a change counts at once. What the API carries to a running machine at
all is `not_carried`, from the same predicates by which the controller copies changes and sets `RestartRequired`; that
the two agree is tested. What the driver can do is its manifest's. The controller does not ask the manifest: what it
copies and a driver then refuses is told on the machine by a condition, as the API's clients expect it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from anyvisor.api.meta import list_at, object_at
from anyvisor.planning.manifest import Manifest
from anyvisor.planning.patching import with_value
from anyvisor.planning.plan import Finding, Plan
from anyvisor.planning.predicates import number
from anyvisor.planning.registry import value_at
from anyvisor.planning.values import is_list, is_map

Effect = Literal["LIVE", "NEXT_START", "MOVE", "REFUSED"]

NAMED_LISTS: Final = frozenset(
    {
        *("volumes", "networks", "utilityVolumes", "accessCredentials"),
        *("domain.devices.disks", "domain.devices.interfaces", "domain.devices.filesystems"),
        *("domain.devices.gpus", "domain.devices.hostDevices", "domain.devices.inputs"),
    }
)
"""Lists whose elements are told apart by their name, not by their place."""
PLACEMENT: Final = ("nodeSelector", "affinity", "tolerations")
"""They take effect when the guest is next placed, without a restart; another node needs a move."""
GROWING: Final = {"domain.cpu.sockets": "change.cpu", "domain.memory.guest": "change.memory"}
"""Live upwards only: a guest gives nothing back that it does not want to."""
MOST: Final = {
    "domain.cpu.sockets": ("domain", "cpu", "maxSockets"),
    "domain.memory.guest": ("domain", "memory", "maxGuest"),
}
"""Up to what they grow."""
HOTPLUGGABLE: Final = ("persistentVolumeClaim", "dataVolume", "memoryDump")
"""Volumes that may say so."""
PLUGGED: Final = ("bridge", "sriov")
"""Bindings of interfaces that come to a running machine."""
ELEMENTS: Final = {
    "domain.devices.disks": ("change.disk.attach", "change.disk.detach"),
    "domain.devices.interfaces": ("change.nic.attach", "change.nic.detach"),
    "volumes": ("change.disk.attach", "change.disk.detach"),
    "networks": ("change.nic.attach", "change.nic.detach"),
}
"""Lists whose elements may come and go: what attaches, what detaches."""

NEXT: Final = "it takes effect with the next start"
STAYS: Final = "a running guest stays where it is until it moves or starts anew"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One place that differs."""

    field: str
    old: Any
    new: Any
    effect: Effect
    capability: str = ""
    """What the driver would have to have for a live change."""
    message: str = ""


def classify(
    old: Mapping[str, Any], new: Mapping[str, Any], manifest: Manifest, planned: Plan | None = None
) -> tuple[FieldChange, ...]:
    """Each difference between the spec that runs and the one that is wanted, both with the room that the running
    machine has to grow (`maxSockets`, `maxGuest`).

    `planned` is the plan of the new spec; what it refuses is refused here, with its sentence.
    """
    errors = [finding for finding in planned.findings if finding.severity == "error"] if planned else []
    refused = {finding.field.removeprefix("spec."): finding for finding in errors}
    return tuple(
        _one(path, before, after, manifest, _refusal(path, refused), not_carried(path, before, after, old, new))
        for path, before, after in differences(old, new)
    )


def with_room(spec: Mapping[str, Any], running: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with the room to grow of the machine that runs, where it says nothing of it itself."""
    filled = dict(spec)
    for path in MOST.values():
        place = ".".join(path)
        if value_at(filled, place) is None and (room := value_at(running, place)) is not None:
            filled = with_value(filled, place, room)
    return filled


def hotpluggable(volume: Mapping[str, Any]) -> bool:
    """Whether a volume may come and go while the guest runs."""
    return any(object_at(volume, kind).get("hotpluggable") is True for kind in HOTPLUGGABLE)


def not_carried(path: str, before: Any, after: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Why the API does not bring this change to a machine that runs, whatever its driver could; empty when it does.

    `path` is one of `differences(old, new)`, with its two values.
    """
    plain, name = _plain(path), path.partition("[")[2].partition("]")[0]
    if path in MOST:
        most, wanted = number(value_at(new, ".".join(MOST[path]))), number(after)
        if most is None:
            return f"the machine began without {MOST[path][-1]}"
        return f"it is above {MOST[path][-1]}" if wanted is not None and wanted > most else ""
    if plain == "volumes" or plain.startswith(("volumes.", "domain.devices.disks")):
        volumes = [each for spec in (old, new) for each in _named(spec, ("volumes",), name)]
        return "" if any(map(hotpluggable, volumes)) else "its volume is not hotpluggable"
    if plain in ("domain.devices.interfaces", "networks") and path.endswith("]"):
        return _interface_stays(name, old, new)
    return ""


def _interface_stays(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    at = ("domain", "devices", "interfaces")
    was, wanted = next(_named(old, at, name), None), next(_named(new, at, name), None)
    if was is None:
        return "" if wanted and any(kind in wanted for kind in PLUGGED) else "only bridge and sriov come to a guest"
    return "" if was.get("state") == "absent" else "an interface goes by state: absent"


def _named(spec: Mapping[str, Any], at: Sequence[str], name: str) -> Iterator[Mapping[str, Any]]:
    return (each for each in list_at(spec, *at) if is_map(each) and each.get("name") == name)


def differences(old: Any, new: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place that differs, with both values; elements of named lists are compared by name."""
    if old == new:
        return
    if is_map(old) and is_map(new):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{at}.{name}" if at else name)
    elif at in NAMED_LISTS and (is_list(old) or old is None) and (is_list(new) or new is None):
        before, after = _by_name(old), _by_name(new)
        if before is None or after is None:
            yield at, old, new
            return
        for name in sorted({*before, *after}):
            yield from differences(before.get(name), after.get(name), f"{at}[{name}]")
    else:
        yield at, old, new


def _by_name(items: Any) -> dict[str, Any] | None:
    """Elements by name; None when one has none or two share one."""
    found: dict[str, Any] = {}
    for item in items or ():
        name = item.get("name") if is_map(item) else None
        if not isinstance(name, str) or name in found:
            return None
        found[name] = item
    return found


def _refusal(path: str, refused: Mapping[str, Finding]) -> Finding | None:
    plain = _plain(path)
    return next((finding for field, finding in refused.items() if field and _plain(field) == plain), None)


def _plain(path: str) -> str:
    """The path without what stands in brackets."""
    parts: list[str] = []
    for part in path.split("["):
        parts.append(part.partition("]")[2] if parts else part)
    return "".join(parts)


def _one(path: str, old: Any, new: Any, manifest: Manifest, refusal: Finding | None, held: str) -> FieldChange:
    if refusal is not None:
        return FieldChange(path, old, new, "REFUSED", refusal.capability, refusal.message)
    top = path.partition(".")[0].partition("[")[0]
    if top in PLACEMENT:
        return FieldChange(path, old, new, "MOVE", "move.live", STAYS)
    capability = _capability(path, old, new)
    statement = manifest.capabilities.get(capability)
    if not capability:
        message = NEXT
    elif held:
        message = f"{held}; {NEXT}"
    elif statement is None or not statement.yes:
        message = f"{manifest.title or manifest.driver} does not change it while the guest runs; {NEXT}"
    elif statement.when == "cold":
        message = f"{manifest.title or manifest.driver} changes it only while the guest is stopped; {NEXT}"
    else:
        return FieldChange(path, old, new, "LIVE", capability)
    return FieldChange(path, old, new, "NEXT_START", capability, message)


def _capability(path: str, old: Any, new: Any) -> str:
    """The change that would carry it, empty when there is none."""
    if path in GROWING:
        before, after = number(old), number(new)
        return GROWING[path] if before is not None and after is not None and after > before else ""
    plain = _plain(path)
    if plain in ELEMENTS and path.endswith("]"):
        attach, detach = ELEMENTS[plain]
        if old is None:
            return attach
        return detach if new is None else ""
    if plain == "domain.devices.interfaces.state":
        if new == "absent":
            return "change.nic.detach"
        return "change.nic.link"
    media = plain.startswith("volumes.") and plain.endswith(("claimName", "dataVolume.name"))
    return "change.disk.media" if media and old is not None and new is not None else ""
