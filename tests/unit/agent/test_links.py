"""Links of a running guest's interfaces follow the VMI."""

from typing import Any

import pytest

from anyvisor.agent import links
from anyvisor.hri.errors import Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.machine_spec_pb2 import Nic
from anyvisor.hri.v1.types_pb2 import PHASE_RUNNING, PHASE_STARTING, MachineState, Operation


class Client:
    """Takes changes, or refuses them."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[tuple[str, bool]] = []
        self._refuses = refuses

    async def apply(self, machine_id: str, change: ApplyRequest, *, generation: int, minor: int) -> Operation:
        assert (machine_id, generation, minor) == ("m-1", 3, 1)
        if self._refuses:
            raise Refused("no such device")
        self.asked.append((change.set_link.nic_id, change.set_link.up))
        return Operation()


class Record:
    driver, generation, hri_minor = "test.driver", 3, 1


class Network:
    def __init__(self) -> None:
        self.nics = [Nic(id="default"), Nic(id="lan")]
        self.status: list[dict[str, Any]] = [{"name": name, "linkState": "up"} for name in ("default", "lan")]


class Machine:
    def __init__(self, **known: bool) -> None:
        self.id, self.record, self.network, self.links = "m-1", Record(), Network(), known


class Session:
    class Address:
        def __init__(self, *capabilities: str) -> None:
            self.capabilities = frozenset(capabilities)

    def __init__(self, *capabilities: str, refuses: bool = False) -> None:
        self.client, self.address = Client(refuses), Session.Address(*capabilities)

    async def finished(self, operation: Operation) -> None:
        del operation


class Context:
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, _machine: Any, _kind: Any, reason: str, message: str) -> None:
        self.events.append(f"{reason}: {message}")


def vmi(**states: str) -> dict[str, Any]:
    declared = [{"name": name, "state": state} for name, state in states.items()]
    return {"spec": {"domain": {"devices": {"interfaces": declared}}}}


RUNNING = MachineState(phase=PHASE_RUNNING)


async def follow(
    machine: Any, session: Any, spec: dict[str, Any], state: MachineState = RUNNING
) -> tuple[Any, Context]:
    context: Any = Context()
    return await links.follow(context, machine, spec, session, state), context


async def test_what_differs_is_set_once() -> None:
    machine, session = Machine(default=True, lan=True), Session(links.CAPABILITY)
    for _ in range(2):
        assert (await follow(machine, session, vmi(default="up", lan="down")))[0] is None
    assert session.client.asked == [("nic.lan", False)]
    assert machine.network.status[1]["linkState"] == "down"
    await follow(machine, session, vmi(default="", lan=""))
    assert session.client.asked[1:] == [("nic.lan", True)]


async def test_after_a_restart_of_ours_all_links_are_set() -> None:
    machine, session = Machine(), Session(links.CAPABILITY)
    await follow(machine, session, vmi(default="up", lan="down", gone="absent", later="up"))
    assert session.client.asked == [("nic.default", True), ("nic.lan", False)]


async def test_a_driver_that_refuses_is_a_problem_of_the_machine() -> None:
    machine, session = Machine(default=True, lan=True), Session(links.CAPABILITY, refuses=True)
    problem, _ = await follow(machine, session, vmi(lan="down"))
    assert problem is not None
    assert "no such device" in problem.message
    assert machine.links["lan"] is True


@pytest.mark.parametrize("adopted", [True, False])
async def test_a_driver_that_cannot_is_told_of_once(adopted: bool) -> None:
    machine, session = (Machine() if adopted else Machine(default=True, lan=True)), Session()
    _, first = await follow(machine, session, vmi(default="up", lan="down"))
    _, second = await follow(machine, session, vmi(default="up", lan="down"))
    assert len(first.events) == (0 if adopted else 1)
    assert second.events == []
    assert session.client.asked == []


async def test_a_guest_that_only_begins_is_left_alone() -> None:
    machine, session = Machine(), Session(links.CAPABILITY)
    await follow(machine, session, vmi(lan="down"), MachineState(phase=PHASE_STARTING))
    assert session.client.asked == []
