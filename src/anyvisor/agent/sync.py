"""Bring one machine to what its VMI asks for: level-triggered, one worker per machine at a time.

Whatever happened before, and in whichever order the news came: what counts is the VMI, the record, the process and
the driver's state as they are now.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from anyvisor.agent import adopt, finish, hotplug, links, memory, nics, plan, sockets, start, status, stop, vmi_status
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.guest import credentials
from anyvisor.agent.handover import HandOverError
from anyvisor.agent.helpers import is_fatal
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.plan import PodPlan
from anyvisor.agent.start import StartError
from anyvisor.agent.status import Observation, Problem, Size
from anyvisor.agent.volumes import payloads
from anyvisor.api.meta import Json, condition, is_deleting, name, namespace, object_at, text_at, uid
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_INTERNAL_ERROR,
    PHASE_CRASHED,
    PHASE_PREPARED,
    PHASE_STARTING,
    PHASE_UNSPECIFIED,
    MachineState,
)
from anyvisor.kube.errors import NotFound
from anyvisor.kube.events import EventKind, Reference
from anyvisor.kube.resources import VMIS
from anyvisor.planning.plan import PlanError

log = logging.getLogger(__name__)

FIRST_RETRY: Final = 0.1
LAST_RETRY: Final = 30.0
_NOT_BEGUN: Final = frozenset({PHASE_UNSPECIFIED, PHASE_PREPARED, PHASE_STARTING})


async def reconcile(context: NodeContext, machine_id: str) -> float | None:
    """One look at one machine; returns after how many seconds to look again."""
    machine = context.machines.get(machine_id)
    vmi = await _vmi(context, machine_id, machine)
    if machine_id in context.damaged:
        if vmi is not None:
            problem = Problem("RecordDamaged", context.damaged[machine_id])
            await vmi_status.write(context.client, vmi, Observation(problem=problem))
        return None
    if machine is not None:
        return await _in_turn(context, machine.record.driver, machine_id, partial(_with_machine, context, machine, vmi))
    phase = object_at(vmi, "status").get("phase") if vmi is not None else None
    if vmi is None or phase in status.FINAL:
        await _forget(context, machine_id)
        return None
    if phase == status.SCHEDULED and not is_deleting(vmi):
        return await _start(context, vmi)
    if phase == status.RUNNING:
        return await _unknown(context, vmi)
    return None


async def _vmi(context: NodeContext, machine_id: str, machine: Machine | None) -> Json | None:
    """The VMI; a machine's is only believed to be gone when the API server says so itself.

    The cache follows a label, and a label that somebody took away must not end a guest.
    """
    cached = context.vmi(machine_id)
    if cached is not None or machine is None:
        return cached
    try:
        found = await context.client.get(VMIS, machine.record.name, machine.record.namespace)
    except NotFound:
        return None
    return found if uid(found) == machine_id else None


async def _forget(context: NodeContext, machine_id: str) -> None:
    """Nothing of this machine may stay: not in a driver, not on the disk."""
    _succeeded(context, machine_id)
    for session in context.sessions.values():
        if machine_id in session.states and machine_id not in context.starting:
            driver = session.address.name
            if not context.turns.take(driver, machine_id):
                return
            try:
                await session.client.destroy(machine_id, generation=session.states[machine_id].generation)
            except HriError as error:
                log.warning("machine %s is left in driver %s: %s", machine_id, driver, error)
            finally:
                context.turns.give_back(driver)
    context.store.forget(machine_id)


async def _in_turn(
    context: NodeContext, driver: str, machine_id: str, work: Callable[[], Awaitable[float | None]]
) -> float | None:
    """Do the work when the driver's turn is free; else the machine comes again when one is."""
    if not context.turns.take(driver, machine_id):
        return None
    try:
        return await work()
    finally:
        context.turns.give_back(driver)


async def _start(context: NodeContext, vmi: Json) -> float | None:
    machine_id = uid(vmi)
    wait = context.not_before.get(machine_id, 0.0) - time.monotonic()
    if wait > 0:
        return wait
    pod = context.pod(machine_id)
    if pod is None or is_deleting(pod) or text_at(pod, "status", "phase") in ("Succeeded", "Failed"):
        return None
    others = set(object_at(vmi, "status", "activePods")) - {uid(pod)}
    if others:
        message = f"pod {sorted(others)[0]} may still run this machine; it is not started a second time"
        return await _report(context, vmi, StartError("AnotherPodActive", message, retry=True))
    try:
        wanted = plan.of_pod(pod)
    except PlanError as error:
        return await _report(context, vmi, StartError("PlanNotUsable", str(error), retry=False))
    return await _in_turn(context, wanted.plan.driver, machine_id, partial(_start_now, context, vmi, pod, wanted))


async def _start_now(context: NodeContext, vmi: Json, pod: Json, wanted: PodPlan) -> float | None:
    machine_id = uid(vmi)
    try:
        machine = await start.start(context, vmi, pod, wanted)
    except StartError as error:
        return await _report(context, vmi, error)
    context.machines[machine_id] = machine
    _succeeded(context, machine_id)
    context.event(machine, EventKind.NORMAL, "Created", "the machine is made on this node")
    return await _with_machine(context, machine, vmi)


async def _report(context: NodeContext, vmi: Json, error: StartError) -> float | None:
    """Say on the VMI why it does not run."""
    log.warning("VMI %s/%s: %s: %s", namespace(vmi), name(vmi), error.reason, error.message)
    phase = "" if error.retry else status.FAILED
    problem = Problem(error.reason, error.message)
    await vmi_status.write(context.client, vmi, Observation(phase=phase, problem=problem))
    about = Reference(VMIS.api_version, VMIS.kind, namespace(vmi), name(vmi), uid(vmi))
    context.recorder.record(about, EventKind.WARNING, "SyncFailed", f"{error.reason}: {error.message}")
    if not error.retry:
        _succeeded(context, uid(vmi))
        return None
    failures = context.failures[uid(vmi)] = context.failures.get(uid(vmi), 0) + 1
    wait = min(FIRST_RETRY * 2.0 ** min(failures - 1, 20), LAST_RETRY)
    context.not_before[uid(vmi)] = time.monotonic() + wait
    return wait


def _succeeded(context: NodeContext, machine_id: str) -> None:
    """The next failure is the first again."""
    context.failures.pop(machine_id, None)
    context.not_before.pop(machine_id, None)


async def _unknown(context: NodeContext, vmi: Json) -> float | None:
    """A VMI that should run here, of which nothing is recorded: failed, unless its launcher lives."""
    pods = [pod for pod, node in object_at(vmi, "status", "activePods").items() if node == context.node]
    for pod_uid in pods:
        launcher = await context.launchers.find(pod_uid)
        if launcher is not None:
            launcher.close()
            problem = Problem(
                "RecordMissing",
                "its launcher runs, but this node has no record of the machine; it is not touched. "
                "Delete the VMI to end it",
            )
            await vmi_status.write(context.client, vmi, Observation(problem=problem))
            return None
    if pods:
        problem = Problem("RecordMissing", "nothing of this machine is left on its node")
        await vmi_status.write(context.client, vmi, Observation(phase=status.FAILED, problem=problem))
    return None


async def _with_machine(context: NodeContext, machine: Machine, vmi: Json | None) -> float | None:
    session = context.session_of(machine.record)
    if machine.record.end is None and not machine.alive:
        await machine.end(context.store, await finish.read_end(machine, session))
    if machine.record.end is None:
        again = await _running(context, machine, vmi, session)
        if machine.record.end is None:
            return again
    return await finish.finish(context, machine, vmi, session)


async def _running(
    context: NodeContext, machine: Machine, vmi: Json | None, session: DriverSession | None
) -> float | None:
    """The process runs: connect, follow, stop. Sets the record's end when the guest turns out to be down."""
    try:
        if not await adopt.confirm_taken(machine):
            return await _begin_anew(context, machine)
    except HandOverError as error:
        log.warning("machine %s: %s", machine.id, error)
        return FIRST_RETRY
    await adopt.reopen(context, machine, vmi)
    problem = await _connect(context, machine, session)
    state = session.states.get(machine.id) if session is not None else None
    if state is not None and state.phase in finish.FINAL_PHASES:
        await machine.end(context.store, await finish.explained(machine, state))
        return None
    if machine.record.end is not None or await _helper_lost(context, machine):
        return None
    pod = context.pod(machine.id, machine.record.pod_uid)
    until = stop.deadline(machine, vmi, pod)
    if vmi is not None:
        problem = problem or _trouble(machine, state)
        problem = problem or await links.follow(context, machine, vmi, session, state)
        changed, late = await _follow_size(context, machine, vmi, session, state)
        problem = late or problem
        await _show(context, machine, vmi, state, problem or machine.nic_changes.problem, changed)
    if until is not None:
        return await stop.step(context, machine, session, until)
    if problem is not None:
        return LAST_RETRY / 10
    if vmi is not None and session is not None and state is not None:
        hotplug.follow(context, machine, vmi, session, state)
        nics.follow(context, machine, vmi, session, state)
    return min(
        (wait for wait in (machine.hotplug.retries.wait(), machine.nic_changes.retries.wait()) if wait is not None),
        default=None,
    )


async def _follow_size(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> tuple[Size, Problem | None]:
    """CPUs and memory as the spec says; what is to be told of them, and which driver did not answer."""
    found, problem = Size(), None
    try:
        found = replace(found, sockets=await sockets.follow(context, machine, vmi, session, state))
    except HriError as error:
        problem = Problem("SocketsNotChanged", f"spec.domain.cpu.sockets: {error}")
    try:
        found = replace(found, memory=await memory.follow(context, machine, vmi, session, state))
    except HriError as error:
        problem = Problem("MemoryNotChanged", f"spec.domain.memory.guest: {error}")
    return found, problem


def _trouble(machine: Machine, state: MachineState | None) -> Problem | None:
    """What its driver leaves open: a start without outcome, or a state that this version does not know."""
    phase = state.phase if state is not None else PHASE_UNSPECIFIED
    if machine.trouble and phase in _NOT_BEGUN:
        return Problem("DriverNotReady", machine.trouble)
    if state is not None and phase == PHASE_UNSPECIFIED and state.message:
        return Problem("StateNotUnderstood", state.message)
    return None


async def _helper_lost(context: NodeContext, machine: Machine) -> bool:
    """Tell of a helper that ended while its VMM runs; True when the machine ends with it."""
    helper, machine.lost_helper = machine.lost_helper, None
    if helper is None:
        return False
    await machine.settled()
    if not machine.alive:
        return False  # it ended with its VMM, whose end is told
    sentence = f"its helper {helper.name} ended"
    log.warning("machine %s: %s", machine.id, sentence)
    if not is_fatal(helper):
        message = f"{sentence}; the guest runs on without it. Restart the VM to have it again"
        context.event(machine, EventKind.WARNING, "HelperEnded", message)
        return False
    end = MachineState(phase=PHASE_CRASHED, end_reason=END_REASON_INTERNAL_ERROR, message=sentence)
    await machine.end(context.store, end)
    return True


async def _begin_anew(context: NodeContext, machine: Machine) -> float:
    """The plan never left, as the agent before us ended in between: nothing runs, so forget and start again."""
    context.launchers.release(machine.record.pod_uid)
    machine.close("the machine starts again")
    context.machines.pop(machine.id, None)
    context.store.drop(machine.id)
    return 0.01


async def _connect(context: NodeContext, machine: Machine, session: DriverSession | None) -> Problem | None:
    """Have the driver know the machine and run it; what stands in the way, if anything does."""
    if session is None or not session.synced:
        return None
    if machine.id not in session.states:
        problem = await adopt.in_driver(session, machine)
        if problem is not None:
            return problem
    if session.states[machine.id].phase == PHASE_PREPARED and await _is_prepared(session, machine):
        await start.first_run(context, session, machine)
    return None


async def _is_prepared(session: DriverSession, machine: Machine) -> bool:
    """Whether its guest was really not started: the event that tells of it may still be on its way, or be lost."""
    try:
        state = await session.client.inspect(machine.id)
    except HriError as error:
        log.warning("machine %s: the driver does not tell its state: %s", machine.id, error)
        return False
    session.adopted(machine.id, state)
    return state.phase == PHASE_PREPARED


async def _credentials(context: NodeContext, machine: Machine, vmi: Json) -> credentials.Wanted:
    """What the guest's agent is to set, by the Secrets that the launcher pod has now."""
    carried: dict[str, payloads.Files] = {}
    for path in credentials.paths(vmi):
        directory = await context.launchers.mount(machine.record.pod_uid, path)
        try:
            carried[path] = await asyncio.to_thread(payloads.read, directory)
        finally:
            os.close(directory)
    return credentials.wanted(vmi, carried)


async def _show(
    context: NodeContext,
    machine: Machine,
    vmi: Json,
    state: MachineState | None,
    problem: Problem | None,
    changed: Size,
) -> None:
    """Tell the VMI what is known of its machine."""
    record = machine.record
    connected = state is not None and state.guest_agent.connected
    machine.guest.follow(connected=connected)
    known = machine.credentials.outcome
    read = partial(_credentials, context, machine, vmi) if connected and credentials.by_agent(vmi) else None
    machine.credentials.follow(read)
    begun = state is not None and state.phase not in _NOT_BEGUN
    was = text_at(vmi, "status", "phase")
    phase = status.RUNNING if begun or was == status.RUNNING else ""
    hypervisor = status.hypervisor_status(
        hypervisor_class=record.hypervisor_class,
        driver=record.driver,
        version=record.driver_version,
        minor=record.hri_minor,
        digest=record.plan_digest,
        accelerator=state.accelerator if state is not None and state.accelerator else record.accelerator,
        images=record.images,
    )
    seen = Observation(
        phase=phase,
        state=state,
        problem=problem,
        hypervisor=hypervisor,
        machine_type=record.machine_type,
        interfaces=machine.interfaces,
        guest=machine.guest.facts,
        volumes=machine.hotplug.told.copy(),
        size=changed,
        credentials=known,
    )
    shown = await vmi_status.write(context.client, vmi, seen)
    if shown is not None:
        machine.hotplug.written(seen.volumes)
        _announce_credentials(context, machine, vmi, known)
    if shown is not None and begun and was != status.RUNNING:
        context.event(machine, EventKind.NORMAL, "Started", "the guest is started")


def _announce_credentials(context: NodeContext, machine: Machine, vmi: Json, outcome: str | None) -> None:
    """An event when what the VMI says of its credentials changes."""
    before = condition(vmi, status.CREDENTIALS)
    said = None if before is None else "" if before.get("status") == "True" else str(before.get("message", ""))
    if outcome is None or outcome == said:
        return
    if outcome:
        context.event(machine, EventKind.WARNING, "AccessCredentialsSyncFailed", outcome)
    else:
        context.event(machine, EventKind.NORMAL, "AccessCredentialsSyncSuccess", "Access credentials sync successful.")
