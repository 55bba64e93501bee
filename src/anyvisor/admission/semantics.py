"""When two objects mean the same.

Clients write back what they read in another form: they leave out zero values, add empty lists and structures, and
spell quantities anew. Such differences are no changes, except in fields where an explicit zero, false or empty
structure says something that leaving it out does not.
"""

from typing import Any, cast

from anyvisor.admission import quantity
from anyvisor.admission.values import Obj

# Optional numbers and switches of the API, in which 0 or false differs from nothing.
_ZERO_COUNTS = frozenset(
    [
        "VSOCKCID",
        "autoattachGraphicsDevice",
        "autoattachInputDevice",
        "autoattachMemBalloon",
        "autoattachPodInterface",
        "autoattachSerialConsole",
        "autoattachVSOCK",
        "blockMultiQueue",
        "bootOrder",
        "changedBlockTracking",
        "dedicatedIOThread",
        "discardGranularity",
        "enabled",
        "encryptedState",
        "logSerialConsole",
        "networkInterfaceMultiqueue",
        "offsetSeconds",
        "optional",
        "persistent",
        "present",
        "readOnly",
        "running",
        "secureBoot",
        "shareable",
        "shared",
        "spinlocks",
        "supplementalPoolThreadCount",
        "terminationGracePeriodSeconds",
        "tscFrequency",
        "useSerial",
        "useVirtioTransitional",
    ]
)
# Structures that always exist, in which empty is the same as nothing; elsewhere `{}` is a choice (`pod: {}`).
_ALWAYS_THERE = frozenset(
    [
        "annotations",
        "acpi",
        "devices",
        "domain",
        "guestOSInfo",
        "labels",
        "limits",
        "matchLabels",
        "metadata",
        "nodeSelector",
        "propagationMethod",
        "requests",
        "resources",
        "source",
        "spec",
        "status",
    ]
)
_QUANTITIES = frozenset(
    ["addedOverhead", "capacity", "cpu", "divisor", "ephemeral-storage", "guest", "maxGuest", "memory", "storage"]
)


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values mean the same in this API."""
    pending: list[tuple[str, Any, Any]] = [("spec", left, right)]
    while pending:
        key, ours, theirs = pending.pop()
        if ours is theirs:
            continue
        if ours is None or theirs is None:
            present = theirs if ours is None else ours
            if not _means_nothing(key, present, pending):
                return False
        elif type(ours) is not type(theirs):
            return False
        elif type(ours) is dict:
            one, other = cast(Obj, ours), cast(Obj, theirs)
            pending.extend((name, one.get(name), other.get(name)) for name in one.keys() | other.keys())
        elif type(ours) is list:
            here, there = cast(list[Any], ours), cast(list[Any], theirs)
            if len(here) != len(there):
                return False
            pending.extend((key, one, other) for one, other in zip(here, there, strict=True))
        elif ours != theirs and not _same_quantity(key, ours, theirs):
            return False
    return True


def _means_nothing(key: str, present: Any, pending: list[tuple[str, Any, Any]]) -> bool:
    """Whether a value means the same as its absence; an always present structure is looked into later."""
    if type(present) is dict:
        pending.extend((name, member, None) for name, member in cast(Obj, present).items())
        return key in _ALWAYS_THERE
    if type(present) is list or present == "":
        return not present
    return not present and key not in _ZERO_COUNTS


def _same_quantity(key: str, ours: Any, theirs: Any) -> bool:
    if key not in _QUANTITIES and not key.startswith("hugepages-"):
        return False
    parsed = quantity.parse(ours)
    return parsed is not None and parsed == quantity.parse(theirs)
