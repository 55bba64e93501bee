"""Nodes that no longer answer: which of their instances are lost, and which pods nobody can end any more. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from anyvisor.api.meta import Json, annotations, condition, is_deleting, list_at, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.conditions import parse_timestamp
from anyvisor.controller.outcome import Change, Delete, Draft, EventType, Outcome
from anyvisor.kube.resources import PODS, VMIS

UNRESPONSIVE: Final = timedelta(minutes=5)
"""Since the last heartbeat, until a node counts as not answering."""
GONE_GRACE: Final = timedelta(seconds=30)
"""After a pod on a node that is gone was asked to end, until it is ended without the node."""
HEARTBEAT: Final = "kubevirt.io/heartbeat"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class NodeState:
    """What is known of one node."""

    name: str
    node: Json | None
    lease: Json | None = None


def last_heartbeat(state: NodeState) -> datetime | None:
    """When the node was last heard of: its agent's own mark, else its lease, else its Ready condition."""
    if state.node is None:
        return None
    own = parse_timestamp(annotations(state.node).get(HEARTBEAT))
    lease = parse_timestamp(object_at(state.lease or {}, "spec").get("renewTime"))
    ready = condition(state.node, "Ready") or {}
    return own or lease or parse_timestamp(ready.get("lastHeartbeatTime"))


def answers(state: NodeState, now: datetime) -> bool:
    """Whether somebody on the node can still act; a node that never told anything is given the doubt."""
    if state.node is None:
        return False
    heard = last_heartbeat(state)
    return heard is None or now - heard <= UNRESPONSIVE


def until_unresponsive(state: NodeState, now: datetime) -> float | None:
    """Seconds until the node would count as not answering; None where that cannot be told or is so."""
    heard = last_heartbeat(state)
    if heard is None or not answers(state, now):
        return None
    return (UNRESPONSIVE - (now - heard)).total_seconds() + 1


def out_of_service(state: NodeState) -> bool:
    """Whether an admin vouches that nothing runs on the node any more."""
    taints = list_at(state.node or {}, "spec", "taints")
    return any(taint.get("key") == OUT_OF_SERVICE for taint in taints)


def reconcile_node(
    state: NodeState,
    instances: Sequence[Json],
    pods: Mapping[str, Sequence[Json]],
    now: datetime,
    *,
    force: bool,
) -> Outcome:
    """What is to be done about a node's instances and pods.

    `pods` are the node's pods by the uid of their controller. An instance is lost when its node does not answer and
    none of its pods runs: a pod object that still runs is what keeps the instance from running twice. A pod that was
    asked to end is deleted at once when its node object is gone or out of service, and, with `force`, when the
    node does not answer (on one machine, where the guest's disk locks keep it from running twice).
    """
    draft = Draft()
    if not answers(state, now):
        for vmi in instances:
            _declare_lost(draft, vmi, pods.get(uid(vmi), ()))
    nobody = state.node is None or out_of_service(state)
    if nobody or (force and not answers(state, now)):
        for group in pods.values():
            for pod in group:
                _end(draft, pod, now, at_once=nobody and state.node is not None)
    return draft.outcome()


def _declare_lost(draft: Draft, vmi: Json, pods: Sequence[Json]) -> None:
    if text_at(vmi, "status", "phase") not in {words.SCHEDULED, words.RUNNING}:
        return
    if any(not _has_ended(pod) for pod in pods):
        return
    after = {**vmi, "status": {**object_at(vmi, "status"), "phase": words.FAILED, "reason": words.NODE_UNRESPONSIVE}}
    draft.writes.append(Change(VMIS, vmi, after))
    node = text_at(vmi, "status", "nodeName")
    message = f"Node {node} does not answer and no pod of the instance runs there: the instance has failed."
    draft.event(EventType.WARNING, words.NODE_UNRESPONSIVE, message)


def _has_ended(pod: Json) -> bool:
    if text_at(pod, "status", "phase") in {"Succeeded", "Failed"}:
        return True
    statuses = list_at(pod, "status", "containerStatuses")
    return bool(statuses) and all(object_at(one, "state").get("terminated") is not None for one in statuses)


def _end(draft: Draft, pod: Json, now: datetime, *, at_once: bool) -> None:
    if not is_deleting(pod) and not at_once:
        return
    asked = _asked_to_end(pod)
    if not at_once and asked is not None and now < asked + GONE_GRACE:
        draft.again((asked + GONE_GRACE - now).total_seconds() + 1)
        return
    draft.writes.append(Delete(PODS, pod, grace=0))


def _asked_to_end(pod: Json) -> datetime | None:
    """When the deletion was asked for: the object's deletionTimestamp is when its grace would be over."""
    metadata = object_at(pod, "metadata")
    over = parse_timestamp(metadata.get("deletionTimestamp"))
    grace = metadata.get("deletionGracePeriodSeconds")
    return over - timedelta(seconds=grace) if over is not None and isinstance(grace, int) else over
