"""What the server knows: every object in memory, its recent history, and who watches it.

One event loop owns this state. A write is first queued for the store and visible to the next write of the same
object; once it is on disk it becomes visible to readers and watchers, in order of resourceVersion.
"""

import asyncio
import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from anyvisor.embedded.apiserver.entries import NOTHING, Entry, Event, FieldReader, Key, encode, make_entry
from anyvisor.embedded.apiserver.status import StatusError, expired, unavailable
from anyvisor.embedded.apiserver.store import Compaction, Row, Store, StoreError
from anyvisor.embedded.apiserver.watcher import Watcher

log = logging.getLogger(__name__)
Json = dict[str, Any]

HISTORY_EVENTS = 4096
HISTORY_BYTES = 8 << 20
"""Bounds of one resource's watch history."""
COMPACT_ROWS = 256
"""Old versions that gather before they are removed from the disk."""

Listener = Callable[[str, Event], None]


class Collection:
    """All objects of one stored resource."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.read_fields: FieldReader | None = None
        self.entries: dict[Key, Entry] = {}
        self.order: list[Key] = []
        self.pending: dict[Key, Event] = {}
        self.history: deque[Event] = deque()
        self.history_bytes = 0
        self.newest = 0
        """The version of the last change that became visible."""
        self.floor = 0
        """History up to and including this version is gone."""
        self.garbage: list[int] = []
        self._watchers: dict[tuple[str | None, str | None], set[Watcher]] = {}

    def latest(self, key: Key) -> Entry | None:
        """Return the newest version, on disk or on its way there: what the next write builds on."""
        event = self.pending.get(key)
        if event is None:
            return self.entries.get(key)
        return None if event.deleted else event.entry

    def apply(self, event: Event) -> None:
        """Make a change visible and remember it."""
        key = event.entry.key
        if event.deleted:
            if self.entries.pop(key, None) is not None:
                del self.order[bisect_left(self.order, key)]
        else:
            if key not in self.entries:
                insort(self.order, key)
            self.entries[key] = event.entry
        self.newest = event.rv
        self.history.append(event)
        self.history_bytes += event.size
        while len(self.history) > HISTORY_EVENTS or self.history_bytes > HISTORY_BYTES:
            self._forget()

    def _forget(self) -> None:
        event = self.history.popleft()
        self.history_bytes -= event.size
        self.floor = event.rv
        if event.previous is not None:
            self.garbage.append(event.previous.rv)
        if event.deleted:
            self.garbage.append(event.rv)

    def notify(self, event: Event) -> None:
        namespace, name = event.entry.key
        for bucket in ((None, None), (namespace, None), (None, name), (namespace, name)):
            for watcher in self._watchers.get(bucket, ()):
                watcher.offer(event)

    def watch(self, watcher: Watcher) -> None:
        self._watchers.setdefault(watcher.bucket, set()).add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        watcher.close()
        bucket = self._watchers.get(watcher.bucket)
        if bucket is not None:
            bucket.discard(watcher)
            if not bucket:
                del self._watchers[watcher.bucket]

    def cut_watchers(self) -> None:
        """End all watches: the resource is no longer served as it was."""
        for bucket in self._watchers.values():
            for watcher in bucket:
                watcher.cut()

    def since(self, rv: int) -> list[Event]:
        """Return the events after `rv`. Raises a 410 Status when that history is gone."""
        if rv < self.floor:
            raise expired(f"too old resource version: {rv} ({self.floor})")
        found: list[Event] = []
        for event in reversed(self.history):
            if event.rv <= rv:
                break
            found.append(event)
        found.reverse()
        return found

    def range(self, namespace: str | None, start: Key | None = None) -> Iterator[Entry]:
        """Iterate over the visible objects of one namespace, or of all, from `start` on."""
        low = bisect_left(self.order, start if start is not None else (namespace or "", ""))
        for at in range(low, len(self.order)):
            key = self.order[at]
            if namespace is not None and key[0] != namespace:
                return
            yield self.entries[key]

    def snapshot(self, rv: int, namespace: str | None, start: Key | None = None) -> list[Entry]:
        """Return the objects as they were at `rv`, in order of their keys. Raises a 410 Status."""
        state: dict[Key, Entry | None] = {}
        for event in reversed(self.since(rv)):
            state[event.entry.key] = event.previous
        if not state:
            return list(self.range(namespace, start))
        found = {entry.key: entry for entry in self.range(namespace, start)}
        for key, entry in state.items():
            if (namespace is not None and key[0] != namespace) or (start is not None and key < start):
                continue
            if entry is None:
                found.pop(key, None)
            else:
                found[key] = entry
        return [found[key] for key in sorted(found)]


@dataclass(slots=True)
class _InFlight:
    collection: Collection
    event: Event
    future: asyncio.Future[Entry]


class State:
    """All collections, the version counter, and the writes that are on their way to disk."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._collections: dict[str, Collection] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._listeners: list[Listener] = []
        self._epoch = 0
        self._assigned = 1
        self.visible = 1
        """The newest version that readers see."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[str, FieldReader] = {}

    @property
    def assigned(self) -> int:
        """The newest version that a write was given, on disk or on its way there."""
        return self._assigned

    def register_fields(self, resource: str, reader: FieldReader | None) -> None:
        """Say how the selectable fields of a resource are read; call it before `load` where possible."""
        if reader is not None:
            self._readers[resource] = reader
        collection = self._collections.get(resource)
        if collection is not None:
            collection.read_fields = reader

    def collection(self, resource: str) -> Collection:
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection(resource)
            found.read_fields = self._readers.get(resource)
        return found

    def collections(self) -> Sequence[Collection]:
        return list(self._collections.values())

    def listen(self, listener: Listener) -> None:
        """Call `listener(resource, event)` on the loop for every change that becomes visible."""
        self._listeners.append(listener)

    def load(self) -> None:
        """Read the log. Blocks; call it before `start`."""
        floors = self._store.floors()
        for resource, floor in floors.items():
            self.collection(resource).floor = floor
        for row in self._store.rows():
            collection = self.collection(row.resource)
            try:
                entry = make_entry(row, collection.read_fields)
            except msgspec.DecodeError as error:
                raise StoreError(
                    f"the database is damaged: {row.resource} {row.namespace}/{row.name}, version {row.rv}: {error}; "
                    "restore it from a backup"
                ) from error
            previous = collection.entries.get(entry.key)
            self.visible = self._assigned = row.rv
            if row.rv > collection.floor:
                collection.apply(Event(row.rv, entry, previous, row.deleted))
            elif not row.deleted:
                insort(collection.order, entry.key)
                collection.entries[entry.key] = entry
        self._assigned = self.visible = max([self.visible, *floors.values()])

    def start(self) -> None:
        """Start the store's threads; needs the running loop."""
        self._loop = asyncio.get_running_loop()
        self._store.start(self._on_commit)

    async def close(self) -> None:
        """Wait for the writes in flight and stop the store."""
        waiting = [flight.future for flight in self._in_flight.values()]
        if waiting:
            await asyncio.wait(waiting)
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)

    def put(self, collection: Collection, obj: Json, previous: Entry | None) -> asyncio.Future[Entry]:
        """Queue a new version of `obj`; sets its resourceVersion. The future ends when it is durable."""
        return self._submit(collection, obj, previous, deleted=False)

    async def durable(self, entry: Entry) -> None:
        """Wait until a version that was read by `latest` is on disk. Raises the Status of a failed write."""
        flight = self._in_flight.get(entry.rv)
        if flight is not None:
            await asyncio.shield(flight.future)

    def remove(self, collection: Collection, obj: Json, previous: Entry) -> asyncio.Future[Entry]:
        """Queue the removal of an object whose last state is `obj`."""
        return self._submit(collection, obj, previous, deleted=True)

    def _submit(
        self, collection: Collection, obj: Json, previous: Entry | None, *, deleted: bool
    ) -> asyncio.Future[Entry]:
        assert self._loop is not None
        self._assigned += 1
        rv = self._assigned
        metadata: Json = obj["metadata"]
        metadata["resourceVersion"] = str(rv)
        entry = Entry(
            rv,
            (metadata.get("namespace", ""), metadata["name"]),
            metadata["uid"],
            encode(obj),
            metadata.get("labels") or NOTHING,
            collection.read_fields(obj) if collection.read_fields is not None else NOTHING,
            tuple(owner["uid"] for owner in metadata.get("ownerReferences", ())),
            "deletionTimestamp" in metadata,
        )
        event = Event(rv, entry, previous, deleted)
        collection.pending[entry.key] = event
        future: asyncio.Future[Entry] = self._loop.create_future()
        self._in_flight[rv] = _InFlight(collection, event, future)
        self._store.submit(Row(rv, collection.resource, *entry.key, deleted, entry.raw), self._epoch)
        return future

    def _on_commit(self, rows: Sequence[Row], failure: BaseException | None) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._finish, [row.rv for row in rows], failure)

    def _finish(self, versions: Sequence[int], failure: BaseException | None) -> None:
        if failure is not None:
            self._fail_all(failure)
            return
        for rv in versions:
            flight = self._in_flight.pop(rv)
            collection, event = flight.collection, flight.event
            if collection.pending.get(event.entry.key) is event:
                del collection.pending[event.entry.key]
            collection.apply(event)
            self.visible = rv
            collection.notify(event)
            self._tell(collection.resource, event)
            if not flight.future.done():
                flight.future.set_result(event.entry)
            if len(collection.garbage) >= COMPACT_ROWS:
                self._store.compact(Compaction(collection.resource, collection.floor, collection.garbage))
                collection.garbage = []

    def _tell(self, resource: str, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(resource, event)
            except Exception:
                log.exception("a listener failed on %s %s", resource, event.entry.key)

    def _fail_all(self, failure: BaseException) -> None:
        """Take back every write in flight: later ones may build on the one that the disk refused."""
        self._epoch += 1
        flights = list(self._in_flight.values())
        self._in_flight.clear()
        for flight in flights:
            flight.collection.pending.clear()
            if not flight.future.done():
                flight.future.set_exception(_write_failed(failure))


def _write_failed(failure: BaseException) -> StatusError:
    return unavailable(
        f"the object was not stored: {failure}; free space on the disk of the control plane and try again"
    )
