"""A work queue of keys: each key waits at most once, is worked on by one worker, and fails ever more slowly.

The semantics are those of client-go's workqueue: a key that is added while it is worked on comes again later.
"""

import asyncio
import heapq
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

from anyvisor.kube import errors
from anyvisor.kube.backoff import BackoffPolicy
from anyvisor.kube.metrics import QueueObserver

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

POLICY = BackoffPolicy(base=0.01, cap=300.0)

Reconcile = Callable[[K], Awaitable[float | None]]
"""Brings one key to its desired state; returns seconds after which to look again, or None."""


class WorkQueue(Generic[K]):
    """Belongs to one event loop; nothing in it polls."""

    def __init__(
        self,
        policy: BackoffPolicy = POLICY,
        weight: Callable[[K], int] | None = None,
        observer: QueueObserver | None = None,
    ) -> None:
        """`weight`: of the keys that are ready, the heaviest comes first, weighed when it becomes ready; else, and
        among equals, they come in the order of their coming."""
        self._policy = policy
        self._weight = weight
        self._observer = observer
        self._since: dict[K, float] = {}
        """When a waiting key was put in; kept only for the observer."""
        if observer is not None:
            observer.measures(self)
        self._ready: list[tuple[int, int, K]] = []
        """A heap: the negative weight, the place in the order of coming, the key."""
        self._places = count()
        self._dirty: set[K] = set()
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Keys that wait to be worked on now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have `key` worked on as soon as possible."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._push(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Have `key` worked on in `seconds`, or sooner if something else asks for it."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: K) -> float:
        """Count a failure of `key` and have it worked on later; returns in how many seconds."""
        if self._observer is not None:
            self._observer.retried()
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._policy.delay(failures, random.random())  # noqa: S311 - only spreads load
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Count `key` as healthy again."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Return the next key, which is then this worker's until `done`."""
        while not self._ready:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        _, _, key = heapq.heappop(self._ready)
        self._dirty.discard(key)
        self._active.add(key)
        if self._observer is not None:
            self._observer.taken(time.monotonic() - self._since.pop(key, time.monotonic()))
        return key

    def done(self, key: K) -> None:
        """Give `key` back; it comes again at once if it was added meanwhile."""
        self._active.discard(key)
        if key in self._dirty:
            self._push(key)

    def close(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def run(self, reconcile: Reconcile[K], workers: int = 1) -> None:
        """Work until cancelled, `workers` keys at a time."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work(reconcile))
        finally:
            self.close()

    async def _work(self, reconcile: Reconcile[K]) -> None:
        while True:
            key = await self.get()
            began = time.monotonic()
            try:
                again = await reconcile(key)
            except errors.Conflict as error:
                log.debug("%s: changed meanwhile, again: %s", key, error)
                self.retry(key)
            except errors.ApiError as error:
                log.warning("%s: %s; again in %.1f s", key, error, self.retry(key))
            except Exception:
                # The root of one key's work: its bug must not stop the work on all others.
                log.exception("%s: failed; again in %.1f s", key, self.retry(key))
            else:
                self.forget(key)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self.done(key)
                if self._observer is not None:
                    self._observer.worked(time.monotonic() - began)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _push(self, key: K) -> None:
        if self._observer is not None:
            self._observer.added()
            self._since[key] = time.monotonic()
        weight = self._weight(key) if self._weight is not None else 0
        heapq.heappush(self._ready, (-weight, next(self._places), key))
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
