"""From QEMU's run states and events to the machine's state. Pure, so that each row can be tested.

What ended a guest is known only to a connected client: QEMU keeps the run state for whoever comes later, and not the
cause. `Intent` is what this driver has asked for, or seen others ask for, on this connection.
"""

from dataclasses import replace
from typing import Any, Final

from anyvisor.drivers.qemu.qmp.protocol import Event
from anyvisor.drivers.qemu.translate.disks import disk_of
from anyvisor.hri.kit.views import Intent, View
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_GUEST_REBOOT,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_INTERNAL_ERROR,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    END_REASON_VMM_KILLED,
    END_REASON_WATCHDOG,
    PAUSE_REASON_IO_ERROR,
    PAUSE_REASON_MIGRATION,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_MOVING_IN,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    PHASE_STOPPING,
)

MAX_MESSAGE: Final = 400


def of_run_state(status: str, intent: Intent) -> View:
    """The state of a QEMU that is asked anew (`query-status`)."""
    match status:
        case "running" | "suspended":
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case "shutdown":
            return View(PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN if intent.stop else END_REASON_UNKNOWN)
        case "guest-panicked":
            return _panicked()
        case "internal-error":
            return _internal_error()
        case "io-error":
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_IO_ERROR, message=_io_error("", ""))
        case "watchdog":
            return _watchdog()
        case "prelaunch":
            return View(PHASE_PREPARED)
        case "inmigrate":
            return View(PHASE_MOVING_IN)
        case "postmigrate" | "finish-migrate":
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_MIGRATION)
        case _:
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_USER)


def after_event(view: View, event: Event, intent: Intent) -> View:
    """The state after an event. May note an intent that shows in the event."""
    if view.final:
        return view
    match event.name:
        case "SHUTDOWN":
            return _after_shutdown(view, event.data, intent)
        case "GUEST_PANICKED":
            return _panicked() if event.data.get("action") in ("pause", "poweroff") else view
        case "BLOCK_IO_ERROR" if event.data.get("action") == "stop":
            reason = "the storage is full" if event.data.get("nospace") is True else _text(event.data, "reason")
            message = _io_error(disk_of(_text(event.data, "node-name") or _text(event.data, "device")), reason)
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_IO_ERROR, message=message)
        case "WATCHDOG" if event.data.get("action") == "pause":
            return _watchdog()
        case "POWERDOWN":
            intent.stop = intent.stop or not intent.reboot
            return replace(view, phase=PHASE_STOPPING) if view.phase == PHASE_RUNNING and intent.stop else view
        case "STOP":
            paused = view.phase in (PHASE_RUNNING, PHASE_STOPPING) and not intent.reboot
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_USER) if paused else view
        case "RESUME":
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case _:
            return view


def after_close(view: View, intent: Intent) -> View:
    """The state once QEMU is gone."""
    if view.final:
        return view
    if intent.force:
        return View(PHASE_STOPPED, END_REASON_FORCED)
    return View(PHASE_LOST, END_REASON_UNKNOWN, message="QEMU ended without a word about the guest")


def _after_shutdown(view: View, data: dict[str, Any], intent: Intent) -> View:
    match data.get("reason"):
        case "guest-shutdown":
            if intent.reboot:
                return view
            return View(PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN if intent.stop else END_REASON_GUEST_SHUTDOWN)
        case "guest-reset":
            return View(PHASE_STOPPED, END_REASON_GUEST_REBOOT)
        case "guest-panic":
            return _panicked()
        case "host-signal":
            return View(PHASE_STOPPED, END_REASON_VMM_KILLED, message="QEMU was ended by a signal")
        case "host-qmp-quit":
            return View(PHASE_STOPPED, END_REASON_FORCED)
        case _:
            return View(PHASE_STOPPED, END_REASON_UNKNOWN)


def _panicked() -> View:
    return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest's kernel panicked")


def _watchdog() -> View:
    """A watchdog pauses only where it is to power off: the driver ends the guest then."""
    return View(PHASE_STOPPED, END_REASON_WATCHDOG, message="the guest's watchdog fired and powered it off")


def _internal_error() -> View:
    return View(
        PHASE_CRASHED,
        END_REASON_INTERNAL_ERROR,
        message="QEMU cannot go on running the guest (internal error of the accelerator)",
    )


def _io_error(where: str, reason: str) -> str:
    place = f" on disk {where}" if where else ""
    why = f": {reason}" if reason else ""
    return f"paused by an I/O error{place}{why}; it goes on by itself when the storage works again"[:MAX_MESSAGE]


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value[:200] if isinstance(value, str) else ""
