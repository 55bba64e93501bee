"""The memory of a running guest follows the VMI, and its pod has room for it."""

from typing import Any

import pytest

from anyvisor.agent import memory, status
from anyvisor.agent.status import MEMORY_CHANGE, GuestMemory, Observation, Size
from anyvisor.hri.errors import DriverUnavailable, HriError, Refused
from anyvisor.hri.v1.types_pb2 import PHASE_STARTING, MachineState
from tests.unit.agent.running import RUNNING, Context, Machine, Session


def session_of(*capabilities: str, error: HriError | None = None) -> Session:
    return Session(*capabilities, read=lambda change: change.set_memory.size_bytes, error=error)


GIB = 1 << 30


def vmi(wanted: str, present: str, change: str = "", most: str | None = "4Gi") -> dict[str, Any]:
    conditions = [{"type": MEMORY_CHANGE, "status": change}] if change else []
    sizes = {"guestAtBoot": "1Gi", "guestCurrent": present, "guestRequested": present}
    return {
        "metadata": {"resourceVersion": "7"},
        "spec": {"domain": {"memory": {"guest": wanted, "maxGuest": most}}},
        "status": {"conditions": conditions, "memory": sizes},
    }


async def follow(
    session: Any, obj: dict[str, Any], state: MachineState = RUNNING, *, fixed: bool = False
) -> tuple[Any, Context]:
    context, machine = Context(fixed=fixed), Machine()
    found = await memory.follow(context, machine, obj, session, state)  # type: ignore[arg-type]
    return found, context


async def test_memory_comes_with_room_for_it_and_is_told() -> None:
    session = session_of(memory.CAPABILITY)
    told, context = await follow(session, vmi("2Gi", "1Gi", "True"))
    assert (session.client.asked, context.launchers.sizes, told) == ([2 * GIB], [GIB], GuestMemory("2Gi"))
    seen = Observation(phase=status.RUNNING, state=RUNNING, size=Size(memory=told))
    patch = status.patch(vmi("2Gi", "1Gi", "True"), seen, "now")
    assert patch is not None
    assert patch["status"]["memory"] == {"guestAtBoot": "1Gi", "guestCurrent": "2Gi", "guestRequested": "2Gi"}
    assert MEMORY_CHANGE not in {each["type"] for each in patch["status"]["conditions"]}


async def test_room_goes_after_the_memory() -> None:
    session = session_of(memory.CAPABILITY)
    told, context = await follow(session, vmi("1Gi", "3Gi", "True"))
    assert (session.client.asked, context.launchers.sizes, told) == ([GIB], [0], GuestMemory("1Gi"))


@pytest.mark.parametrize(
    ("obj", "state"),
    [
        (vmi("1Gi", "1Gi"), RUNNING),
        (vmi("2Gi", "1Gi", most=None), RUNNING),
        (vmi("2Gi", "1Gi", "False"), RUNNING),
        (vmi("2Gi", "1Gi"), MachineState(phase=PHASE_STARTING)),
    ],
    ids=["nothing to do", "no more", "failed before", "not yet running"],
)
async def test_what_is_let_be(obj: dict[str, Any], state: MachineState) -> None:
    session = session_of(memory.CAPABILITY)
    told, _ = await follow(session, obj, state)
    assert (session.client.asked, told) == ([], None)


async def test_a_change_that_is_over_is_announced_no_more() -> None:
    told, _ = await follow(session_of(memory.CAPABILITY), vmi("2Gi", "2Gi", "True"))
    assert told == GuestMemory("2Gi")


@pytest.mark.parametrize(
    ("session", "fixed", "sizes"),
    [
        (session_of(), False, []),
        (session_of(memory.CAPABILITY, error=Refused("the guest takes none")), False, [GIB, 0]),
        (session_of(memory.CAPABILITY), True, []),
    ],
    ids=["not by this driver", "not by this guest", "not in this pod"],
)
async def test_what_cannot_be_is_told_and_needs_a_restart(session: Session, fixed: bool, sizes: list[int]) -> None:
    told, context = await follow(session, vmi("2Gi", "1Gi", "True"), fixed=fixed)
    assert told.present == "1Gi"
    assert "restart the VM" in told.problem
    assert context.launchers.sizes == sizes
    assert session.client.asked == []
    assert context.events[0].startswith("HotPlugMemoryError: spec.domain.memory.guest: ")
    seen = Observation(phase=status.RUNNING, state=RUNNING, size=Size(memory=told))
    patch = status.patch(vmi("2Gi", "1Gi", "True"), seen, "now")
    assert patch is not None
    assert [each["status"] for each in patch["status"]["conditions"] if each["type"] == MEMORY_CHANGE] == ["False"]


async def test_a_driver_that_does_not_answer_is_asked_again() -> None:
    with pytest.raises(HriError):
        await follow(session_of(memory.CAPABILITY, error=DriverUnavailable("gone")), vmi("2Gi", "1Gi"))
