"""After an I/O error the storage may come back, and nobody tells: let the guest try again, less and less often."""

import asyncio
from collections.abc import Callable
from typing import Final

from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.types_pb2 import PAUSE_REASON_IO_ERROR

FIRST_SECONDS: Final = 1.0
LAST_SECONDS: Final = 60.0


class IoRetry:
    """Calls `resume` while the machine is paused for an I/O error; `look` after each change of its state."""

    def __init__(self, machine: MachineContext, resume: Callable[[], None]) -> None:
        self._machine = machine
        self._resume = resume
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = FIRST_SECONDS

    def look(self) -> None:
        """Set the timer if the machine is paused for an I/O error and none is set."""
        if self._machine.state.pause_reason != PAUSE_REASON_IO_ERROR or self._timer is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._try)
        self._seconds = min(self._seconds * 2, LAST_SECONDS)

    def _try(self) -> None:
        self._timer = None
        if self._machine.state.pause_reason == PAUSE_REASON_IO_ERROR:
            self._resume()

    def cancel(self) -> None:
        """Try no more: somebody else decides, or the guest is gone. The next error begins with a short wait."""
        self._seconds = FIRST_SECONDS
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
