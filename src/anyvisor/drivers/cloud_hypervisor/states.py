"""From the VMM's states and events to the machine's state. Pure, so that each row can be tested.

The VMM is started with `--no-shutdown`: after a guest's power-off the process stays and answers `Created`, so the end
of a run waits for whoever reads it. A process that ends although nobody asked it to was ended from outside, or could
not run the guest any further; both look the same (exit status 0), and its own log tells the difference.
"""

from dataclasses import dataclass, replace
from typing import Final

from anyvisor.drivers.cloud_hypervisor.events import Event
from anyvisor.hri.kit import views
from anyvisor.hri.kit.views import View
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_INTERNAL_ERROR,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    END_REASON_VMM_EXITED,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPED,
    PHASE_STOPPING,
)

CREATED: Final = "Created"
RUNNING: Final = "Running"
PAUSED: Final = "Paused"
MISSING: Final = ""
"""The VMM runs and has no machine."""


@dataclass(slots=True)
class Intent(views.Intent):
    """What was asked of the guest, or seen of it, on this connection."""

    watched: bool = False
    """The guest ran while this client watched: an end that it sees now is the guest's own."""
    shutdown: bool = False
    """The VMM has told that the guest went down."""


def of_vmm_state(state: str, intent: Intent) -> View:
    """The state of a VMM that was asked (`vm.info`)."""
    match state:
        case "Running":
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case "Paused" | "BreakPoint":
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_USER)
        case "Created" | "Shutdown":
            return _down(intent)
        case "":
            return View(
                PHASE_CRASHED,
                END_REASON_INTERNAL_ERROR,
                message="the VMM has no machine: its start was cut off; destroy the machine and start it again",
            )
        case _:
            return View(PHASE_LOST, END_REASON_UNKNOWN, message=f"the VMM reports the unknown state {state[:40]!r}")


def after_event(view: View, event: Event, intent: Intent) -> View:
    """The state after an event. Notes in `intent` what the event tells of the guest."""
    if view.final:
        return view
    match event.source, event.name:
        case "vm", "booted" | "rebooted":
            intent.watched = True
            return view if view.phase == PHASE_STARTING else View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case "vm", "shutdown":
            intent.shutdown = True
            return view
        case "vm", "paused":
            return View(PHASE_PAUSED, pause_reason=PAUSE_REASON_USER)
        case "vm", "resumed":
            return View(PHASE_STOPPING if intent.stop else PHASE_RUNNING)
        case "guest", "panic":
            return View(PHASE_CRASHED, END_REASON_PANIC, message="the guest panicked")
        case _:
            return view


def after_close(view: View, intent: Intent) -> View:
    """The state once the VMM is gone."""
    if view.final:
        return view
    if intent.force:
        return View(PHASE_STOPPED, END_REASON_FORCED)
    if view.phase == PHASE_STARTING:
        return View(
            PHASE_CRASHED,
            END_REASON_VMM_EXITED,
            message="Cloud Hypervisor ended before the guest ran; its own message stands in the launcher's log",
        )
    if intent.shutdown:
        return View(
            PHASE_CRASHED,
            END_REASON_INTERNAL_ERROR,
            message="Cloud Hypervisor ended by itself: it was ended from outside, or could not run the guest any "
            "further; its own message stands in the launcher's log",
        )
    return View(PHASE_LOST, END_REASON_UNKNOWN, message="Cloud Hypervisor ended without a word about the guest")


def dying(view: View) -> View:
    """The state of a VMM whose control loop has died while its process may still run."""
    if view.final:
        return view
    return View(
        PHASE_CRASHED,
        END_REASON_INTERNAL_ERROR,
        message="the control loop of Cloud Hypervisor died; its own message stands in the launcher's log",
    )


def paused(view: View) -> View:
    """The state after a pause that the VMM had done already."""
    return replace(view, phase=PHASE_PAUSED, pause_reason=PAUSE_REASON_USER)


def _down(intent: Intent) -> View:
    if intent.stop:
        return View(PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN)
    if intent.watched:
        return View(PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN)
    return View(PHASE_STOPPED, END_REASON_UNKNOWN)
