"""A cache of one resource that a watch keeps current.

Follows the rules of client-go's reflector: the store is published once, when the initial events are complete
(they come in no order); a list is made again only when the server says that our resourceVersion is gone; what
a list no longer has is told as deleted, with its last known state; every way to fail is slowed down; and a
handler that raises ends the informer, since a component that missed an event is wrong from then on.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Self

import msgspec

from anyvisor.kube import errors
from anyvisor.kube.backoff import Backoff, BackoffPolicy
from anyvisor.kube.client import Client, EventType, WatchEvent
from anyvisor.kube.objects import CachedObject, without_managed_fields
from anyvisor.kube.resources import Resource
from anyvisor.kube.store import Change, IndexFunction, Store

log = logging.getLogger(__name__)

Handler = Callable[[CachedObject | None, CachedObject | None], None]
"""Hears (old, new) of each change; must not block, so it mostly adds a key to a queue."""

WATCH_SECONDS = (300, 600)
"""A watch is asked to end within this range, so that watchers do not come back all at once."""
OVERTIME = 30.0
"""Seconds after which a watch that should have ended counts as dead."""
INITIAL_IDLE = 10.0
"""Seconds without an initial event after which the server does not know watch-lists (KEP-3157)."""
STEADY = 5.0
"""Seconds that a watch must live for its failure to count as the first."""
POLICY = BackoffPolicy(base=0.05, cap=10.0)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _Bookmark(msgspec.Struct, frozen=True):
    class Metadata(msgspec.Struct, frozen=True):
        annotations: dict[str, str] | None = None

    metadata: Metadata = Metadata()


class Informer:
    """Use as `async with Informer(...) as pods:`; an error in it ends the block.

    Objects are kept without `metadata.managedFields`, which no controller reads.

    `synced` is set once the first list is in. `last_error` says what keeps it from being so.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        indexes: Mapping[str, IndexFunction] | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.last_error: errors.ApiError | None = None
        self._client = client
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._store = Store(indexes)
        self._handlers: list[Handler] = []
        self._version: str | None = None
        self._watch_list = True
        self._backoff = Backoff(POLICY)
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._task = self._group.create_task(self._run(), name=f"informer {self.resource.plural}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def on_change(self, handler: Handler) -> None:
        """Call `handler` for each change from now on, and at once for each object that is known."""
        self._handlers.append(handler)
        for obj in self._store.values():
            handler(None, obj)

    def get(self, namespace: str | None, name: str) -> CachedObject | None:
        """Return the object of that name; the namespace is None or "" for a cluster-scoped resource."""
        return self._store.get((namespace or "", name))

    def values(self) -> tuple[CachedObject, ...]:
        """Return all objects: the same tuple until one of them changes."""
        return self._store.values()

    def index(self, name: str, key: str) -> tuple[CachedObject, ...]:
        """Return the objects under `key` of the index `name`."""
        return self._store.index(name, key)

    @property
    def resource_version(self) -> str | None:
        """How far the cache is; None before the first list."""
        return self._version

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._round()
            except errors.ApiError as error:
                self._note(error)
            if loop.time() - began >= STEADY:
                self._backoff.reset()
            await asyncio.sleep(self._backoff.next())

    async def _round(self) -> None:
        """Follow one watch to its end; list first where no resourceVersion is known."""
        if self._version is None and self._watch_list:
            try:
                await self._watch_from_list()
            except (errors.BadRequest, errors.Invalid, errors.MethodNotAllowed) as error:
                log.info("%s: no watch-lists here (%s), listing instead", self.resource.plural, error.message)
                self._watch_list = False
            else:
                return
        if self._version is None:
            await self._list()
        async with aclosing(self._watch(initial=False)) as events:
            async for event in events:
                self._take(event)

    async def _list(self) -> None:
        objects: list[CachedObject] = []
        version = ""
        pages = self._client.list_pages(self.resource, self._namespace, labels=self._labels, fields=self._fields)
        async for page in pages:
            objects += [without_managed_fields(one) for one in page.items]
            version = page.resource_version
        self._publish(objects, version)

    async def _watch_from_list(self) -> None:
        async with aclosing(self._watch(initial=True)) as events:
            await self._initial(events)
            async for event in events:
                self._take(event)

    async def _initial(self, events: AsyncGenerator[WatchEvent]) -> None:
        staged: dict[tuple[str, str], CachedObject] = {}
        while True:
            try:
                async with asyncio.timeout(INITIAL_IDLE):
                    event = await anext(events)
            except TimeoutError:
                raise errors.Invalid(422, "Ignored", "the initial events do not end") from None
            except StopAsyncIteration:
                raise errors.Unreachable("the watch ended before its initial events did") from None
            if event.type is EventType.DELETED:
                staged.pop(event.object.key, None)
            elif event.type is not EventType.BOOKMARK:
                staged[event.object.key] = without_managed_fields(event.object)
            elif _ends_initial(event.object):
                self._publish(list(staged.values()), event.object.meta.resource_version)
                return

    async def _watch(self, *, initial: bool) -> AsyncGenerator[WatchEvent]:
        seconds = random.randint(*WATCH_SECONDS)  # noqa: S311 - only spreads load
        watch = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            labels=self._labels,
            fields=self._fields,
            timeout_seconds=seconds,
            initial_events=initial,
        )
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds + OVERTIME
        async with aclosing(watch) as events:
            while True:
                try:
                    async with asyncio.timeout_at(end):
                        event = await anext(events)
                except (TimeoutError, StopAsyncIteration):
                    return
                yield event

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case EventType.ADDED | EventType.MODIFIED:
                changes = self._store.put(without_managed_fields(event.object))
            case EventType.DELETED:
                changes = self._store.remove(event.object)
            case EventType.BOOKMARK:
                changes = []
        self._version = event.object.meta.resource_version
        self._tell(changes)

    def _publish(self, objects: list[CachedObject], version: str) -> None:
        changes = self._store.replace(objects)
        self._version = version
        self.last_error = None
        self._tell(changes)
        self.synced.set()

    def _tell(self, changes: list[Change]) -> None:
        for change in changes:
            for handler in self._handlers:
                handler(change.old, change.new)

    def _note(self, error: errors.ApiError) -> None:
        self.last_error = error
        if isinstance(error, errors.Gone) or _too_large(error):
            self._version = None
        log.log(
            logging.DEBUG if isinstance(error, errors.Gone) else logging.WARNING,
            "watch of %s: %s",
            self.resource.plural,
            error,
        )


def _ends_initial(bookmark: CachedObject) -> bool:
    annotations = bookmark.decode(_Bookmark).metadata.annotations or {}
    return annotations.get(INITIAL_EVENTS_END) == "true"


def _too_large(error: errors.ApiError) -> bool:
    """Whether the server is behind our resourceVersion, as after a restore: only a new list helps."""
    return any(cause.get("reason") == "ResourceVersionTooLarge" for cause in error.causes)
