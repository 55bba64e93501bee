"""From libvirt's domain states and events to the machine's state. Pure, so that each row can be tested.

The numbers are libvirt's (virDomainState, virDomainEventType and their reasons), written out so that these tables need
no binding; `tests/unit/libvirt` compares them with it.
"""

from enum import IntEnum
from typing import Final

from anyvisor.hri.kit.views import Intent, View
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    END_REASON_VMM_EXITED,
    END_REASON_VMM_KILLED,
    PAUSE_REASON_IO_ERROR,
    PAUSE_REASON_MIGRATION,
    PAUSE_REASON_USER,
    PAUSE_REASON_WATCHDOG,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    PHASE_STOPPING,
    PauseReason,
)


class State(IntEnum):
    """virDomainState."""

    RUNNING = 1
    BLOCKED = 2
    PAUSED = 3
    SHUTDOWN = 4
    SHUTOFF = 5
    CRASHED = 6
    SUSPENDED = 7


class ShutOff(IntEnum):
    """virDomainShutoffReason, as far as it tells something."""

    SHUTDOWN = 1
    DESTROYED = 2
    CRASHED = 3
    FAILED = 6


class Lifecycle(IntEnum):
    """virDomainEventType, as far as it is followed."""

    STARTED = 2
    SUSPENDED = 3
    RESUMED = 4
    STOPPED = 5
    CRASHED = 8


class Stopped(IntEnum):
    """virDomainEventStoppedDetailType, as far as it tells something."""

    SHUTDOWN = 0
    DESTROYED = 1
    CRASHED = 2


_PAUSES: Final[dict[int, PauseReason]] = {
    2: PAUSE_REASON_MIGRATION,
    5: PAUSE_REASON_IO_ERROR,
    6: PAUSE_REASON_WATCHDOG,
}
"""virDomainPausedReason; everything else is somebody's wish."""
_SUSPENSIONS: Final[dict[int, PauseReason]] = {
    1: PAUSE_REASON_MIGRATION,
    2: PAUSE_REASON_IO_ERROR,
    3: PAUSE_REASON_WATCHDOG,
}
"""virDomainEventSuspendedDetailType."""
_STARTING_UP: Final = 11
"""virDomainPausedReason of a domain that is being started."""
_MESSAGES: Final[dict[PauseReason, str]] = {
    PAUSE_REASON_IO_ERROR: "a disk of the guest failed; see that its storage works and has room",
    PAUSE_REASON_WATCHDOG: "the guest's watchdog fired",
}


def of_domain(state: int, reason: int, intent: Intent) -> View:
    """The state of a domain that is asked anew."""
    match state:
        case State.RUNNING | State.BLOCKED | State.SUSPENDED:
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case State.PAUSED:
            return View(PHASE_PREPARED) if reason == _STARTING_UP else _paused(_PAUSES.get(reason, PAUSE_REASON_USER))
        case State.SHUTDOWN:
            return View(PHASE_STOPPING)
        case State.CRASHED:
            return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest panicked")
        case _:
            return _shut_off(reason, intent)


def _shut_off(reason: int, intent: Intent) -> View:
    """A domain that is down keeps how it came to that, until the daemon restarts."""
    if intent.force or reason == ShutOff.DESTROYED:
        return View(PHASE_STOPPED, END_REASON_FORCED)
    if reason == ShutOff.SHUTDOWN:
        return View(PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN if intent.stop else END_REASON_UNKNOWN)
    if reason == ShutOff.CRASHED:
        return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest panicked")
    if reason == ShutOff.FAILED:
        return _failed()
    return gone()


def gone() -> View:
    """The state of a machine whose domain is not there any more."""
    return View(PHASE_LOST, END_REASON_UNKNOWN, message="libvirt does not run the domain any more, and not why")


def after_lifecycle(view: View, event: int, detail: int, intent: Intent) -> View:
    """The state after a lifecycle event."""
    if view.final:
        return view
    match event:
        case Lifecycle.STARTED | Lifecycle.RESUMED:
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case Lifecycle.SUSPENDED:
            return _paused(_SUSPENSIONS.get(detail, PAUSE_REASON_USER))
        case Lifecycle.CRASHED:
            return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest panicked")
        case Lifecycle.STOPPED:
            return _stopped(detail, intent)
        case _:
            return view


def _stopped(detail: int, intent: Intent) -> View:
    if intent.force:
        return View(PHASE_STOPPED, END_REASON_FORCED)
    if detail == Stopped.SHUTDOWN:
        return View(PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN if intent.stop else END_REASON_GUEST_SHUTDOWN)
    if detail == Stopped.DESTROYED:
        return View(PHASE_STOPPED, END_REASON_VMM_KILLED, message="another client of libvirt ended the domain")
    if detail == Stopped.CRASHED:
        return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest panicked")
    return _failed()


def _failed() -> View:
    return View(PHASE_CRASHED, END_REASON_VMM_EXITED, message="the VMM ended with an error; libvirt's log tells which")


def _paused(reason: PauseReason) -> View:
    return View(PHASE_PAUSED, pause_reason=reason, message=_MESSAGES.get(reason, ""))


def io_error(device: str, reason: str) -> View:
    """A guest that was stopped since a disk failed."""
    why = "the storage is full" if reason == "enospc" else (reason or "the storage failed")
    message = f"disk {device or 'unknown'}: {why}; the guest goes on when its storage works again"
    return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_IO_ERROR, message=message)
