"""Level 0, for drivers without a VMM (launch mode none): states follow the calls."""

from anyvisor.hri.client import outcome
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.v1.machine_pb2 import LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    Operation,
    Phase,
)

CHECKS = CheckList()


async def _start(session: Session, machine: Machine) -> None:
    answer = await session.client.prepare(machine, [], generation=1)
    if answer.launch.mode != LaunchPlan.MODE_NONE:
        raise CheckSkippedError("the driver starts a VMM; level 1 looks at that")
    await _done(session, await session.client.start(machine.id, generation=1))


async def _done(session: Session, operation: Operation) -> None:
    error = outcome(operation)
    if error is not None:
        fail(f"{operation.kind} failed with {error.status}: {error.message}")
    expect(operation.state == Operation.STATE_DONE, f"{operation.kind} was not done within a second")


async def _phase(session: Session, machine: Machine, wanted: Phase) -> None:
    found = (await session.client.inspect(machine.id)).phase
    expect(found == wanted, f"the phase is {Phase.Name(found)}, not {Phase.Name(wanted)}")


@CHECKS.add("books.run", "Start, pause and resume change the phase, and their replay does not")
async def run(session: Session) -> None:
    machine = session.spec()
    client = session.client
    async with session.cleanup(machine.id):
        await _start(session, machine)
        await _phase(session, machine, PHASE_RUNNING)
        paused = await client.pause(machine.id, generation=1)
        await _done(session, paused)
        await _phase(session, machine, PHASE_PAUSED)
        await _done(session, await client.resume(machine.id, generation=1))
        replayed = await client.pause(machine.id, generation=1, operation_id=paused.id)
        expect(replayed.state == Operation.STATE_DONE, "the replay of Pause has another outcome")
        await _phase(session, machine, PHASE_RUNNING)


@CHECKS.add("books.stop", "A forced stop ends the machine, and says that it was forced")
async def stop(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        await _start(session, machine)
        await _done(session, await session.client.stop(machine.id, generation=1, force=True))
        state = await session.client.inspect(machine.id)
        expect(state.phase == PHASE_STOPPED, f"after a forced stop the phase is {Phase.Name(state.phase)}")
        expect(state.end_reason == END_REASON_FORCED, f"the end reason is {state.end_reason}, not FORCED")
        last = await session.client.destroy(machine.id, generation=1)
        expect(last.end_reason == END_REASON_FORCED, "Destroy does not give the end state")


@CHECKS.add("books.adopt", "Adopt of a machine that is known changes nothing")
async def adopt(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        await _start(session, machine)
        before = await session.client.inspect(machine.id)
        adopted = await session.client.adopt(machine.id, before.handle, generation=1)
        expect(adopted.state == before, "the state after Adopt is another")
