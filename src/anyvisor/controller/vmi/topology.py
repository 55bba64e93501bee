"""The frequency of the time stamp counter that a guest is promised, so that it can move between nodes."""

from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.outcome import EventType, Problem
from anyvisor.controller.vmi.world import VmiPass

FREQUENCY_LABEL: Final = "cpu-timer.node.kubevirt.io/tsc-frequency"
FAILED: Final = "FailedGatherhingClusterTopologyHints"


def needed(vmi: Json) -> bool:
    """Whether the guest relies on a stable frequency, and so on a hint before its pod is made."""
    return text_at(vmi, "spec", "architecture") == "amd64" and (_invariant(vmi) or _reenlightenment(vmi))


def _invariant(vmi: Json) -> bool:
    features = list_at(vmi, "spec", "domain", "cpu", "features")
    return any(one.get("name") == "invtsc" and one.get("policy") in {"require", "force"} for one in features)


def _reenlightenment(vmi: Json) -> bool:
    return object_at(vmi, "spec", "domain", "features", "hyperv", "reenlightenment").get("enabled") is True


def waits_for_hint(run: VmiPass) -> bool:
    """Whether the pod cannot be made yet for lack of a hint."""
    return run.world.vmi.get("status", {}).get("topologyHints") is None and needed(run.world.vmi)


def add_hint(run: VmiPass) -> None:
    """Promise the lowest frequency that the nodes in use can give."""
    if not waits_for_hint(run):
        return
    configured = run.world.settings.minimum_tsc_frequency
    if configured is not None and configured <= 0 and _invariant(run.world.vmi):
        message = "minimumClusterTSCFrequency in the KubeVirt configuration must be above 0."
        run.draft.event(EventType.WARNING, FAILED, message)
        run.problem = run.problem or Problem(FAILED, message)
        return
    run.status["topologyHints"] = {"tscFrequency": configured or _lowest(run)}


def _lowest(run: VmiPass) -> int:
    found = [_frequency(node) for node in run.world.nodes if _usable(node)]
    return min((frequency for frequency in found if frequency > 0), default=0)


def _frequency(node: Json) -> int:
    value = object_at(node, "metadata", "labels").get(FREQUENCY_LABEL, "")
    return int(value) if value.isdecimal() else 0


def _usable(node: Json) -> bool:
    return object_at(node, "metadata", "labels").get(words.SCHEDULABLE_LABEL) == "true"
