"""CPU sockets of a running guest follow the VMI."""

from typing import Any

import pytest

from anyvisor.agent import sockets, status
from anyvisor.agent.status import CPU_CHANGE, CpuSockets, Observation, Size
from anyvisor.hri.errors import DriverUnavailable, HriError, Refused
from anyvisor.hri.v1.types_pb2 import PHASE_STARTING, MachineState
from tests.unit.agent.running import RUNNING, Context, Machine, Session


def session_of(*capabilities: str, error: HriError | None = None) -> Session:
    return Session(*capabilities, read=lambda change: change.set_cpu.sockets, error=error)


def vmi(wanted: int, present: int, change: str = "", most: int | None = 4) -> dict[str, Any]:
    conditions = [{"type": CPU_CHANGE, "status": change}] if change else []
    return {
        "metadata": {"resourceVersion": "7"},
        "spec": {"domain": {"cpu": {"sockets": wanted, "maxSockets": most, "cores": 2}}},
        "status": {"conditions": conditions, "currentCPUTopology": {"sockets": present, "cores": 2}},
    }


async def follow(session: Any, obj: dict[str, Any], state: MachineState = RUNNING) -> tuple[Any, Context]:
    context, machine = Context(), Machine()
    found = await sockets.follow(context, machine, obj, session, state)  # type: ignore[arg-type]
    return found, context


async def test_sockets_are_added_and_told() -> None:
    session = session_of(sockets.CAPABILITY)
    told, _ = await follow(session, vmi(3, 1, "True"))
    assert (session.client.asked, told) == ([3], CpuSockets(3))
    seen = Observation(phase=status.RUNNING, state=RUNNING, size=Size(told))
    patch = status.patch(vmi(3, 1, "True"), seen, "now")
    assert patch is not None
    assert patch["status"]["currentCPUTopology"] == {"sockets": 3, "cores": 2}
    assert CPU_CHANGE not in {each["type"] for each in patch["status"]["conditions"]}


@pytest.mark.parametrize(
    ("obj", "state"),
    [
        (vmi(1, 1), RUNNING),
        (vmi(3, 1, most=None), RUNNING),
        (vmi(3, 1, "False"), RUNNING),
        (vmi(3, 1), MachineState(phase=PHASE_STARTING)),
    ],
    ids=["nothing to do", "no places", "failed before", "not yet running"],
)
async def test_what_is_let_be(obj: dict[str, Any], state: MachineState) -> None:
    session = session_of(sockets.CAPABILITY)
    told, _ = await follow(session, obj, state)
    assert (session.client.asked, told) == ([], None)


async def test_a_change_that_is_over_is_announced_no_more() -> None:
    told, _ = await follow(session_of(sockets.CAPABILITY), vmi(2, 2, "True"))
    assert told == CpuSockets(2)


@pytest.mark.parametrize("session", [session_of(), session_of(sockets.CAPABILITY, error=Refused("no place"))])
async def test_what_cannot_be_is_told_and_needs_a_restart(session: Session) -> None:
    told, context = await follow(session, vmi(3, 1, "True"))
    assert told.present == 1
    assert "restart the VM" in told.problem
    assert context.events[0].startswith("HotPlugCPUError: spec.domain.cpu.sockets: ")
    seen = Observation(phase=status.RUNNING, state=RUNNING, size=Size(told))
    patch = status.patch(vmi(3, 1, "True"), seen, "now")
    assert patch is not None
    assert [each["status"] for each in patch["status"]["conditions"] if each["type"] == CPU_CHANGE] == ["False"]


async def test_a_driver_that_does_not_answer_is_asked_again() -> None:
    with pytest.raises(HriError):
        await follow(session_of(sockets.CAPABILITY, error=DriverUnavailable("gone")), vmi(3, 1))
