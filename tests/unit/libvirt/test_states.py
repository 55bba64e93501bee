"""libvirt's states and events as the machine's state; the numbers against the binding, where that is installed."""

import pytest

from anyvisor.drivers.libvirt import states
from anyvisor.drivers.libvirt.states import Lifecycle, ShutOff, State, Stopped
from anyvisor.hri.kit import Intent, View
from anyvisor.hri.v1 import types_pb2 as t

RUNNING = View(t.PHASE_RUNNING)


@pytest.mark.parametrize(
    ("state", "reason", "intent", "phase", "end"),
    [
        (State.RUNNING, 1, Intent(), t.PHASE_RUNNING, 0),
        (State.RUNNING, 1, Intent(stop=True), t.PHASE_STOPPING, 0),
        (State.SHUTDOWN, 0, Intent(), t.PHASE_STOPPING, 0),
        (State.PAUSED, 11, Intent(), t.PHASE_PREPARED, 0),
        (State.CRASHED, 1, Intent(), t.PHASE_CRASHED, t.END_REASON_PANIC),
        (State.SHUTOFF, ShutOff.SHUTDOWN, Intent(stop=True), t.PHASE_STOPPED, t.END_REASON_REQUESTED_SHUTDOWN),
        (State.SHUTOFF, ShutOff.SHUTDOWN, Intent(), t.PHASE_STOPPED, t.END_REASON_UNKNOWN),
        (State.SHUTOFF, ShutOff.DESTROYED, Intent(), t.PHASE_STOPPED, t.END_REASON_FORCED),
        (State.SHUTOFF, ShutOff.CRASHED, Intent(), t.PHASE_CRASHED, t.END_REASON_PANIC),
        (State.SHUTOFF, ShutOff.FAILED, Intent(), t.PHASE_CRASHED, t.END_REASON_VMM_EXITED),
        (State.SHUTOFF, 0, Intent(), t.PHASE_LOST, t.END_REASON_UNKNOWN),
        (State.SHUTOFF, 0, Intent(force=True), t.PHASE_STOPPED, t.END_REASON_FORCED),
    ],
)
def test_a_domain_that_is_asked(state: int, reason: int, intent: Intent, phase: int, end: int) -> None:
    view = states.of_domain(state, reason, intent)
    assert (view.phase, view.end_reason) == (phase, end)


@pytest.mark.parametrize(
    ("reason", "pause"),
    [(1, t.PAUSE_REASON_USER), (5, t.PAUSE_REASON_IO_ERROR), (2, t.PAUSE_REASON_MIGRATION)],
)
def test_why_a_domain_is_paused(reason: int, pause: int) -> None:
    view = states.of_domain(State.PAUSED, reason, Intent())
    assert (view.phase, view.pause_reason) == (t.PHASE_PAUSED, pause)


@pytest.mark.parametrize(
    ("event", "detail", "intent", "phase", "end"),
    [
        (Lifecycle.SUSPENDED, 0, Intent(), t.PHASE_PAUSED, 0),
        (Lifecycle.RESUMED, 0, Intent(), t.PHASE_RUNNING, 0),
        (Lifecycle.STOPPED, Stopped.SHUTDOWN, Intent(), t.PHASE_STOPPED, t.END_REASON_GUEST_SHUTDOWN),
        (Lifecycle.STOPPED, Stopped.SHUTDOWN, Intent(stop=True), t.PHASE_STOPPED, t.END_REASON_REQUESTED_SHUTDOWN),
        (Lifecycle.STOPPED, Stopped.DESTROYED, Intent(force=True), t.PHASE_STOPPED, t.END_REASON_FORCED),
        (Lifecycle.STOPPED, Stopped.DESTROYED, Intent(), t.PHASE_STOPPED, t.END_REASON_VMM_KILLED),
        (Lifecycle.STOPPED, Stopped.CRASHED, Intent(), t.PHASE_CRASHED, t.END_REASON_PANIC),
        (Lifecycle.STOPPED, 5, Intent(), t.PHASE_CRASHED, t.END_REASON_VMM_EXITED),
        (Lifecycle.CRASHED, 0, Intent(), t.PHASE_CRASHED, t.END_REASON_PANIC),
        (99, 0, Intent(), t.PHASE_RUNNING, 0),
    ],
)
def test_a_lifecycle_event(event: int, detail: int, intent: Intent, phase: int, end: int) -> None:
    view = states.after_lifecycle(RUNNING, event, detail, intent)
    assert (view.phase, view.end_reason) == (phase, end)


def test_a_final_state_is_not_left() -> None:
    ended = View(t.PHASE_STOPPED, t.END_REASON_GUEST_SHUTDOWN)
    assert states.after_lifecycle(ended, Lifecycle.STOPPED, Stopped.DESTROYED, Intent()) == ended


def test_a_full_disk_is_told() -> None:
    view = states.io_error("virtio-disk0", "enospc")
    assert view.pause_reason == t.PAUSE_REASON_IO_ERROR
    assert "virtio-disk0" in view.message
    assert "full" in view.message


def test_the_numbers_are_the_bindings() -> None:
    libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    for kind, prefix in (
        (State, "VIR_DOMAIN_"),
        (ShutOff, "VIR_DOMAIN_SHUTOFF_"),
        (Lifecycle, "VIR_DOMAIN_EVENT_"),
        (Stopped, "VIR_DOMAIN_EVENT_STOPPED_"),
    ):
        for each in kind:
            name = {"SUSPENDED": "PMSUSPENDED"}.get(each.name, each.name) if kind is State else each.name
            assert getattr(libvirt, prefix + name) == each.value
