"""Objects that every namespace has: they are made with it, and made anew when somebody deletes or changes them.

On a cluster that is the service-account and the root-CA controller's work; charts and clients rely on what they make.
"""

import copy
from collections.abc import Sequence
from typing import Any

from anyvisor.embedded.apiserver.entries import Entry
from anyvisor.embedded.apiserver.garbage import Where, call_as
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.resource import Registry, Resource
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.writes import Writer

Json = dict[str, Any]

IDENTITY = Identity("system:serviceaccount:kube-system:root-ca-cert-publisher", (MASTERS,))
NAMESPACES = "namespaces"


class Furnishing:
    """Keeps the given objects, which name no namespace, in each namespace that is not being deleted."""

    def __init__(self, objects: Sequence[Json], state: State, registry: Registry, writer: Writer) -> None:
        self._state = state
        self._writer = writer
        self._wanted: list[tuple[Resource, Json]] = []
        for obj in objects:
            group, _, version = str(obj["apiVersion"]).rpartition("/")
            resource = registry.find_kind(group, version, obj["kind"])
            if resource is None:
                raise ValueError(f"no namespace can have a {obj['kind']} of {obj['apiVersion']}: it is not served")
            self._wanted.append((resource, obj))
        self._names = {(resource.store, obj["metadata"]["name"]) for resource, obj in self._wanted}

    def due(self, store: str, entry: Entry) -> Where | None:
        """Return the namespace that a change makes worth a look, if any."""
        if not self._wanted:
            return None
        if store == NAMESPACES:
            return NAMESPACES, entry.key
        return (NAMESPACES, ("", entry.key[0])) if (store, entry.key[1]) in self._names else None

    async def furnish(self, where: Where) -> None:
        """Make what a namespace lacks, and put right what was changed."""
        entry = self._state.collection(NAMESPACES).entries.get(where[1])
        if entry is None or entry.deleting:
            return
        namespace = where[1][1]
        for resource, obj in self._wanted:
            name = obj["metadata"]["name"]
            call = call_as(IDENTITY, resource, (namespace, name))
            there = self._state.collection(resource.store).latest((namespace, name))
            if there is None:
                await self._writer.create(call, copy.deepcopy(obj))
            elif _differs(there.object(), obj):
                await self._writer.update(call, lambda old, obj=obj: {**old, **_own(obj)})


def _own(obj: Json) -> Json:
    return {name: copy.deepcopy(value) for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata")}


def _differs(there: Json, wanted: Json) -> bool:
    return any(there.get(name) != value for name, value in _own(wanted).items())
