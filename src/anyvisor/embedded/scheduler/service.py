"""The scheduler's loop: watches pods and nodes, binds what has a place, and says why where nothing has.

Decisions are made one after the other, as each placement changes the ground for the next: a placement counts from
the moment of its decision, before the API server accepts the binding and the watch shows it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from anyvisor.api.meta import Json
from anyvisor.embedded.scheduler.decide import Placement, decide
from anyvisor.embedded.scheduler.priority import PriorityClass, priority, unknown_class
from anyvisor.embedded.scheduler.views import Cluster, Node, Pod
from anyvisor.kube import errors
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.events import EventKind, EventRecorder, reference
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES

log = logging.getLogger(__name__)

NAME: Final = "default-scheduler"
"""Value of `spec.schedulerName` of the pods that are ours; the API's default."""

LAUNCHER_LABEL: Final = "kubevirt.io"
LAUNCHER: Final = "virt-launcher"
NODE_LABEL: Final = "kubevirt.io/nodeName"

QUIET: Final = 2.0
LONGEST_SETTLING: Final = 20.0
"""Seconds, after a start with priority classes: without one more pod, and at most."""

BINDINGS: Final = 8
"""Bindings that may be under way at once; decisions are not, as none of them waits for anything."""

Key = tuple[str, str]
V = TypeVar("V", Pod, Node)


class Scheduler:
    """One scheduler; `run` works until it is cancelled."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events
        self._cluster = Cluster()
        self._queue: WorkQueue[Key] = WorkQueue(weight=self._priority)
        self._pods = Informer(client, PODS)
        self._nodes = Informer(client, NODES)
        self._namespaces = Informer(client, NAMESPACES)
        self._priority_classes = Informer(client, PRIORITY_CLASSES)
        self._classes: dict[str, PriorityClass] = {}
        self._news = asyncio.Event()
        """Set when a pod came that is to be placed."""
        self._waiting: set[Key] = set()
        """Pods that no node would do for; tried again when something gives room."""
        self._assumed: set[Key] = set()
        """Pods that we bound and whose binding the watch has not shown yet."""

    async def run(self) -> None:
        """Watch and place; raises what breaks an informer."""
        async with AsyncExitStack() as stack:
            for informer, handler in (
                (self._priority_classes, self._class_changed),
                (self._namespaces, self._namespace_changed),
                (self._nodes, self._node_changed),
                (self._pods, self._pod_changed),
            ):
                await stack.enter_async_context(informer)
                await informer.synced.wait()
                informer.on_change(handler)
            if self._classes:
                await self._settle()
            await self._queue.run(self._place, workers=BINDINGS)

    async def _settle(self) -> None:
        """After a start, wait until no more pods come: what a restart of the machine brings is placed by priority."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_SETTLING):
                while True:
                    self._news.clear()
                    async with asyncio.timeout(QUIET):
                        await self._news.wait()

    def _priority(self, key: Key) -> int:
        found = self._pods.get(*key)
        pod = _read(found, Pod) if found is not None else None
        return priority(pod.spec, self._classes) if pod is not None else 0

    def _class_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        if new is not None:
            self._classes[new.meta.name] = new.decode(PriorityClass)
            self._retry_waiting()
        elif old is not None:
            self._classes.pop(old.meta.name, None)

    def _namespace_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        if new is not None:
            self._cluster.namespaces[new.meta.name] = new.meta.labels or {}
        elif old is not None:
            self._cluster.namespaces.pop(old.meta.name, None)

    def _node_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        if new is None:
            if old is not None:
                self._cluster.drop_node(old.meta.name)
            return
        node = _read(new, Node)
        if node is None:
            return
        known = self._cluster.nodes.get(node.name)
        if known is None or _ground(known.node) != _ground(node):
            self._cluster.set_node(node)
            self._retry_waiting()

    def _pod_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        found = new or old
        pod = _read(found, Pod) if found is not None else None
        if pod is None:
            return
        if new is None or pod.over:
            self._forget(pod.key)
        elif pod.spec.node_name:
            self._assumed.discard(pod.key)
            self._waiting.discard(pod.key)
            self._cluster.put(pod, pod.spec.node_name)
        elif pod.key not in self._assumed:
            self._news.set()
            self._queue.add(pod.key)

    def _forget(self, key: Key) -> None:
        self._assumed.discard(key)
        self._waiting.discard(key)
        if self._cluster.take(key):
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for key in waiting:
            self._queue.add(key)

    async def _place(self, key: Key) -> None:
        found = self._pods.get(*key)
        pod = _read(found, Pod) if found is not None else None
        if found is None or pod is None or key in self._assumed or not _is_open(pod):
            return
        if pod.spec.scheduler_name not in ("", NAME):
            await self._refuse(found, pod, _no_such_scheduler(pod))
            return
        if pod.spec.scheduling_gates:
            return
        if unknown_class(pod.spec, self._classes):
            self._waiting.add(key)
            await self._refuse(found, pod, f"no PriorityClass with name {pod.spec.priority_class_name} was found.")
            return
        answer = decide(pod, self._cluster)
        if isinstance(answer, Placement):
            await self._bind(found, pod, answer.node)
        else:
            self._waiting.add(key)
            await self._refuse(found, pod, answer.message)

    async def _bind(self, found: CachedObject, pod: Pod, node: str) -> None:
        namespace, name = pod.key
        binding: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid, "labels": _labels(pod, node)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._assumed.add(pod.key)
        self._cluster.put(pod, node)
        try:
            await self._client.create(PODS, binding, namespace, name=name, subresource="binding")
        except errors.ApiError as error:
            self._unassume(pod.key)
            if isinstance(error, errors.NotFound):
                return
            raise
        message = f"Successfully assigned {namespace}/{name} to {node}"
        self._events.record(reference(PODS, found), EventKind.NORMAL, "Scheduled", message)

    def _unassume(self, key: Key) -> None:
        """Take back an assumed placement, unless the watch showed meanwhile that it is real."""
        if key in self._assumed:
            self._assumed.discard(key)
            self._cluster.take(key)

    async def _refuse(self, found: CachedObject, pod: Pod, message: str) -> None:
        """Write on the pod why it waits, once for each sentence."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
        if before is not None and (before.status, before.message) == ("False", message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": now if before is None or before.status != "False" else before.last_transition_time,
        }
        namespace, name = pod.key
        patch: Json = {"status": {"conditions": [condition]}}
        try:
            await self._client.patch(PODS, name, namespace, patch, PatchType.STRATEGIC, subresource="status")
        except errors.NotFound:
            return
        self._events.record(reference(PODS, found), EventKind.WARNING, "FailedScheduling", message)


def _labels(pod: Pod, node: str) -> dict[str, str]:
    """Labels that the pod gets with its binding: a launcher's node, which the controller would have to add later."""
    return {NODE_LABEL: node} if pod.labels.get(LAUNCHER_LABEL) == LAUNCHER else {}


def _is_open(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.over and pod.metadata.deletion_timestamp is None


def _no_such_scheduler(pod: Pod) -> str:
    return (
        f"no scheduler named {pod.spec.scheduler_name!r} runs here: "
        f"leave spec.schedulerName empty or set it to {NAME!r}."
    )


def _ground(node: Node) -> tuple[Mapping[str, str], object, object, bool]:
    """What of a node can change a decision; a heartbeat changes none of it."""
    return (node.labels, node.spec, node.status.allocatable, node.not_ready)


def _read(obj: CachedObject, view: type[V]) -> V | None:
    try:
        return obj.decode(view)
    except msgspec.ValidationError as error:
        log.error("%s/%s cannot be read and is left alone: %s", *obj.key, error)
        return None
