"""Equality of JSON as Kubernetes' typed objects have it.

An absent field equals its zero value, except where absence means something else, and amounts are compared by value,
wherever a field holds one.
"""

from typing import Any, Final, cast

from anyvisor.api.meta import Json
from anyvisor.api.quantity import QuantityError, parse_quantity

AMOUNTS: Final = frozenset(
    {"guest", "maxGuest", "addedOverhead", "capacity", "memory", "cpu", "storage", "ephemeral-storage", "size"}
)
"""Fields whose text is a quantity."""
MEANS_BY_PRESENCE: Final = frozenset(
    {
        *("bios", "bridge", "cdrom", "disk", "efi", "floppy", "lun", "macvtap", "masquerade", "passt", "passtBinding"),
        *("pod", "slirp", "sriov", "virtiofs"),
        *("clientPassthrough", "display", "downwardMetrics", "guestAgentPing", "i6300esb", "ramFB", "rng", "tpm"),
        *("virtualGPUOptions", "guestMappingPassthrough", "numa", "realtime"),
        *("acpi", "apic", "hyperv", "hypervPassthrough", "kvm", "pae", "pvspinlock", "smm"),
        *("direct", "evmcs", "extended", "frequencies", "ipi", "reenlightenment", "relaxed", "reset", "runtime"),
        *("spinlocks", "synic", "synictimer", "tlbflush", "vapic", "vendorid", "vpindex"),
        *("hpet", "pit", "rtc", "utc", "launchSecurity", "sev", "snp", "tdx"),
    }
)
"""Objects that say something though they are empty."""
ON_UNLESS_FALSE: Final = frozenset(
    {
        *("autoattachGraphicsDevice", "autoattachMemBalloon", "autoattachPodInterface", "autoattachSerialConsole"),
        *("enabled", "logSerialConsole", "present", "secureBoot"),
    }
)
"""Switches whose absence does not mean false."""


def equal(left: Any, right: Any, field: str = "") -> bool:
    """Whether two JSON values mean the same."""
    if not left and not right:
        return (left is None) == (right is None) or field not in MEANS_BY_PRESENCE | ON_UNLESS_FALSE
    if isinstance(left, dict) and isinstance(right, dict):
        one, other = cast("Json", left), cast("Json", right)
        return all(equal(one.get(key), other.get(key), key) for key in {*one, *other})
    if isinstance(left, list) and isinstance(right, list):
        ones, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(ones) == len(others) and all(map(equal, ones, others, [field] * len(ones)))
    if left == right:
        return True
    return field in AMOUNTS and _same_amount(left, right)


def _same_amount(left: Any, right: Any) -> bool:
    if not isinstance(left, str | int) or not isinstance(right, str | int):
        return False
    try:
        return parse_quantity(left) == parse_quantity(right)
    except QuantityError:
        return False
