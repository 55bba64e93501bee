"""Level 0: the rules of calls about machines."""

from typing import Final

from anyvisor.hri.conformance.launch import problems
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import Session, expect, fail, operation_id, refusal, status_of
from anyvisor.hri.errors import HriError, MachineNotFound
from anyvisor.hri.v1.machine_pb2 import DestroyRequest, Mutation, PrepareRequest
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import PHASE_PREPARED, PHASE_UNSPECIFIED

CHECKS = CheckList()

UNKNOWN_FIELD: Final = b"\xfa\x3e\x06future"
"""Field 1007 with the text `future`: what a core of a later minor could send."""
UNKNOWN_ACCELERATOR: Final = b"\x18\xe7\x07"
"""Machine.accelerator = 999."""
MAX_HANDLE: Final = 64 << 10


@CHECKS.add("contract.prepare", "Prepare plans a machine, and Inspect knows it")
async def prepare(session: Session) -> None:
    async with session.prepared() as (machine, answer):
        expect(len(answer.handle) <= MAX_HANDLE, f"the handle has {len(answer.handle)} bytes; 65536 are allowed")
        state = await session.client.inspect(machine.id)
        expect(state.machine_id == machine.id, f"Inspect answers for machine {state.machine_id!r}")
        expect(state.phase == PHASE_PREPARED, f"the phase is {state.phase}, not PREPARED")
        expect(state.handle == answer.handle, "Inspect gives another handle than Prepare")


@CHECKS.add("contract.launch-plan", "The launch plan is in form: mode, absolute argv, descriptors that are known")
async def launch_plan(session: Session) -> None:
    async with session.prepared() as (machine, answer):
        wrong = problems(machine, answer)
        expect(not wrong, "; ".join(wrong))


@CHECKS.add("contract.echo", "What is not understood is not confirmed")
async def echo(session: Session) -> None:
    machine = session.spec()
    unknown = "x.conform.invalid/never"
    async with session.cleanup(machine.id):
        request = PrepareRequest(mutation=_mutation(session, machine.id), machine=machine, needs=[unknown])
        try:
            answer = await session.client.call_prepare(request)
        except HriError as error:
            expect(error.status == "FAILED_PRECONDITION", f"an unknown need was refused with {error.status}")
            return
        expect(unknown not in answer.confirmed, f"the driver confirmed {unknown!r}, which nobody can know")
        expect(set(answer.confirmed) <= {unknown}, f"it confirmed what was not asked: {list(answer.confirmed)}")


@CHECKS.add("contract.unknown-field", "A field of a later minor is refused, not skipped")
async def unknown_field(session: Session) -> None:
    machine = session.spec()
    machine.MergeFromString(UNKNOWN_FIELD)
    await _refused_machine(session, machine, "a machine with an unknown field")


@CHECKS.add("contract.unknown-value", "An enum value of a later minor is refused, not taken for a default")
async def unknown_value(session: Session) -> None:
    machine = session.spec()
    machine.MergeFromString(UNKNOWN_ACCELERATOR)
    await _refused_machine(session, machine, "a machine with an unknown accelerator")


async def _refused_machine(session: Session, machine: Machine, what: str) -> None:
    async with session.cleanup(machine.id):
        call = session.client.prepare(machine, [], generation=1)
        error = await refusal(call, what, "FAILED_PRECONDITION", "INVALID_ARGUMENT")
        expect(error.findings, f"{what}: the refusal has no finding that names the field")
    state = await status_of(session.client.inspect(machine.id))
    expect(state == "NOT_FOUND", f"{what}: the driver kept it, though it refused it ({state})")


@CHECKS.add("contract.garbage", "Bytes that are no message are refused, and the driver lives")
async def garbage(session: Session) -> None:
    for request in (b"\xff" * 64, b"\x0a\xff\xff\xff\xff\x0f", bytes(1000)):
        status, _ = await session.raw("Prepare", request)
        expect(status not in ("OK", "UNAVAILABLE", "DEADLINE_EXCEEDED"), f"garbage was answered with {status}")
    await session.client.get_info()


@CHECKS.add("contract.oversize", "A message of 8 MiB is refused, and the driver lives")
async def oversize(session: Session) -> None:
    status, _ = await session.raw("Prepare", b"\x0a" + b"\x80\x80\x80\x04" + bytes(8 << 20))
    expect(status not in ("OK", "DEADLINE_EXCEEDED"), f"8 MiB were answered with {status}")
    await session.client.get_info()


@CHECKS.add("contract.unknown-method", "A method that does not exist is UNIMPLEMENTED")
async def unknown_method(session: Session) -> None:
    status, _ = await session.raw("MethodOfTheFuture", b"")
    expect(status == "UNIMPLEMENTED", f"an unknown method was answered with {status}")


@CHECKS.add("contract.mutation-form", "Machine and operation ids have a form")
async def mutation_form(session: Session) -> None:
    good = session.spec().id
    cases = (
        ("an empty machine id", "", "a"),
        ("a path as machine id", "../x", "a"),
        ("a machine id of 64 bytes", "a" * 64, "a"),
        ("no operation id", good, ""),
        ("an operation id of 65 bytes", good, "a" * 65),
    )
    for what, machine_id, operation in cases:
        mutation = Mutation(machine_id=machine_id, operation_id=operation, generation=1, minor=session.client.minor)
        status, _ = await session.raw("Destroy", DestroyRequest(mutation=mutation).SerializeToString())
        expect(status == "INVALID_ARGUMENT", f"{what}: expected INVALID_ARGUMENT, got {status}")


@CHECKS.add("contract.minor", "A minor outside the driver's range is refused")
async def minor(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        for wrong in (session.info.min_minor - 1, session.info.max_minor + 1):
            call = session.client.prepare(machine, [], generation=1, minor=wrong)
            await refusal(call, f"minor {wrong}", "FAILED_PRECONDITION", "INVALID_ARGUMENT")


@CHECKS.add("contract.replay", "The same operation id and content gives the first result, and acts once")
async def replay(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        same = operation_id()
        first = await session.client.prepare(machine, [], generation=1, operation_id=same)
        try:
            second = await session.client.prepare(machine, [], generation=1, operation_id=same)
        except HriError as error:
            fail(f"the replay of Prepare was refused with {error.status}: {error.message}")
        expect(
            first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True),
            "the replay of Prepare gives another answer",
        )
        gone = operation_id()
        last = await session.client.destroy(machine.id, generation=1, operation_id=gone)
        again = await session.client.destroy(machine.id, generation=1, operation_id=gone)
        expect(last == again, "the replay of Destroy gives another last state")


@CHECKS.add("contract.conflict", "The same operation id with other content is ALREADY_EXISTS")
async def conflict(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        same = operation_id()
        await session.client.prepare(machine, [], generation=1, operation_id=same)
        other = session.client.prepare(machine, [], generation=2, operation_id=same)
        await refusal(other, "Prepare under a used operation id with another generation", "ALREADY_EXISTS")
        start = session.client.start(machine.id, generation=1, operation_id=same)
        await refusal(start, "Start under the operation id of Prepare", "ALREADY_EXISTS")


@CHECKS.add("contract.once", "A machine that exists is not prepared again")
async def once(session: Session) -> None:
    async with session.prepared() as (machine, _):
        again = session.client.prepare(machine, [], generation=1)
        await refusal(again, "Prepare of a machine that exists", "ALREADY_EXISTS")


@CHECKS.add("contract.generation", "A generation older than the newest is FAILED_PRECONDITION")
async def generation(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        await session.client.prepare(machine, [], generation=7)
        state = await session.client.inspect(machine.id)
        expect(state.generation == 7, f"Inspect says generation {state.generation}, not 7")
        older = session.client.destroy(machine.id, generation=6)
        await refusal(older, "Destroy with an older generation", "FAILED_PRECONDITION")
        await session.client.inspect(machine.id)


@CHECKS.add("contract.unknown-machine", "Calls about an unknown machine are NOT_FOUND, and Destroy is done")
async def unknown_machine(session: Session) -> None:
    ghost = session.spec().id
    client = session.client
    for name in ("start", "stop", "pause", "resume", "reset"):
        await refusal(getattr(client, name)(ghost, generation=1), f"{name} of an unknown machine", "NOT_FOUND")
    await refusal(client.inspect(ghost), "Inspect of an unknown machine", "NOT_FOUND")
    last = await client.destroy(ghost, generation=1)
    expect(last.phase == PHASE_UNSPECIFIED, f"Destroy of an unknown machine says phase {last.phase}")


@CHECKS.add("contract.operation-unknown", "GetOperation of an unknown id is NOT_FOUND")
async def operation_unknown(session: Session) -> None:
    await refusal(session.client.get_operation(operation_id()), "GetOperation of an unknown id", "NOT_FOUND")


@CHECKS.add("contract.destroy", "Destroy leaves nothing, and may be repeated")
async def destroy(session: Session) -> None:
    async with session.prepared() as (machine, _):
        last = await session.client.destroy(machine.id, generation=1)
        expect(last.machine_id == machine.id, f"last_state is of machine {last.machine_id!r}")
        try:
            await session.client.inspect(machine.id)
        except MachineNotFound:
            pass
        else:
            fail("Inspect still knows a destroyed machine")
        await session.client.destroy(machine.id, generation=1)
        await session.client.prepare(machine, [], generation=1)


@CHECKS.add("contract.adopt-garbage", "A handle that is not the driver's is refused, and leaves nothing")
async def adopt_garbage(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        for handle in (b"\xff\xfe\xfd", b"x" * MAX_HANDLE):
            status = await status_of(session.client.adopt(machine.id, handle, generation=1))
            expect(
                status in ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "INTERNAL"),
                f"Adopt with a foreign handle: expected a refusal, got {status}",
            )
        await refusal(session.client.inspect(machine.id), "Inspect after a refused Adopt", "NOT_FOUND")


@CHECKS.add("contract.deadline", "A call whose deadline passes harms nothing")
async def deadline(session: Session) -> None:
    machine = session.spec()
    async with session.cleanup(machine.id):
        request = PrepareRequest(mutation=_mutation(session, machine.id), machine=machine)
        status, _ = await session.raw("Prepare", request.SerializeToString(), seconds=0.001)
        expect(status in ("OK", "DEADLINE_EXCEEDED"), f"a call with 1 ms to live ended as {status}")
        answer = await session.client.call_prepare(request)
        expect(len(answer.handle) <= MAX_HANDLE, "the replay after a missed deadline gives no answer")


def _mutation(session: Session, machine_id: str) -> Mutation:
    return Mutation(machine_id=machine_id, operation_id=operation_id(), generation=1, minor=session.client.minor)
