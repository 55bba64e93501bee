"""What a VMI's status says of its machine."""

from typing import Any

import pytest

from anyvisor.agent import status
from anyvisor.agent.status import Observation, Problem
from anyvisor.hri.v1 import types_pb2 as hri

NOW = "2026-01-02T03:04:05Z"


def vmi(**state: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "resourceVersion": "7"}, "status": {"phase": "Scheduled", **state}}


def applied(obj: dict[str, Any], seen: Observation) -> dict[str, Any]:
    """The VMI with the patch merged in."""
    made = status.patch(obj, seen, NOW)
    return {**obj, "status": {**obj["status"], **made["status"]}} if made else obj


def conditions(obj: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c.get("reason", "")) for c in obj["status"].get("conditions", [])}


RUNNING = hri.MachineState(phase=hri.PHASE_RUNNING, accelerator=hri.ACCELERATOR_KVM)


def test_a_machine_that_begins_to_run():
    made = status.patch(vmi(), Observation(phase="Running", state=RUNNING, machine_type="q35"), NOW)
    assert made == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "phase": "Running",
            "phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": NOW}],
            "machine": {"type": "q35"},
        },
    }


def test_the_same_again_is_nothing_to_write():
    seen = Observation(phase="Running", state=RUNNING, machine_type="q35", hypervisor={"driver": "d"})
    once = applied(vmi(), seen)
    assert status.patch(once, seen, "later") is None


def test_the_pod_interface_that_the_controller_wrote_stays():
    seen = Observation(interfaces=({"name": "default", "mac": "02:00:00:00:00:01"},))
    old = vmi(interfaces=[{"name": "default", "mac": "02:00:00:00:00:01", "podInterfaceName": "eth0"}])
    assert status.patch(old, seen, NOW) is None, "the agent and the controller would undo each other without end"
    moved = vmi(interfaces=[{"name": "default", "podInterfaceName": "eth0"}, {"name": "gone", "podInterfaceName": "x"}])
    assert applied(moved, seen)["status"]["interfaces"] == old["status"]["interfaces"]


def test_conditions_of_others_stay():
    other = {"type": "LiveMigratable", "status": "False", "reason": "NotMigratable"}
    after = applied(vmi(conditions=[other]), Observation(phase="Running", state=RUNNING))
    assert other in after["status"]["conditions"]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RUNNING, {}),
        (
            hri.MachineState(phase=hri.PHASE_PAUSED, pause_reason=hri.PAUSE_REASON_USER),
            {"Paused": ("True", "PausedByUser")},
        ),
        (
            hri.MachineState(phase=hri.PHASE_PAUSED, pause_reason=hri.PAUSE_REASON_IO_ERROR),
            {"Paused": ("True", "PausedIOError")},
        ),
        (
            hri.MachineState(
                phase=hri.PHASE_RUNNING,
                accelerator=hri.ACCELERATOR_EMULATION,
                guest_agent=hri.GuestAgent(connected=True),
            ),
            {"SoftwareEmulation": ("True", "Emulated"), "AgentConnected": ("True", "")},
        ),
    ],
)
def test_conditions_follow_the_machine(state: hri.MachineState, expected: dict[str, tuple[str, str]]):
    ready = {"type": "Ready", "status": "True"}
    after = applied(vmi(conditions=[ready]), Observation(phase="Running", state=state))
    assert conditions(after) == {"Ready": ("True", ""), **expected}, "Ready is the controller's"


def test_a_condition_that_no_longer_holds_goes():
    paused = hri.MachineState(phase=hri.PHASE_PAUSED)
    after = applied(vmi(), Observation(phase="Running", state=paused, problem=Problem("NotAdopted", "why")))
    assert conditions(after)["Synchronized"] == ("False", "NotAdopted")
    again = applied(after, Observation(phase="Running", state=RUNNING))
    assert conditions(again) == {}


def test_a_condition_that_says_something_else_is_made_anew():
    one, other = (Observation(problem=Problem(reason, "why")) for reason in ("NotAdopted", "DriverNotReady"))
    (changed,) = applied(applied(vmi(), one), other)["status"]["conditions"]
    assert (changed["reason"], changed["lastTransitionTime"]) == ("DriverNotReady", NOW)


def test_a_final_machine_is_neither_paused_nor_connected():
    paused = hri.MachineState(phase=hri.PHASE_PAUSED, guest_agent=hri.GuestAgent(connected=True))
    running = applied(vmi(), Observation(phase="Running", state=paused))
    ended = applied(running, Observation(phase="Succeeded"))
    assert conditions(ended) == {}
    assert [t["phase"] for t in ended["status"]["phaseTransitionTimestamps"]] == ["Running", "Succeeded"]


@pytest.mark.parametrize(
    ("phase", "reason", "acpi", "grace", "expected"),
    [
        (hri.PHASE_STOPPED, hri.END_REASON_GUEST_SHUTDOWN, True, 30, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_GUEST_REBOOT, True, 30, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_REQUESTED_SHUTDOWN, True, 30, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_MOVED, True, 30, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_FORCED, True, 30, "Failed"),
        (hri.PHASE_STOPPED, hri.END_REASON_FORCED, False, 30, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_FORCED, True, 0, "Succeeded"),
        (hri.PHASE_STOPPED, hri.END_REASON_UNKNOWN, True, 30, "Succeeded"),
        (hri.PHASE_LOST, hri.END_REASON_UNKNOWN, True, 30, "Failed"),
        (hri.PHASE_CRASHED, hri.END_REASON_PANIC, True, 30, "Failed"),
        (hri.PHASE_STOPPED, hri.END_REASON_WATCHDOG, True, 30, "Failed"),
        (hri.PHASE_LOST, hri.END_REASON_OUT_OF_MEMORY, True, 30, "Failed"),
        (hri.PHASE_LOST, hri.END_REASON_VMM_KILLED, True, 30, "Failed"),
        (hri.PHASE_CRASHED, hri.END_REASON_INTERNAL_ERROR, True, 30, "Failed"),
    ],
)
def test_the_end_decides_the_phase(phase: hri.Phase, reason: hri.EndReason, acpi: bool, grace: float, expected: str):
    end = hri.MachineState(phase=phase, end_reason=reason)
    assert status.final_phase(end, acpi=acpi, grace=grace) == expected


@pytest.mark.parametrize("reason", list(hri.EndReason.values()))
def test_every_end_has_a_sentence(reason: hri.EndReason):
    said = status.end_sentence(hri.MachineState(end_reason=reason, message="it says more"))
    assert said.endswith(": it says more")
