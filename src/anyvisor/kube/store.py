"""The cache of one resource, with indexes; pure, so that its rules are tested without a server."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from anyvisor.kube.objects import CachedObject

Key = tuple[str, str]
"""(namespace, name)"""

IndexFunction = Callable[[CachedObject], Iterable[str]]
"""Which index keys an object stands under; must depend on the object alone."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened: created (no old), changed, or deleted (no new; old = the last known state)."""

    old: CachedObject | None
    new: CachedObject | None


class Store:
    """Objects by key; each change goes in once and comes out as what handlers must hear."""

    def __init__(self, indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self._objects: dict[Key, CachedObject] = {}
        self._values: tuple[CachedObject, ...] | None = None
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in self._functions}
        self._places: dict[Key, tuple[tuple[str, str], ...]] = {}
        """Index and index key of each object that stands in any: a function may decode it, so it is asked once."""

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> CachedObject | None:
        return self._objects.get(key)

    def values(self) -> tuple[CachedObject, ...]:
        """Return all objects: the same tuple until one of them changes."""
        if self._values is None:
            self._values = tuple(self._objects.values())
        return self._values

    def index(self, name: str, key: str) -> tuple[CachedObject, ...]:
        """Return the objects under `key` of the index `name`; raises KeyError for an unknown index."""
        return tuple(self._objects[found] for found in self._indexes[name].get(key, ()))

    def put(self, obj: CachedObject) -> list[Change]:
        """Take in an object that exists; a repetition of what is known changes nothing."""
        old = self._objects.get(obj.key)
        if old is None:
            self._enter(obj)
            return [Change(None, obj)]
        if old.meta.resource_version == obj.meta.resource_version:
            return []
        self._leave(old)
        self._enter(obj)
        if old.meta.uid != obj.meta.uid:
            return [Change(old, None), Change(None, obj)]
        return [Change(old, obj)]

    def remove(self, obj: CachedObject) -> list[Change]:
        """Take out an object, known by its last state `obj`."""
        old = self._objects.get(obj.key)
        if old is None:
            return []
        self._leave(old)
        return [Change(obj if obj.meta.uid == old.meta.uid else old, None)]

    def replace(self, objects: Iterable[CachedObject]) -> list[Change]:
        """Take in a whole list; what it lacks was deleted unseen, and its last known state is told."""
        fresh = {obj.key: obj for obj in objects}
        changes: list[Change] = []
        for key in [key for key in self._objects if key not in fresh]:
            changes += self.remove(self._objects[key])
        for obj in fresh.values():
            changes += self.put(obj)
        return changes

    def _enter(self, obj: CachedObject) -> None:
        key = obj.key
        self._objects[key] = obj
        self._values = None
        places = tuple((name, value) for name, function in self._functions.items() for value in function(obj))
        for name, value in places:
            self._indexes[name].setdefault(value, set()).add(key)
        if places:
            self._places[key] = places

    def _leave(self, obj: CachedObject) -> None:
        key = obj.key
        del self._objects[key]
        self._values = None
        for name, value in self._places.pop(key, ()):
            keys = self._indexes[name].get(value)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._indexes[name][value]
