"""The event log of one driver process: gap-free numbers, a bounded past, any number of readers at their own pace."""

import asyncio
from collections import deque

from anyvisor.hri.v1.machine_pb2 import Event


class EventLog:
    """Events numbered from 1 per driver process (`boot_id`).

    The past is bounded by count and bytes: a reader that fell out of it gets `None` from `since` and must start over
    from the whole state. A reader holds a number and no queue, so a slow one costs nothing.
    """

    def __init__(self, boot_id: str, *, max_events: int = 1024, max_bytes: int = 1 << 19) -> None:
        self.boot_id = boot_id
        self._events: deque[tuple[int, Event]] = deque()
        self._bytes = 0
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._head = 0
        self._grown = asyncio.Event()

    @property
    def head(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._head

    def append(self, event: Event, now_unix_nano: int) -> Event:
        """Number the event, keep it, wake the readers."""
        self._head += 1
        event.boot_id = self.boot_id
        event.sequence = self._head
        event.time_unix_nano = now_unix_nano
        size = event.ByteSize()
        self._events.append((size, event))
        self._bytes += size
        while self._events and (len(self._events) > self._max_events or self._bytes > self._max_bytes):
            dropped, _ = self._events.popleft()
            self._bytes -= dropped
        self._grown.set()
        self._grown = asyncio.Event()
        return event

    def since(self, sequence: int) -> list[Event] | None:
        """Every event from number `sequence` on, or None when the log cannot give all of them."""
        if sequence > self._head + 1 or sequence < 1:
            return None
        missing = self._head + 1 - sequence
        if missing > len(self._events):
            return None
        if not missing:
            return []
        return [event for _, event in list(self._events)[-missing:]]

    async def grown(self, sequence: int) -> None:
        """Wait until an event with number `sequence` exists."""
        while self._head < sequence:
            await self._grown.wait()
