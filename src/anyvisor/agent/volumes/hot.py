"""Volumes that come and go while the guest runs: what is to be done next. Pure.

The API's words are in `status.volumeStatus`: the controller brings a claim to the node by an attachment pod
(`AttachedToNode`), the agent makes it `Ready` in the guest, and takes it out (`UnMountedFromPod`) when the spec names
it no more. What is in the guest the driver tells, except for media, of which the phase tells.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from anyvisor.api.meta import Json, list_at, object_at, text_at

READY: Final = "Ready"
OUT: Final = "UnMountedFromPod"
IN_GUEST: Final = frozenset({READY, "MountedToPod"})
CLAIM_KINDS: Final = ("persistentVolumeClaim", "dataVolume")
_PREFIXES: Final = {"virtio": "vd"}

Kind = Literal["attach", "detach", "insert", "eject", "present", "absent"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: a disk to attach or detach, a medium to insert or eject, or only the phase to be told."""

    kind: Kind
    volume: str


def is_hot(volume: Mapping[str, Any]) -> bool:
    """Whether the volume comes by an attachment pod, and not with the launcher."""
    return any(object_at(volume, kind).get("hotpluggable") is True for kind in CLAIM_KINDS)


def hot_names(vmi: Json) -> frozenset[str]:
    """The volumes that come while the guest runs."""
    return frozenset(str(each["name"]) for each in list_at(vmi, "spec", "volumes") if is_hot(each))


def claim_of(volume: Json) -> str:
    """The claim behind a volume: a DataVolume's has its name."""
    return text_at(volume, "persistentVolumeClaim", "claimName") or text_at(volume, "dataVolume", "name")


def steps(vmi: Json, present: Collection[str]) -> list[Step]:
    """What brings the guest to what the spec names; `present` are the names of the disks that it has."""
    entries = _entries(vmi)
    disks = {str(each["name"]): each for each in list_at(vmi, "spec", "domain", "devices", "disks")}
    hot = hot_names(vmi)
    found: list[Step] = []
    for name, entry in entries.items():
        is_drive = isinstance(disks.get(name, {}).get("cdrom"), dict)
        inside = text_at(entry, "phase") in IN_GUEST
        if name in hot:
            ready = bool(text_at(entry, "hotplugVolume", "attachPodUID")) and name in disks
            there = inside if is_drive else name in present
            if not there and ready:
                found.append(Step("insert" if is_drive else "attach", name))
            elif there and not inside:
                found.append(Step("present", name))
        elif is_drive and inside:
            found.append(Step("eject", name))
        elif not is_drive and name in present:
            found.append(Step("detach", name))
        elif inside:
            found.append(Step("absent", name))
    return found


def _entries(vmi: Json) -> dict[str, Json]:
    return {
        str(entry["name"]): entry
        for entry in list_at(vmi, "status", "volumeStatus")
        if entry.get("hotplugVolume") is not None
    }


def targets(vmi: Json) -> dict[str, str]:
    """The name that a Linux guest is likely to give each disk, by its volume: `vda`, `sda`, ..."""
    counted: dict[str, int] = {}
    found: dict[str, str] = {}
    for disk in list_at(vmi, "spec", "domain", "devices", "disks"):
        kind = next((word for word in ("disk", "cdrom", "lun") if isinstance(disk.get(word), dict)), "disk")
        prefix = _PREFIXES.get(text_at(disk, kind, "bus"), "sd")
        number = counted[prefix] = counted.get(prefix, -1) + 1
        found[str(disk["name"])] = prefix + _letters(number)
    return found


def _letters(number: int) -> str:
    """0 is a, 25 is z, 26 is aa."""
    word = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        word = chr(ord("a") + digit) + word
    return word
