"""One pass over a VirtualMachineInstance."""

from typing import Final

from anyvisor.api.meta import Json, annotations, finalizers, list_at, object_at, text_at, uid
from anyvisor.api.quantity import Quantity
from anyvisor.controller import words
from anyvisor.controller.conditions import has, make, remove, timestamp, update
from anyvisor.controller.outcome import Change, Outcome, Problem
from anyvisor.controller.planned import chosen_by
from anyvisor.controller.semantic import equal
from anyvisor.controller.versions import version_seen
from anyvisor.controller.vmi import (
    claims,
    hotplug,
    launcher,
    phases,
    pod_sync,
    pods,
    ready,
    state_claim,
)
from anyvisor.controller.vmi.world import UnfinishedPassError, VmiPass, VmiWorld, begin
from anyvisor.kube.resources import VMIS

NODE_PHASES: Final = frozenset({words.SCHEDULED, words.RUNNING})
"""Phases in which the instance is its node's; this controller then writes only a few fields of its status."""
SHARED_STATUS: Final = (
    "volumeStatus",
    "conditions",
    "activePods",
    "phase",
    "launcherContainerImageVersion",
    "interfaces",
    "hypervisor",
)


def reconcile_vmi(world: VmiWorld) -> Outcome:
    """Bring the instance's pods and status up to date."""
    seen = version_seen(world.vmi)
    if seen is not None:
        return Outcome((Change(VMIS, world.vmi, seen),))
    run = begin(world)
    pod = pods.current(run)
    pod = launcher.sync(run, pod)
    existing = pod if pod in world.pods else None
    if existing is not None and run.problem is None:
        pod = _sync_living_pod(run, existing)
    try:
        _update_status(run, pod)
    except UnfinishedPassError as cause:
        run.draft.problem = Problem(words.FAILED_CREATE, str(cause))
        return run.draft.outcome()
    _write(run)
    if run.problem is not None and run.problem.retry:
        run.draft.problem = run.problem
    return run.draft.outcome()


def with_problem(world: VmiWorld, problem: Problem) -> Outcome:
    """The status of an instance of which a write was refused."""
    run = begin(world)
    run.problem = problem
    if run.phase not in NODE_PHASES and not run.final:
        phases.is_synchronized(run)
        _write(run)
    run.draft.problem = problem
    return run.draft.outcome()


def _sync_living_pod(run: VmiPass, pod: Json) -> Json:
    """Follow changes of the instance on a pod whose guest may run."""
    if _leaves(run) or pods.is_temporary(pod) or not pods.is_ready(pod):
        return pod
    pod = pod_sync.sync_ready_pod(run, pod)
    if run.phase in NODE_PHASES:
        hotplug.sync(run, pod)
    return pod


def _leaves(run: VmiPass) -> bool:
    return run.final or run.waits_for_source or bool(object_at(run.world.vmi, "metadata").get("deletionTimestamp"))


def _update_status(run: VmiPass, pod: Json | None) -> None:
    _rename_finalizer(run)
    _set_active_pods(run)
    ready.sync_ready(run, pod)
    if pod is not None and not pods.is_temporary(pod):
        _set_hypervisor(run, pod)
        pod_sync.sync_image(run, pod)
        if pod in run.world.pods or any(uid(pod) == uid(one) for one in run.world.pods if uid(one)):
            pod = pod_sync.sync_unpaused(run, pod)
            pod = pod_sync.sync_metadata(run, pod)
    volumes = claims.data_volumes(run)
    claims.sync_condition(run, volumes)
    state_claim.update_volume_status(run)
    _set_memory_overhead(run, pod)
    phases.advance(run, pod, volumes)
    _set_eviction_requested(run)
    if run.phase not in NODE_PHASES:
        if not run.final:  # then the agent says there how the guest ended
            phases.is_synchronized(run)
        _note_transition(run)


def _set_hypervisor(run: VmiPass, pod: Json) -> None:
    """Tell which hypervisor runs the instance, by the plan that its pod carries."""
    if not object_at(run.status, "hypervisor"):
        found = chosen_by(pod)
        if found is not None:
            run.status["hypervisor"] = found


def _rename_finalizer(run: VmiPass) -> None:
    present = finalizers(run.vmi)
    if words.VMI_FINALIZER_OLD in present:
        kept = [one for one in present if one != words.VMI_FINALIZER_OLD]
        run.vmi["metadata"]["finalizers"] = list(dict.fromkeys([*kept, words.VMI_FINALIZER]))


def _set_active_pods(run: VmiPass) -> None:
    """Which pods hold this instance, and where: what proves that it runs at most once."""
    found = {uid(pod): text_at(pod, "spec", "nodeName") for pod in pods.owned(run)}
    if found or run.status.get("activePods") is not None:
        run.status["activePods"] = found


def _set_memory_overhead(run: VmiPass, pod: Json | None) -> None:
    overhead = annotations(pod).get(words.MEMORY_OVERHEAD, "") if pod is not None else ""
    if overhead.isdecimal() and pod is not None and not pods.is_temporary(pod):
        amount = str(Quantity.of_bytes(int(overhead)))
        run.status["memory"] = {**object_at(run.status, "memory"), "memoryOverhead": amount}


def _set_eviction_requested(run: VmiPass) -> None:
    if not run.marked_for_eviction:
        remove(run.conditions, words.EVICTION_REQUESTED)
    elif not has(run.conditions, words.EVICTION_REQUESTED, "True"):
        message = "The instance was asked to leave its node."
        reason = "EvictionRequested"
        update(run.conditions, make(words.EVICTION_REQUESTED, "True", reason, message, run.world.now))


def _note_transition(run: VmiPass) -> None:
    phase = text_at(run.status, "phase")
    known = list_at(run.vmi, "status", "phaseTransitionTimestamps")
    if phase == run.phase or any(entry.get("phase") == phase for entry in known):
        return
    entry = {"phase": phase, "phaseTransitionTimestamp": timestamp(run.world.now)}
    run.status["phaseTransitionTimestamps"] = [*known, entry]


def _write(run: VmiPass) -> None:
    before = run.world.vmi
    after = run.vmi
    if run.phase in NODE_PHASES:
        after = {**before, "metadata": {**before["metadata"]}, "status": {**object_at(before, "status")}}
        for field in SHARED_STATUS:
            if field in run.status:
                after["status"][field] = run.status[field]
        for field in ("labels", "finalizers"):
            if field in run.vmi["metadata"]:
                after["metadata"][field] = run.vmi["metadata"][field]
    parts = ("labels", "annotations", "finalizers")
    same = all(equal(before["metadata"].get(part), after["metadata"].get(part)) for part in parts)
    if not same or not equal(before.get("status"), after.get("status")):
        run.draft.writes.append(Change(VMIS, before, after))
