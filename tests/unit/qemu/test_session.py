"""A session: what it does on events, without a VMM."""

import asyncio
from collections.abc import Callable

import pytest

from anyvisor.drivers.qemu import handle
from anyvisor.drivers.qemu.session import Session
from anyvisor.hri.errors import InvalidRequest, MachineNotFound, Refused, VmmFailed
from anyvisor.hri.kit import MachineContext, retry
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.v1 import types_pb2 as t
from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from tests.unit.qemu.peer import GREETING, Peer


@pytest.fixture
def machine() -> MachineContext:
    return MachineContext("m1", 1, EventLog("boot"))


async def started(machine: MachineContext, peer: Peer) -> Session:
    """A session whose guest runs."""
    session = Session(machine)
    starting = asyncio.create_task(session.start(peer.theirs))
    await peer.say(GREETING)
    await peer.answer("qmp_capabilities")
    await peer.answer("cont")
    await peer.event("RESUME")
    await starting
    await until(lambda: machine.phase == t.PHASE_RUNNING)
    return session


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


async def test_reboot_on_request_starts_over_in_the_same_vmm(machine: MachineContext, peer: Peer) -> None:
    session = await started(machine, peer)
    pressing = asyncio.create_task(session.press_button(reboot=True))
    await peer.answer("system_powerdown")
    await pressing
    await peer.event("POWERDOWN")
    await peer.event("SHUTDOWN", guest=True, reason="guest-shutdown")
    await peer.event("STOP")
    await peer.answer("system_reset")
    await peer.answer("cont")
    await peer.event("RESET", guest=False, reason="host-qmp-system-reset")
    await peer.event("RESUME")
    await asyncio.sleep(0.01)
    assert machine.phase == t.PHASE_RUNNING
    await peer.event("SHUTDOWN", guest=True, reason="guest-shutdown")
    await until(lambda: machine.ended)
    assert machine.state.end_reason == t.END_REASON_GUEST_SHUTDOWN
    session.close()


async def test_io_error_is_retried_until_the_storage_is_back(
    machine: MachineContext, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_SECONDS", 0.01)
    session = await started(machine, peer)
    for _ in range(3):
        await peer.event("BLOCK_IO_ERROR", action="stop", nospace=True, **{"node-name": "d0-root-0"})
        await peer.event("STOP")
        await until(lambda: machine.state.pause_reason == t.PAUSE_REASON_IO_ERROR)
        await peer.answer("cont")
        await peer.event("RESUME")
        await until(lambda: machine.phase == t.PHASE_RUNNING)
    assert machine.state.message == ""
    session.close()


async def test_paused_guest_is_let_go_before_the_button(machine: MachineContext, peer: Peer) -> None:
    session = await started(machine, peer)
    await peer.event("STOP")
    await until(lambda: machine.phase == t.PHASE_PAUSED)
    pressing = asyncio.create_task(session.press_button(reboot=False))
    await peer.answer("cont")
    await peer.answer("system_powerdown")
    await pressing
    session.close()


async def test_vmm_that_dies_before_its_greeting(machine: MachineContext, peer: Peer) -> None:
    session = Session(machine)
    starting = asyncio.create_task(session.start(peer.theirs))
    await peer.command("qmp_capabilities")
    peer.hang_up()
    with pytest.raises(VmmFailed, match="before it had built the machine"):
        await starting
    assert (machine.phase, machine.state.end_reason) == (t.PHASE_CRASHED, t.END_REASON_VMM_EXITED)
    assert not machine.connected


async def test_guest_that_cannot_be_started_is_a_failure_with_the_reason(machine: MachineContext, peer: Peer) -> None:
    session = Session(machine)
    starting = asyncio.create_task(session.start(peer.theirs))
    await peer.say(GREETING)
    await peer.answer("qmp_capabilities")
    await peer.refuse("cont", "Failed to get write lock")
    with pytest.raises(VmmFailed, match="Failed to get write lock"):
        await starting
    session.close()


async def test_adoption_of_another_machines_vmm(machine: MachineContext, peer: Peer) -> None:
    adopting = asyncio.create_task(Session(machine).adopt(peer.theirs))
    await peer.say(GREETING)
    await peer.answer("qmp_capabilities")
    await peer.answer("query-name", {"name": "m2"})
    await peer.answer("query-status", {"status": "running"})
    with pytest.raises(Refused, match="runs machine 'm2'"):
        await adopting


async def test_adoption_of_a_vmm_that_is_gone(machine: MachineContext, peer: Peer) -> None:
    peer.hang_up()
    with pytest.raises(MachineNotFound, match="gone"):
        await Session(machine).adopt(peer.theirs)


@pytest.mark.parametrize("paused", [False, True])
async def test_adopted_vmm_whose_guest_never_ran_begins_as_the_machine_says(
    machine: MachineContext, peer: Peer, paused: bool
) -> None:
    spec = Machine(id="m1")
    spec.nics.add(id="n", link_down=True)
    spec.lifecycle.start_paused = paused
    _, first_run = handle.read(handle.make(spec, PrepareResponse()))
    session = Session(machine, first_run)
    adopting = asyncio.create_task(session.adopt(peer.theirs))
    await peer.say(GREETING)
    await peer.answer("qmp_capabilities")
    await peer.answer("query-name", {"name": "m1"})
    await peer.answer("query-status", {"status": "prelaunch"})
    await peer.answer("qom-list", [])
    await peer.answer("query-cpus-fast", [])
    await peer.answer("query-iothreads", [])
    await peer.answer("query-memory-devices", [])
    await peer.refuse("query-balloon", "no balloon")
    await peer.answer("query-memory-size-summary", {"base-memory": 1})
    await peer.answer("query-status", {"status": "prelaunch"})
    await adopting
    assert machine.phase == t.PHASE_PREPARED
    running = asyncio.create_task(session.run_first())
    assert (await peer.answer("set_link"))["arguments"] == {"name": "nic-n", "up": False}
    if not paused:
        await peer.answer("cont")
    await running
    assert machine.phase == (t.PHASE_PAUSED if paused else t.PHASE_PREPARED)
    session.close()


@pytest.mark.parametrize("foreign", [b"", b"\xff" * 40, PrepareResponse(profile="q35").SerializeToString()])
def test_foreign_handles_are_refused(foreign: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not made by this driver"):
        handle.read(foreign)


async def test_guest_agent_and_balloon_are_observed(machine: MachineContext, peer: Peer) -> None:
    session = await started(machine, peer)
    await peer.event("VSERPORT_CHANGE", open=True, id="agent0")
    await peer.event("BALLOON_CHANGE", actual=1 << 20)
    await until(lambda: machine.state.memory_bytes == 1 << 20)
    assert machine.state.guest_agent.connected
    await peer.event("VSERPORT_CHANGE", open=False, id="agent0")
    await until(lambda: not machine.state.guest_agent.connected)
    session.close()


async def test_quit_of_a_vmm_that_is_gone_is_done(machine: MachineContext, peer: Peer) -> None:
    session = await started(machine, peer)
    peer.hang_up()
    await until(lambda: machine.ended)
    assert machine.phase == t.PHASE_LOST
    await session.end()
    session.close()
