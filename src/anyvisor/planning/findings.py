"""The stable codes of findings. A code never changes meaning and is never reused."""

from collections.abc import Iterable
from typing import Final

from anyvisor.planning.plan import Finding, Verdict

CODES: Final = {
    "CAP_NOT_STATED": "The driver does not state the capability; unknown is not yes.",
    "CAP_NO": "The driver states that it does not have the capability.",
    "CAP_EXPERIMENTAL": "The driver has it, as experimental, and the policy does not allow that.",
    "CAP_COLD_ONLY": "The driver can change this only while the machine is stopped.",
    "VALUE_NOT_IN_SET": "The driver supports other values than the one asked for.",
    "LIMIT_EXCEEDED": "More is asked for than the driver can do.",
    "OUT_OF_RANGE": "The value is outside the range that the driver states.",
    "CONFLICT": "Two things that are asked for exclude each other with this driver.",
    "REQUIRES": "What is asked for needs another capability that the machine does not have.",
    "FIELD_UNMAPPED": "The field is not known to the capability registry, so nobody can promise it.",
    "NODE_LACKS": "No node can run it, although the driver could.",
    "DRIVER_ABSENT": "No node has the driver.",
    "DRIVER_UNHEALTHY": "No node has the driver in a healthy state now.",
    "SKEW": "The versions of core and driver have no minor in common.",
    "PARAM_UNKNOWN": "The class sets a parameter that the driver does not know.",
    "PARAM_INVALID": "The class sets a parameter to a value that the driver does not take.",
    "ACCELERATOR_UNAVAILABLE": "The accelerator that the class asks for is not there.",
    "EMULATION": "The guest runs without hardware virtualization, many times slower.",
    "EXTERNAL_ON_CLUSTER": "The driver needs a daemon outside the pod, which a cluster does not allow.",
    "NAMESPACE_FORBIDDEN": "The class may not be used from this namespace.",
    "SUBSTITUTED": "A default was replaced by what the driver can do.",
    "DROPPED": "A default was dropped, as the driver cannot do it.",
    "DEGRADED": "The machine runs without something that it asked for and can do without.",
    "MEMORY_UNKNOWN": "The machine states no memory.",
    "VALUE_INVALID": "The value has no meaning for the field.",
    "EVIDENCE_MISSING": "The driver claims the capability as supported without a conformance result.",
    "IDENTITY_WOULD_CHANGE": "The guest would see another identity.",
    "STATE_FORMAT": "The target cannot read the state of a guest that the present hypervisor runs.",
    "NOT_RUNNING": "The machine does not run, so nothing can move while it runs.",
    "DEVICE_OF_NODE": "The machine has a device that stays on its node.",
    "VOLUME_ELSEWHERE": "The target cannot reach a volume.",
    "VOLUME_NOT_SHARED": "A volume is on one node at a time, and a live move needs it on two.",
    "VOLUME_UNKNOWN": "Nothing is known of a volume, so nobody can promise that it moves.",
}


def verdict(findings: Iterable[Finding]) -> Verdict:
    """What the findings amount to: an error refuses, an unknown is not a yes, a warning with code DEGRADED degrades."""
    codes = {(finding.severity, finding.code) for finding in findings}
    if any(severity == "error" for severity, _ in codes):
        return "REFUSED"
    if ("warn", "CAP_NOT_STATED") in codes or ("warn", "FIELD_UNMAPPED") in codes:
        return "UNKNOWN"
    if any(code == "DEGRADED" for _, code in codes):
        return "DEGRADED"
    return "SATISFIED"
