"""What waits for one watch to read it."""

import asyncio
from collections import deque

from anyvisor.embedded.apiserver.entries import Event, classify
from anyvisor.embedded.apiserver.selectors import Selector

WATCH_EVENTS = 2048
WATCH_BYTES = 32 << 20
"""What may wait for one slow watcher before it is cut off."""


class Watcher:
    """The queue of one watch: bounded, filled by the loop, drained by one stream."""

    def __init__(self, namespace: str | None, name: str | None, selector: Selector) -> None:
        self.bucket = (namespace, name)
        self._selector = selector
        self._events: deque[tuple[str, Event]] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.cut_off = False
        """Set when the reader was too slow, or the resource went away: the watch must end."""

    def offer(self, event: Event) -> None:
        """Queue the event if it concerns this watch."""
        kind = classify(event, self._selector)
        if kind is None or self.cut_off:
            return
        self._events.append((kind, event))
        self._bytes += event.size
        if len(self._events) > WATCH_EVENTS or self._bytes > WATCH_BYTES:
            self.cut()
        self._wake()

    def cut(self) -> None:
        """End the watch without its remaining events; the client lists or watches again."""
        self.cut_off = True
        self._events.clear()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, deadline: float) -> list[tuple[str, Event]]:
        """Return what is queued, at once or as soon as something comes; empty at `deadline` (loop time).

        The timer lives as long as the deadline stays the same, so that an event costs no timer.
        """
        loop = asyncio.get_running_loop()
        if not self._events and not self.cut_off and loop.time() < deadline:
            if deadline != self._deadline or self._timer is None:
                self.close()
                self._deadline = deadline
                self._timer = loop.call_at(deadline, self._wake)
            self._waiter = loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        batch = list(self._events)
        self._events.clear()
        self._bytes = 0
        return batch

    def close(self) -> None:
        """Drop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
