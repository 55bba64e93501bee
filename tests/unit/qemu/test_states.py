"""Run states and events -> the machine's state, row by row."""

import pytest

from anyvisor.drivers.qemu.qmp import Event
from anyvisor.drivers.qemu.states import after_close, after_event, of_run_state
from anyvisor.hri.kit.views import Intent, View
from anyvisor.hri.v1 import types_pb2 as t

RUNNING = View(t.PHASE_RUNNING)
STOPPING = View(t.PHASE_STOPPING)
PAUSED = View(t.PHASE_PAUSED, pause_reason=t.PAUSE_REASON_USER)


def shutdown(reason: str, *, guest: bool = True) -> Event:
    return Event("SHUTDOWN", {"guest": guest, "reason": reason})


@pytest.mark.parametrize(
    ("status", "stop", "phase", "end", "pause"),
    [
        ("running", False, t.PHASE_RUNNING, 0, 0),
        ("running", True, t.PHASE_STOPPING, 0, 0),
        ("suspended", False, t.PHASE_RUNNING, 0, 0),
        ("paused", False, t.PHASE_PAUSED, 0, t.PAUSE_REASON_USER),
        ("debug", False, t.PHASE_PAUSED, 0, t.PAUSE_REASON_USER),
        ("prelaunch", False, t.PHASE_PREPARED, 0, 0),
        ("inmigrate", False, t.PHASE_MOVING_IN, 0, 0),
        ("postmigrate", False, t.PHASE_PAUSED, 0, t.PAUSE_REASON_MIGRATION),
        ("io-error", False, t.PHASE_PAUSED, 0, t.PAUSE_REASON_IO_ERROR),
        ("watchdog", False, t.PHASE_STOPPED, t.END_REASON_WATCHDOG, 0),
        ("shutdown", False, t.PHASE_STOPPED, t.END_REASON_UNKNOWN, 0),
        ("shutdown", True, t.PHASE_STOPPED, t.END_REASON_REQUESTED_SHUTDOWN, 0),
        ("guest-panicked", False, t.PHASE_CRASHED, t.END_REASON_PANIC, 0),
        ("internal-error", False, t.PHASE_CRASHED, t.END_REASON_INTERNAL_ERROR, 0),
        ("a state of the future", False, t.PHASE_PAUSED, 0, t.PAUSE_REASON_USER),
    ],
)
def test_run_states(status: str, stop: bool, phase: t.Phase, end: int, pause: int) -> None:
    view = of_run_state(status, Intent(stop=stop))
    assert (view.phase, view.end_reason, view.pause_reason) == (phase, end, pause)


@pytest.mark.parametrize(
    ("event", "intent", "end"),
    [
        (shutdown("guest-shutdown"), Intent(), t.END_REASON_GUEST_SHUTDOWN),
        (shutdown("guest-shutdown"), Intent(stop=True), t.END_REASON_REQUESTED_SHUTDOWN),
        (shutdown("guest-reset"), Intent(), t.END_REASON_GUEST_REBOOT),
        (shutdown("guest-panic"), Intent(), t.END_REASON_PANIC),
        (shutdown("host-signal", guest=False), Intent(), t.END_REASON_VMM_KILLED),
        (shutdown("host-qmp-quit", guest=False), Intent(force=True), t.END_REASON_FORCED),
        (shutdown("subsystem-reset"), Intent(), t.END_REASON_UNKNOWN),
        (Event("SHUTDOWN", {}), Intent(), t.END_REASON_UNKNOWN),
        (Event("GUEST_PANICKED", {"action": "pause"}), Intent(), t.END_REASON_PANIC),
    ],
)
@pytest.mark.parametrize("before", [RUNNING, STOPPING, PAUSED])
def test_ends(before: View, event: Event, intent: Intent, end: int) -> None:
    view = after_event(before, event, intent)
    assert view.final
    assert view.end_reason == end
    later = after_event(view, shutdown("host-signal"), intent)
    assert later == view, "the first end counts"


def test_the_stop_after_an_end_changes_nothing() -> None:
    ended = after_event(RUNNING, shutdown("guest-shutdown"), Intent())
    assert after_event(ended, Event("STOP", {}), Intent()) == ended


def test_io_error_names_disk_and_cause_and_ends_with_resume() -> None:
    error = {"action": "stop", "node-name": "d0-rootdisk-0", "nospace": True, "reason": "No space left on device"}
    paused = after_event(RUNNING, Event("BLOCK_IO_ERROR", error), Intent())
    assert paused.pause_reason == t.PAUSE_REASON_IO_ERROR
    assert "disk rootdisk: the storage is full" in paused.message
    still = after_event(paused, Event("STOP", {}), Intent())
    assert still == paused
    assert after_event(still, Event("RESUME", {}), Intent()) == RUNNING


def test_io_errors_that_the_guest_gets_do_not_pause() -> None:
    event = Event("BLOCK_IO_ERROR", {"action": "report", "node-name": "d0-a-0"})
    assert after_event(RUNNING, event, Intent()) == RUNNING


def test_a_button_that_somebody_else_pressed_counts_as_a_request() -> None:
    intent = Intent()
    assert after_event(RUNNING, Event("POWERDOWN", {}), intent) == STOPPING
    ended = after_event(STOPPING, shutdown("guest-shutdown"), intent)
    assert ended.end_reason == t.END_REASON_REQUESTED_SHUTDOWN


def test_a_reboot_on_request_is_no_end() -> None:
    intent = Intent(reboot=True)
    for event in (Event("POWERDOWN", {}), shutdown("guest-shutdown"), Event("STOP", {})):
        assert after_event(RUNNING, event, intent) == RUNNING


def test_resume_while_a_stop_was_asked_for() -> None:
    assert after_event(PAUSED, Event("RESUME", {}), Intent(stop=True)) == STOPPING


@pytest.mark.parametrize("event", [Event("RTC_CHANGE", {}), Event("NEW_IN_THE_FUTURE", {"x": 1}), Event("RESET", {})])
def test_other_events_change_nothing(event: Event) -> None:
    assert after_event(PAUSED, event, Intent()) == PAUSED


def test_hostile_event_data_is_no_text() -> None:
    data = {"action": "stop", "node-name": ["x"], "reason": {"a": 1}, "nospace": "yes"}
    assert after_event(RUNNING, Event("BLOCK_IO_ERROR", data), Intent()).pause_reason == t.PAUSE_REASON_IO_ERROR
    long = after_event(RUNNING, Event("BLOCK_IO_ERROR", {"action": "stop", "reason": "x" * 10_000}), Intent())
    assert len(long.message) <= 400


def test_end_of_the_channel() -> None:
    assert after_close(RUNNING, Intent()).phase == t.PHASE_LOST
    assert after_close(RUNNING, Intent(force=True)) == View(t.PHASE_STOPPED, t.END_REASON_FORCED)
    ended = View(t.PHASE_STOPPED, t.END_REASON_GUEST_SHUTDOWN)
    assert after_close(ended, Intent(force=True)) == ended
