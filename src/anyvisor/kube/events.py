"""Records Events (core/v1) on objects; a repetition raises the count of the one that is there.

Like client-go's recorder, it folds floods: many different messages of one reason become one event, and each
object has a budget. Recording never blocks and never fails the caller: an event is a courtesy, no contract.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeVar

from anyvisor.api.meta import Json
from anyvisor.kube import errors
from anyvisor.kube.backoff import Backoff, BackoffPolicy
from anyvisor.kube.client import Client
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import EVENTS, Resource

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MESSAGE_LIMIT = 1024
"""Characters; the API's limit for an event's message."""
NAME_LIMIT = 253 - 17
"""Characters of the object's name in that of the event, which may have 253 with its hash."""
KNOWN = 4096
"""Objects and events that are remembered."""
PENDING = 1024
"""Events that may wait to be written."""
BURST, REFILL = 25, 300.0
"""Events that an object may have at once, and seconds until it may have one more."""
SIMILAR, WINDOW = 10, 600.0
"""Different messages of one reason, and the seconds they are counted in, before they are folded into one."""
ATTEMPTS = 5
FLUSH = 1.0
"""Seconds that the end of a recorder waits for what is still to be written."""
POLICY = BackoffPolicy(base=0.2, cap=10.0)


class EventKind(StrEnum):
    """How much an event matters."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""

    def json(self) -> Json:
        """Return the `involvedObject`."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


def reference(resource: Resource, obj: CachedObject) -> Reference:
    """Return what an event about `obj` refers to."""
    meta = obj.meta
    return Reference(resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid, meta.resource_version)


@dataclass(frozen=True, slots=True)
class EventKey:
    """What makes two events the same."""

    reference: Reference
    kind: EventKind
    reason: str
    message: str

    def name(self, component: str) -> str:
        """Return the event's name; the same in every process, so that a restart goes on counting."""
        text = "\0".join((component, self.reference.uid, self.kind, self.reason, self.message))
        return f"{self.reference.name[:NAME_LIMIT].rstrip('-.')}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Similar:
    since: float
    messages: set[str] = field(default_factory=set[str])


class FloodFilter:
    """Decides which events are worth writing; pure, told the time."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._similar: OrderedDict[tuple[str, str], _Similar] = OrderedDict()

    def admit(self, key: EventKey, now: float) -> EventKey | None:
        """Return what to record for `key`: itself, a folded form of it, or nothing."""
        if not self._spend(key.reference.uid, now):
            return None
        similar = self._similar.get((key.reference.uid, key.reason))
        if similar is None or now - similar.since > WINDOW:
            similar = _Similar(now)
        _remember(self._similar, (key.reference.uid, key.reason), similar)
        if key.message in similar.messages or len(similar.messages) < SIMILAR:
            similar.messages.add(key.message)
            return key
        message = f"(combined from similar events): more messages like: {min(similar.messages)}"
        return EventKey(key.reference, key.kind, key.reason, message[:MESSAGE_LIMIT])

    def _spend(self, uid: str, now: float) -> bool:
        bucket = self._buckets.get(uid) or _Bucket(BURST, now)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL)
        bucket.at = now
        _remember(self._buckets, uid, bucket)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > KNOWN:
        known.popitem(last=False)


class EventRecorder:
    """Use as `async with EventRecorder(client, "controller") as events:`."""

    def __init__(self, client: Client, component: str, host: str = "", clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._source = {"component": component, **({"host": host} if host else {})}
        self._component = component
        self._clock = clock
        self._filter = FloodFilter()
        self._pending: OrderedDict[EventKey, int] = OrderedDict()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._task = self._group.create_task(self._run(), name="event recorder")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                await self._written.wait()
        if self._task is not None:
            self._task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def record(self, about: Reference, kind: EventKind, reason: str, message: str) -> None:
        """Have an event written soon; `reason` is a stable CamelCase word, `message` a sentence."""
        key = self._filter.admit(EventKey(about, kind, reason, message[:MESSAGE_LIMIT]), self._clock())
        if key is None:
            return
        self._pending[key] = self._pending.get(key, 0) + 1
        if len(self._pending) > PENDING:
            self._pending.popitem(last=False)
        self._written.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                key, times = self._pending.popitem(last=False)
                await self._deliver(key, times)
            self._written.set()

    async def _deliver(self, key: EventKey, times: int) -> None:
        backoff = Backoff(POLICY)
        for _ in range(ATTEMPTS):
            try:
                await self._write(key, times)
                return
            except (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Conflict):
                await asyncio.sleep(backoff.next())
            except errors.ApiError as error:
                log.info("event %s on %s is not recorded: %s", key.reason, key.reference.name, error)
                return
        log.warning("event %s on %s is lost: no answer", key.reason, key.reference.name)

    async def _write(self, key: EventKey, times: int) -> None:
        name = key.name(self._component)
        namespace = key.reference.namespace or "default"
        if name not in self._counts:
            try:
                await self._client.create(EVENTS, self._event(key, name, namespace, times))
            except errors.AlreadyExists:
                # The right to patch is enough to learn the count; reading events is a right of its own.
                known = await self._client.patch(EVENTS, name, namespace, {"lastTimestamp": self._now()})
                _remember(self._counts, name, int(known.get("count") or 1))
            else:
                _remember(self._counts, name, times)
                return
        count = self._counts[name] + times
        patch = {"count": count, "lastTimestamp": self._now()}
        try:
            await self._client.patch(EVENTS, name, namespace, patch)
        except errors.NotFound:
            del self._counts[name]
            await self._client.create(EVENTS, self._event(key, name, namespace, times))
            count = times
        _remember(self._counts, name, count)

    def _event(self, key: EventKey, name: str, namespace: str, times: int) -> Json:
        now = self._now()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": key.reference.json(),
            "type": key.kind.value,
            "reason": key.reason,
            "message": key.message,
            "source": self._source,
            "reportingComponent": self._component,
            "reportingInstance": self._source.get("host", ""),
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": times,
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
