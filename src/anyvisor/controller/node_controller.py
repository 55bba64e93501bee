"""The shell of the node controller: looks at nodes whose heartbeat may be overdue."""

from datetime import UTC, datetime

from anyvisor.api.meta import Json, controller_of
from anyvisor.controller.nodes import NodeState, reconcile_node, until_unresponsive
from anyvisor.controller.outcome import Change, Outcome
from anyvisor.controller.sources import NODE, NODE_LEASES, Sources, get, index, key_of, pod_node
from anyvisor.controller.writer import Writer
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import NODES, VMIS

RECHECK = 60.0
"""Seconds between two looks at a node that does not answer and still has instances or pods."""


class NodeController:
    """Follows nodes until cancelled; `force` is for one machine, see `nodes.reconcile_node`."""

    def __init__(self, client: Client, events: EventRecorder, sources: Sources, *, force: bool) -> None:
        self._client = client
        self._events = events
        self._sources = sources
        self._force = force
        self._queue: WorkQueue[str] = WorkQueue()

    async def run(self) -> None:
        """Work on every node that something happened to, and on each when its heartbeat would be overdue."""
        self._sources.nodes.on_change(self._node_changed)
        self._sources.pods.on_change(self._pod_changed)
        await self._queue.run(self._reconcile)

    def _node_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        """A heartbeat alone changes nothing here; the next look is timed by the last one."""
        found = new or old
        if found is not None and (old is None or new is None or _ground(old) != _ground(new)):
            self._queue.add(found.meta.name)

    def _pod_changed(self, _old: CachedObject | None, new: CachedObject | None) -> None:
        if new is not None and new.meta.deletion_timestamp is not None:
            for node in pod_node(new):
                self._queue.add(node)

    async def _reconcile(self, node: str) -> float | None:
        sources = self._sources
        now = datetime.now(UTC)
        state = NodeState(node, get(sources.nodes, None, node), get(sources.leases, NODE_LEASES, node))
        instances = index(sources.vmis, NODE, node)
        pods: dict[str, list[Json]] = {}
        for pod in index(sources.pods, NODE, node):
            owner = controller_of(pod)
            pods.setdefault(str(owner.get("uid", "")) if owner is not None else "", []).append(pod)
        outcome = reconcile_node(state, instances, pods, now, force=self._force)
        await self._carry_out(outcome, state, node)
        if outcome.requeue_after is not None:
            return outcome.requeue_after
        due = until_unresponsive(state, now)
        return due if due is not None else (RECHECK if instances or pods else None)

    async def _carry_out(self, outcome: Outcome, state: NodeState, node: str) -> None:
        """Each lost instance gets its own event; the rest is written in the node's name."""
        lost = [one for one in outcome.writes if isinstance(one, Change)]
        for change, event in zip(lost, outcome.events, strict=True):
            await Writer(self._client, self._events, VMIS, change.before).carry_out(Outcome((change,), (event,)))
        rest = tuple(one for one in outcome.writes if not isinstance(one, Change))
        subject = state.node or {"metadata": {"name": node}}
        await Writer(self._client, self._events, NODES, subject).carry_out(Outcome(rest))


def _ground(node: CachedObject) -> Json:
    found = node.json()
    return {"spec": found.get("spec"), "labels": found["metadata"].get("labels"), "key": key_of(node)}
