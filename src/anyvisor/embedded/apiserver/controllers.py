"""The controllers that keep the API's own promises: garbage collection, namespaces, custom resource definitions.

They react to changes as they become visible and write through the same writer as everyone, under their own name.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver import crd_rules, crds
from anyvisor.embedded.apiserver.callout import Callout
from anyvisor.embedded.apiserver.entries import Entry, Event, Key
from anyvisor.embedded.apiserver.escalation import aggregated_rules
from anyvisor.embedded.apiserver.furnishing import Furnishing
from anyvisor.embedded.apiserver.garbage import GarbageCollector, Where, call_as
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.objectmeta import now_text
from anyvisor.embedded.apiserver.params import DeleteOptions
from anyvisor.embedded.apiserver.quota import QUOTAS, used_in
from anyvisor.embedded.apiserver.resource import Registry, Resource
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.values import as_object, lookup
from anyvisor.embedded.apiserver.writes import Writer

log = logging.getLogger(__name__)
Json = dict[str, Any]

NAMESPACE_IDENTITY = Identity("system:serviceaccount:kube-system:namespace-controller", (MASTERS,))
ROLE_IDENTITY = Identity("system:serviceaccount:kube-system:clusterrole-aggregation-controller", (MASTERS,))
CLUSTER_ROLES = "rbac.authorization.k8s.io/clusterroles"
RETRY_SECONDS = 1.0
EVENT_SECONDS = 3600
EVENT_CHECK_SECONDS = 300.0


def last_seen(event: Json) -> datetime:
    """Return when an event was last reported."""
    stamps = (
        lookup(event, ("series", "lastObservedTime")),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        lookup(event, ("metadata", "creationTimestamp")),
    )
    for stamp in stamps:
        with suppress(ValueError):
            if stamp:
                moment = datetime.fromisoformat(str(stamp))
                return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return datetime.now(UTC)


class Controllers:
    """One task that works through what changes have made due."""

    def __init__(
        self, state: State, registry: Registry, writer: Writer, furnishing: Furnishing, callout: Callout
    ) -> None:
        self._state = state
        self._registry = registry
        self._writer = writer
        self._furnishing = furnishing
        self._callout = callout
        self._garbage = GarbageCollector(state, registry, writer)
        self._graph = self._garbage.graph
        self._due: dict[tuple[str, Where], None] = {}
        self._wake = asyncio.Event()
        self._loaded = False
        self._steps: dict[str, Callable[[Where], Awaitable[None]]] = {
            "orphaned": self._garbage.collect,
            "owner-gone": self._garbage.collect_dependents,
            "finalize": self._garbage.finalize,
            "namespace": self._namespace,
            "crd": self._definition,
            "crd-status": self._definition_status,
            "role": self._aggregate,
            "quota": self._count_quota,
            "furnish": furnishing.furnish,
        }
        state.listen(self._changed)

    def load(self) -> None:
        """Build the graph of what was stored, register the stored CRDs, and make everything due once."""
        definitions = self._state.collection(crd_rules.STORE)
        for entry in list(definitions.range(None)):
            self._register(entry)
        for collection in self._state.collections():
            for entry in collection.range(None):
                self._graph.update(collection.resource, entry, None, deleted=False)
        for collection in self._state.collections():
            for entry in collection.range(None):
                self._examine(collection.resource, entry)
                self._furnish(collection.resource, entry)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed: list[tuple[str, Where]] = []
            while self._due:
                item = next(iter(self._due))
                del self._due[item]
                if not await self._attempt(item):
                    failed.append(item)
            if failed:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._again, failed)

    async def expire_events(self) -> None:
        """Remove events that are older than an hour, until cancelled; they would grow without end."""
        while True:
            await asyncio.sleep(EVENT_CHECK_SECONDS)
            oldest = datetime.now(UTC) - timedelta(seconds=EVENT_SECONDS)
            collection = self._state.collection("events")
            for entry in list(collection.range(None)):
                event = entry.object()
                if last_seen(event) < oldest and collection.latest(entry.key) is entry:
                    with suppress(StatusError):
                        await self._state.remove(collection, event, entry)

    async def _attempt(self, item: tuple[str, Where]) -> bool:
        step, where = item
        try:
            await self._steps[step](where)
        except StatusError as error:
            if error.code not in (404, 409):
                log.warning("%s of %s %s: %s; will try again", step, where[0], where[1], error.message)
            return error.code == 404
        except Exception:
            log.exception("%s of %s %s failed; will try again", step, where[0], where[1])
            return False
        return True

    def _again(self, items: list[tuple[str, Where]]) -> None:
        for item in items:
            self._due[item] = None
        self._wake.set()

    def _enqueue(self, step: str, where: Where) -> None:
        self._due[(step, where)] = None
        self._wake.set()

    # -- what a change makes due ----------------------------------------------------------------------------

    def _changed(self, resource: str, event: Event) -> None:
        entry = event.entry
        self._graph.update(resource, entry, event.previous, deleted=event.deleted)
        if resource == crd_rules.STORE:
            self._definition_changed(event)
        if resource == CLUSTER_ROLES:
            self._roles_changed()
        self._quota_due(resource, entry.key[0])
        self._furnish(resource, entry)
        if event.deleted:
            if entry.uid in self._graph.dependents:
                self._enqueue("owner-gone", (entry.uid, entry.key))
            for owner in entry.owners:
                self._enqueue_owner(owner)
            self._namespace_shrank(entry.key[0])
            self._definition_shrank(resource)
        else:
            self._examine(resource, entry)

    def _furnish(self, resource: str, entry: Entry) -> None:
        where = self._furnishing.due(resource, entry)
        if where is not None:
            self._enqueue("furnish", where)

    def _examine(self, resource: str, entry: Entry) -> None:
        where = (resource, entry.key)
        if entry.owners and any(uid not in self._graph.objects for uid in entry.owners):
            self._enqueue("orphaned", where)
        if entry.deleting:
            if resource == "namespaces":
                self._enqueue("namespace", where)
            elif resource == crd_rules.STORE:
                self._enqueue("crd", where)
            self._enqueue("finalize", where)
            for owner in entry.owners:
                self._enqueue_owner(owner)

    def _enqueue_owner(self, uid: str) -> None:
        where = self._graph.objects.get(uid)
        if where is not None:
            entry = self._state.collection(where[0]).entries.get(where[1])
            if entry is not None and entry.deleting:
                self._enqueue("finalize", where)

    def _namespace_shrank(self, namespace: str) -> None:
        if namespace:
            entry = self._state.collection("namespaces").entries.get(("", namespace))
            if entry is not None and entry.deleting:
                self._enqueue("namespace", ("namespaces", ("", namespace)))

    def _roles_changed(self) -> None:
        for entry in self._state.collection(CLUSTER_ROLES).range(None):
            if b'"aggregationRule"' in entry.raw:
                self._enqueue("role", (CLUSTER_ROLES, entry.key))

    async def aggregate_roles(self) -> None:
        """Bring every aggregated role up to date now, as a new server must before it answers."""
        for entry in list(self._state.collection(CLUSTER_ROLES).range(None)):
            if b'"aggregationRule"' in entry.raw:
                await self._aggregate((CLUSTER_ROLES, entry.key))

    async def _aggregate(self, where: Where) -> None:
        """Bring the rules of an aggregated role up to date."""
        entry = self._state.collection(where[0]).entries.get(where[1])
        resource = self._garbage.resource(where[0])
        if entry is None or resource is None:
            return
        if aggregated_rules(self._state, entry.object()) in (None, entry.object().get("rules")):
            return

        def change(role: Json) -> Json:
            role["rules"] = aggregated_rules(self._state, role) or []
            return role

        await self._writer.update(call_as(ROLE_IDENTITY, resource, where[1]), change)

    def _quota_due(self, resource: str, namespace: str) -> None:
        quotas = self._state.collection(QUOTAS)
        if namespace and quotas.entries and resource not in ("events", "coordination.k8s.io/leases"):
            for entry in quotas.range(namespace):
                self._enqueue("quota", (QUOTAS, entry.key))

    async def _count_quota(self, where: Where) -> None:
        """Write what is used into the status of a quota."""
        collection = self._state.collection(QUOTAS)
        entry = collection.entries.get(where[1])
        if entry is None or collection.latest(where[1]) is not entry:
            return
        quota = entry.object()
        hard = object_at(quota, "spec", "hard")
        used = used_in(self._state, self._registry.stored(), where[1][0], hard)
        status: Json = {"hard": hard, "used": {name: str(amount) for name, amount in used.items()}}
        if quota.get("status") != status:
            quota["status"] = status
            await self._state.put(collection, quota, entry)

    # -- namespaces -----------------------------------------------------------------------------------------

    async def _namespace(self, where: Where) -> None:
        """Empty a namespace that is being deleted, then let it go."""
        name = where[1][1]
        namespaces = self._state.collection("namespaces")
        entry = namespaces.entries.get(where[1])
        if entry is None:
            return
        left = 0
        for store, resource in self._registry.stores().items():
            if not resource.namespaced or not store:
                continue
            for item in list(self._state.collection(store).range(name)):
                left += 1
                if not item.deleting:
                    await self._delete_quietly(resource, item.key)
        if left or namespaces.latest(where[1]) is not entry:
            return
        obj = entry.object()
        obj["spec"] = {name: value for name, value in as_object(obj.get("spec")).items() if name != "finalizers"}
        if obj["metadata"].get("finalizers"):
            if entry.object().get("spec") != obj["spec"]:
                await self._state.put(namespaces, obj, entry)
        else:
            await self._state.remove(namespaces, obj, entry)

    async def _delete_quietly(self, resource: Resource, key: Key) -> None:
        try:
            call = call_as(NAMESPACE_IDENTITY, resource, key)
            await self._writer.delete(call, DeleteOptions(propagation="Background"))
        except StatusError as error:
            if error.code != 404:
                log.warning("cannot delete %s %s: %s", resource.plural, key, error.message)

    # -- custom resource definitions ------------------------------------------------------------------------

    def _definition_changed(self, event: Event) -> None:
        if event.previous is not None:
            self._unregister(event.previous, keep=None if event.deleted else event.entry)
        if not event.deleted:
            self._register(event.entry)
            self._enqueue("crd-status", (crd_rules.STORE, event.entry.key))

    def _register(self, entry: Entry) -> None:
        crd = entry.object()
        if not crd_rules.is_established(crd):
            return
        for resource in crds.resources(crd, self._callout):
            self._registry.add(resource)
            self._state.register_fields(resource.store, resource.read_fields if resource.selectable else None)

    def _unregister(self, entry: Entry, keep: Entry | None) -> None:
        old = entry.object()
        same = keep is not None and keep.object().get("spec") == old.get("spec")
        for resource in crds.resources(old):
            served = self._registry.find(resource.group, resource.version, resource.plural)
            if served is None:
                continue
            self._registry.remove(served)
            if not same:
                self._state.collection(served.store).cut_watchers()

    async def _definition_status(self, where: Where) -> None:
        """Keep the list of versions in which objects may be stored, and try again for names that were taken."""
        definitions = self._state.collection(crd_rules.STORE)
        entry = definitions.entries.get(where[1])
        if entry is None or definitions.latest(where[1]) is not entry:
            return
        crd = entry.object()
        clashes = [] if crd_rules.is_established(crd) else crd_rules.conflicts(crd, self._registry.all())
        status = crd_rules.status_of(crd, clashes, now_text())
        if crd.get("status") != status:
            crd["status"] = status
            await self._state.put(definitions, crd, entry)

    async def _definition(self, where: Where) -> None:
        """Delete the objects of a CRD that is being deleted, then let it go."""
        definitions = self._state.collection(crd_rules.STORE)
        entry = definitions.entries.get(where[1])
        if entry is None:
            return
        crd = entry.object()
        finalizers: list[str] = crd["metadata"].get("finalizers") or []
        if crd_rules.CLEANUP_FINALIZER not in finalizers:
            return
        store = f"{crd['spec']['group']}/{crd['spec']['names']['plural']}"
        resource = self._garbage.resource(store)
        left = list(self._state.collection(store).range(None))
        if left and resource is not None:
            if crd_rules.mark_terminating(crd, now_text()) and definitions.latest(where[1]) is entry:
                await self._state.put(definitions, crd, entry)
            for item in left:
                if not item.deleting:
                    await self._delete_quietly(resource, item.key)
            return  # the end of each makes it due again
        definition = self._registry.find(crd_rules.GROUP, "v1", crd_rules.PLURAL)
        assert definition is not None
        await self._garbage.remove_finalizer(definition, entry.key, crd_rules.CLEANUP_FINALIZER)

    def _definition_shrank(self, store: str) -> None:
        group, _, plural = store.rpartition("/")
        key = ("", f"{plural}.{group}")
        entry = self._state.collection(crd_rules.STORE).entries.get(key)
        if entry is not None and entry.deleting:
            self._enqueue("crd", (crd_rules.STORE, key))
