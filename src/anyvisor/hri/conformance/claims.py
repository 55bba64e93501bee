"""Level 0: claims are true both ways. What the manifest claims is planned; what it does not claim is refused."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from anyvisor.hri.conformance.cases import CASES, MODELS, Basis, Case
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_pb2 import Mutation, PrepareRequest
from anyvisor.hri.v1.machine_spec_pb2 import Machine, VolumeHandle
from anyvisor.planning.registry import registry

CHECKS = CheckList()
UNCLAIMED_STATUS = "FAILED_PRECONDITION"


def basis(session: Session) -> Basis:
    """What works with this driver, as its manifest says; skips the check where there is none."""
    formats, models = session.claim("disk.format"), session.claim("nic.model")
    places = session.claim("disk.pci-address") or session.claim("nic.pci-address")
    qcow2 = formats is not None and "raw" not in formats.values
    return Basis(
        image=VolumeHandle.Layer.FORMAT_QCOW2 if qcow2 else VolumeHandle.Layer.FORMAT_RAW,
        model=MODELS.get(models.values[0] if models and models.values else "virtio", MODELS["virtio"]),
        user_network=session.claim("nic.user") is not None,
        on_root_bus=places is not None and places.note.startswith("0000:00:"),
    )


def claimed(session: Session, case: Case) -> bool:
    """Whether the driver claims what the case asks for."""
    statement = session.claim(case.capability)
    if statement is None:
        return False
    return not case.value or any(fnmatchcase(case.value, pattern) for pattern in statement.values)


def cases(session: Session, *, of_claims: bool) -> Iterator[tuple[Case, Machine]]:
    """The cases that are claimed, or those that are not, each with its machine."""
    works = basis(session)
    for case in CASES:
        if case.capability in session.facts.withdrawn_capabilities:
            continue  # this host lacks what it needs: nobody asks for it here
        if claimed(session, case) == of_claims:
            machine = session.spec()
            case.ask(machine, works)
            yield case, machine


async def _outcome(session: Session, machine: Machine) -> HriError | None:
    async with session.cleanup(machine.id):
        try:
            await session.client.prepare(machine, [], generation=1)
        except HriError as error:
            return error
    return None


@CHECKS.add("claims.honoured", "What the manifest claims is planned, each value of each set")
async def honoured(session: Session) -> None:
    wrong = [
        f"{case.name} is claimed and was refused: {error.message}"
        for case, machine in cases(session, of_claims=True)
        if (error := await _outcome(session, machine)) is not None
    ]
    expect(not wrong, "; ".join(wrong))


@CHECKS.add("claims.refused", "What the manifest does not claim is refused with FAILED_PRECONDITION and the field")
async def refused(session: Session) -> None:
    wrong: list[str] = []
    for case, machine in cases(session, of_claims=False):
        error = await _outcome(session, machine)
        if error is None:
            wrong.append(f"{case.name} is not claimed, and was planned")
        elif error.status != UNCLAIMED_STATUS:
            wrong.append(f"{case.name} was refused with {error.status}, not {UNCLAIMED_STATUS}")
        elif not error.findings:
            wrong.append(f"{case.name} was refused without a finding that names the field")
    expect(not wrong, "; ".join(wrong))


@CHECKS.add("claims.echo", "Prepare confirms each claimed id, and no other")
async def echo(session: Session) -> None:
    if session.manifest is None:
        raise CheckSkippedError("no manifest file was given (--manifest)")
    ids = [capability.id for capability in registry()]
    machine = session.spec()
    async with session.cleanup(machine.id):
        mutation = Mutation(machine_id=machine.id, operation_id=machine.id, generation=1, minor=session.client.minor)
        answer = await session.client.call_prepare(PrepareRequest(mutation=mutation, machine=machine, needs=ids))
    confirmed = set(answer.confirmed)
    silent = sorted(i for i in ids if session.claim(i) is not None and i not in confirmed)
    lies = sorted(i for i in ids if not session.manifest.states(i) and i in confirmed)
    expect(not silent, f"claimed, and not confirmed: {', '.join(silent)}")
    expect(not lies, f"confirmed, and not claimed: {', '.join(lies)}")
