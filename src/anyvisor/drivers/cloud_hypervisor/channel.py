"""The reading end of the event channel: a named pipe (or socket) that the agent opened, drained as it fills."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

from anyvisor.drivers.cloud_hypervisor.events import Event, EventReader

CHUNK: Final = 1 << 16


class EventChannel:
    """Calls `on_event` for each event, and `on_lost` after a piece of the stream that could not be read.

    The pipe's other end is the VMM's alone, so its end is the VMM's end.
    """

    def __init__(self, descriptor: int, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._on_event = on_event
        self._on_lost = on_lost
        self._reader = EventReader()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self.drain)
        self._open = True

    def drain(self) -> None:
        """Read what is there."""
        if not self._open:
            return
        try:
            data = os.read(self._descriptor, CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        before = self._reader.lost
        for event in self._reader.feed(data):
            self._on_event(event)
        if self._reader.lost != before:
            self._on_lost()

    def close(self) -> None:
        """Stop reading."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
