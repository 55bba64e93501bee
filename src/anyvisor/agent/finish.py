"""The end of a machine: learn how it ended, write that down, end what is left of it, tell the VMI, clean up."""

import asyncio
import logging
from typing import Final, cast

from anyvisor.agent import adopt, status, stop, vmi_status
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.records import EndRecord, Record, Stage
from anyvisor.agent.status import Observation
from anyvisor.api.meta import Json, is_deleting
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1 import types_pb2 as hri
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

FINAL_PHASES: Final = frozenset({hri.PHASE_STOPPED, hri.PHASE_CRASHED, hri.PHASE_LOST})
DRIVER_SECONDS: Final = 5.0
EXTERNAL_SECONDS: Final = 2.0
_UNSEEN: Final = frozenset({hri.END_REASON_UNSPECIFIED, hri.END_REASON_UNKNOWN})
_GONE: Final = frozenset({hri.END_REASON_VMM_EXITED, hri.END_REASON_VMM_KILLED})


async def read_end(machine: Machine, session: DriverSession | None) -> hri.MachineState:
    """How a run ended whose process is gone: the driver's word if it saw the end, else the process's."""
    for pause in (0.0, 0.1, 0.3):
        await asyncio.sleep(pause)
        state = await _last_word(machine, session)
        if state is None:
            break
        if state.phase in FINAL_PHASES and state.end_reason not in _UNSEEN:
            return await explained(machine, state)
    return await machine.ended_state()


async def explained(machine: Machine, state: hri.MachineState) -> hri.MachineState:
    """What the driver saw of an end, and where it saw only that the VMM is gone, what the process itself tells."""
    if state.end_reason not in _UNSEEN and state.end_reason not in _GONE:
        return state
    await machine.settled()
    if machine.alive:
        return state
    own = await machine.ended_state()
    if own.end_reason in _UNSEEN:
        return state
    if state.message and state.message not in own.message:
        own.message = f"{own.message}; {state.message}"
    return own


async def _last_word(machine: Machine, session: DriverSession | None) -> hri.MachineState | None:
    if session is None or not session.synced or machine.id not in session.states:
        return None
    try:
        async with asyncio.timeout(DRIVER_SECONDS):
            return await session.client.inspect(machine.id)
    except (HriError, TimeoutError):
        return None


async def finish(
    context: NodeContext, machine: Machine, vmi: Json | None, session: DriverSession | None
) -> float | None:
    """Clean up an ended machine. Every step may be repeated, and the record goes last.

    Returns the seconds until the next try while a daemon outside may still run the guest, else None.

    Raises:
        ApiError: the VMI cannot be told now; the record stays until it can.
    """
    if machine.hook is not None and machine.alive:
        await machine.hook.dismiss(expected=context.launchers.stop_hooks and _is_told_to_end(context, machine, vmi))
    destroyed = session is not None and session.synced and await _destroy(context, machine, session)
    if machine.record.external and not destroyed:
        if vmi is not None:
            await vmi_status.write(context.client, vmi, Observation(problem=_undead(machine.record)))
        return EXTERNAL_SECONDS
    await machine.settled()
    await stop.end_process(machine)
    await machine.helpers.finished()
    if vmi is not None:
        await _tell(context, machine, vmi)
    context.launchers.release(machine.record.pod_uid)
    machine.close()
    await asyncio.to_thread(context.store.forget, machine.id)
    context.machines.pop(machine.id, None)
    return None


def _is_told_to_end(context: NodeContext, machine: Machine, vmi: Json | None) -> bool:
    """Whether the launcher's pod is or is about to be deleted; the controller does that with the VMI."""
    pod = context.pod(machine.id, machine.record.pod_uid)
    return any(found is not None and is_deleting(found) for found in (vmi, pod))


def _undead(record: Record) -> status.Problem:
    return status.Problem(
        "NotEnded",
        f"driver {record.driver} must end the guest, which runs outside of its launcher, and does not answer; "
        "see that the driver and its daemon run",
    )


async def _destroy(context: NodeContext, machine: Machine, session: DriverSession) -> bool:
    """Have the driver end the VMM and forget the machine; it may know better how the run ended.

    Whether it did. A driver process that does not know a machine that a daemon runs is told of it first.
    """
    record = machine.record
    if record.external and machine.id not in session.states and await adopt.in_driver(session, machine) is not None:
        return False
    try:
        last = await session.client.destroy(machine.id, generation=record.generation, minor=record.hri_minor)
    except HriError as error:
        log.warning("machine %s: the driver did not clean up: %s", machine.id, error)
        return False
    assert record.end is not None
    if record.end.reason in _UNSEEN and last.end_reason not in _UNSEEN and last.phase in FINAL_PHASES:
        end = EndRecord(phase=last.phase, reason=last.end_reason, message=last.message[:1024])
        await machine.write(context.store, stage=Stage.ENDED, end=end)
    return True


def end_state(machine: Machine) -> hri.MachineState:
    """The recorded end as the driver would tell it."""
    end = machine.record.end
    if end is None:
        return hri.MachineState(phase=hri.PHASE_LOST, end_reason=hri.END_REASON_UNKNOWN)
    return hri.MachineState(
        phase=cast("hri.Phase", end.phase),
        end_reason=cast("hri.EndReason", end.reason),
        message=end.message,
    )


async def _tell(context: NodeContext, machine: Machine, vmi: Json) -> None:
    end, record = end_state(machine), machine.record
    phase = status.final_phase(end, acpi=record.acpi, grace=record.grace_seconds)
    sentence = status.end_sentence(end)
    failed = phase == status.FAILED
    problem = status.Problem("GuestFailed", sentence) if failed else None
    await vmi_status.write(context.client, vmi, Observation(phase=phase, problem=problem))
    kind = EventKind.WARNING if failed else EventKind.NORMAL
    context.event(machine, kind, "Stopped", f"the machine stopped: {sentence}")
