"""Garbage collection: objects go with their owners, by background, foreground or orphan deletion."""

from collections.abc import Callable
from typing import Any

from anyvisor.embedded.apiserver.calls import Call
from anyvisor.embedded.apiserver.deletion import FOREGROUND, ORPHAN
from anyvisor.embedded.apiserver.entries import Entry, Key
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.params import DeleteOptions, WriteOptions
from anyvisor.embedded.apiserver.resource import Registry, Resource
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.writes import Writer

Json = dict[str, Any]
Where = tuple[str, Key]
"""A store and a key in it."""

IDENTITY = Identity("system:serviceaccount:kube-system:generic-garbage-collector", (MASTERS,))


def call_as(identity: Identity, resource: Resource, key: Key) -> Call:
    """Return a write in the name of a controller."""
    return Call(resource, identity, WriteOptions(field_manager=identity.user.rpartition(":")[2]), *key)


class Graph:
    """Who owns whom, by uid; kept up to date by each visible change."""

    def __init__(self) -> None:
        self.objects: dict[str, Where] = {}
        self.dependents: dict[str, set[Where]] = {}

    def update(self, resource: str, entry: Entry, previous: Entry | None, *, deleted: bool) -> None:
        where = (resource, entry.key)
        before = previous.owners if previous is not None else ()
        for uid in before:
            if deleted or uid not in entry.owners:
                self._drop(uid, where)
        if deleted:
            self.objects.pop(entry.uid, None)
            return
        self.objects[entry.uid] = where
        for uid in entry.owners:
            self.dependents.setdefault(uid, set()).add(where)

    def _drop(self, uid: str, where: Where) -> None:
        found = self.dependents.get(uid)
        if found is not None:
            found.discard(where)
            if not found:
                del self.dependents[uid]


class GarbageCollector:
    """Carries out what owner references and deletion policies ask for."""

    def __init__(self, state: State, registry: Registry, writer: Writer) -> None:
        self._state = state
        self._registry = registry
        self._writer = writer
        self.graph = Graph()

    def resource(self, store: str) -> Resource | None:
        """Return the resource of a collection."""
        return self._registry.stores().get(store)

    async def collect_dependents(self, where: Where) -> None:
        """Collect what an object owned that is gone; the first part of `where` is its uid."""
        uid = where[0]
        for dependent in list(self.graph.dependents.get(uid, ())):
            await self.collect(dependent)

    async def collect(self, where: Where) -> None:
        """Delete an object whose owners are all gone; forget single owners that are gone."""
        entry = self._state.collection(where[0]).entries.get(where[1])
        resource = self.resource(where[0])
        if entry is None or resource is None or entry.deleting:
            return
        owners: list[Json] = entry.object()["metadata"].get("ownerReferences") or []
        gone = [owner["uid"] for owner in owners if self._is_gone(owner, where[1][0])]
        if not gone:
            return
        call = call_as(IDENTITY, resource, where[1])
        if len(gone) == len(owners):
            await self._writer.delete(call, DeleteOptions(propagation="Background", uid=entry.uid))
        else:
            await self._writer.update(call, _without_owners(set(gone)))

    def _is_gone(self, owner: Json, namespace: str) -> bool:
        group, _, version = str(owner.get("apiVersion", "")).rpartition("/")
        resource = self._registry.find_kind(group, version, owner["kind"])
        if resource is None:
            resource = self._registry.kind_in_group(group, owner["kind"])
        if resource is None:
            return False
        key = (namespace if resource.namespaced else "", owner["name"])
        entry = self._state.collection(resource.store).latest(key)
        return entry is None or entry.uid != owner["uid"]

    async def finalize(self, where: Where) -> None:
        """Carry out the `foregroundDeletion` and `orphan` finalizers of one object."""
        entry = self._state.collection(where[0]).entries.get(where[1])
        resource = self.resource(where[0])
        if entry is None or resource is None:
            return
        finalizers: list[str] = entry.object()["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for dependent in list(self.graph.dependents.get(entry.uid, ())):
                await self._release(dependent, entry.uid)
            await self.remove_finalizer(resource, entry.key, ORPHAN)
        elif FOREGROUND in finalizers and not await self._blocked(entry):
            await self.remove_finalizer(resource, entry.key, FOREGROUND)

    async def _blocked(self, owner: Entry) -> bool:
        blocked = False
        for where in list(self.graph.dependents.get(owner.uid, ())):
            entry = self._state.collection(where[0]).entries.get(where[1])
            resource = self.resource(where[0])
            if entry is None or resource is None:
                continue
            owners: list[Json] = entry.object()["metadata"].get("ownerReferences") or []
            leaving = {item["uid"] for item in owners if self._leaves(item, owner, where[1][0])}
            if len(leaving) < len(owners):  # it has an owner that stays, so it stays, and blocks nobody
                await self._writer.update(call_as(IDENTITY, resource, entry.key), _without_owners(leaving))
                continue
            if any(item["uid"] == owner.uid and item.get("blockOwnerDeletion") for item in owners):
                blocked = True
            if not entry.deleting:
                policy = "Foreground" if entry.uid in self.graph.dependents else "Background"
                call = call_as(IDENTITY, resource, entry.key)
                await self._writer.delete(call, DeleteOptions(propagation=policy, uid=entry.uid))
        return blocked

    def _leaves(self, reference: Json, owner: Entry, namespace: str) -> bool:
        """Whether an owner goes: it is the one being deleted, is gone, or waits for its own dependents."""
        if reference["uid"] == owner.uid or self._is_gone(reference, namespace):
            return True
        where = self.graph.objects.get(reference["uid"])
        other = self._state.collection(where[0]).entries.get(where[1]) if where is not None else None
        finalizers: list[str] = other.object()["metadata"].get("finalizers") or [] if other is not None else []
        return other is not None and other.deleting and FOREGROUND in finalizers

    async def _release(self, where: Where, uid: str) -> None:
        resource = self.resource(where[0])
        if resource is not None:
            await self._writer.update(call_as(IDENTITY, resource, where[1]), _without_owners({uid}))

    async def remove_finalizer(self, resource: Resource, key: Key, name: str) -> None:
        """Take one finalizer off an object."""

        def change(obj: Json) -> Json:
            kept = [item for item in obj["metadata"].get("finalizers") or () if item != name]
            if kept:
                obj["metadata"]["finalizers"] = kept
            else:
                obj["metadata"].pop("finalizers", None)
            return obj

        await self._writer.update(call_as(IDENTITY, resource, key), change)


def _without_owners(gone: set[str]) -> Callable[[Json], Json]:
    def change(obj: Json) -> Json:
        kept = [item for item in obj["metadata"].get("ownerReferences") or () if item["uid"] not in gone]
        if kept:
            obj["metadata"]["ownerReferences"] = kept
        else:
            obj["metadata"].pop("ownerReferences", None)
        return obj

    return change
