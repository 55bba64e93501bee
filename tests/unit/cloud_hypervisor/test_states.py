"""Each row of the table from the VMM's words to the machine's state."""

import pytest

from anyvisor.drivers.cloud_hypervisor import states
from anyvisor.drivers.cloud_hypervisor.events import Event
from anyvisor.drivers.cloud_hypervisor.states import Intent
from anyvisor.hri.kit.views import View
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_INTERNAL_ERROR,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    END_REASON_UNSPECIFIED,
    END_REASON_VMM_EXITED,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPED,
    PHASE_STOPPING,
    EndReason,
    Phase,
)


@pytest.mark.parametrize(
    ("state", "intent", "phase", "reason"),
    [
        ("Running", Intent(), PHASE_RUNNING, END_REASON_UNSPECIFIED),
        ("Running", Intent(stop=True), PHASE_STOPPING, END_REASON_UNSPECIFIED),
        ("Paused", Intent(stop=True), PHASE_PAUSED, END_REASON_UNSPECIFIED),
        ("BreakPoint", Intent(), PHASE_PAUSED, END_REASON_UNSPECIFIED),
        ("Created", Intent(), PHASE_STOPPED, END_REASON_UNKNOWN),
        ("Created", Intent(watched=True), PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN),
        ("Created", Intent(watched=True, stop=True), PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN),
        ("Shutdown", Intent(stop=True), PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN),
        ("", Intent(), PHASE_CRASHED, END_REASON_INTERNAL_ERROR),
        ("Melted", Intent(), PHASE_LOST, END_REASON_UNKNOWN),
    ],
)
def test_of_vmm_state(state: str, intent: Intent, phase: Phase, reason: EndReason) -> None:
    view = states.of_vmm_state(state, intent)
    assert (view.phase, view.end_reason) == (phase, reason)


@pytest.mark.parametrize(
    ("view", "intent", "phase", "reason"),
    [
        (View(PHASE_RUNNING), Intent(force=True), PHASE_STOPPED, END_REASON_FORCED),
        (View(PHASE_RUNNING), Intent(), PHASE_LOST, END_REASON_UNKNOWN),
        (View(PHASE_RUNNING), Intent(shutdown=True), PHASE_CRASHED, END_REASON_INTERNAL_ERROR),
        (View(PHASE_STARTING), Intent(), PHASE_CRASHED, END_REASON_VMM_EXITED),
        (View(PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN), Intent(force=True), PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN),
    ],
)
def test_after_close(view: View, intent: Intent, phase: Phase, reason: EndReason) -> None:
    after = states.after_close(view, intent)
    assert (after.phase, after.end_reason) == (phase, reason)
    assert after.message or reason in (END_REASON_FORCED, END_REASON_GUEST_SHUTDOWN)


def test_events() -> None:
    intent = Intent()
    view = states.after_event(View(PHASE_STARTING), Event("vm", "booted"), intent)
    assert (view.phase, intent.watched) == (PHASE_STARTING, True)  # the kit says when the start is done
    view = states.after_event(View(PHASE_RUNNING), Event("vm", "paused"), intent)
    assert view.phase == PHASE_PAUSED
    assert states.after_event(view, Event("vm", "resumed"), intent).phase == PHASE_RUNNING
    assert states.after_event(view, Event("vm", "resumed"), Intent(stop=True)).phase == PHASE_STOPPING
    # Attempts are told before their outcome, and also when there is none.
    for name in ("pausing", "resuming", "booting", "rebooting", "resizing", "snapshotted", "unheard-of"):
        assert states.after_event(view, Event("vm", name), intent) == view
    # A shutdown alone does not tell who is down: the VMM that stays, or the guest that it could not run.
    assert states.after_event(view, Event("vm", "shutdown"), intent) == view
    assert intent.shutdown
    panicked = states.after_event(view, Event("guest", "panic"), intent)
    assert (panicked.phase, panicked.end_reason) == (PHASE_CRASHED, END_REASON_PANIC)
    assert states.after_event(panicked, Event("vm", "rebooted"), intent) == panicked


def test_dying_loop_is_no_end_of_a_guest_that_is_down() -> None:
    down = View(PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN)
    assert states.dying(down) == down
    assert states.dying(View(PHASE_RUNNING)).end_reason == END_REASON_INTERNAL_ERROR
