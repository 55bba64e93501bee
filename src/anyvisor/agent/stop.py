"""Stop a machine: ask the guest again and again, then end it by force. Works with the driver away."""

import asyncio
import logging
import signal
import time
from datetime import datetime
from typing import Final

from anyvisor.agent import processes, script, translate
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.api.meta import Json, is_deleting, metadata
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_REQUESTED_SHUTDOWN,
    PHASE_STOPPED,
    MachineState,
)
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

REPEAT_SECONDS: Final = 5.0
FORCE_SECONDS: Final = 10.0
SCRIPT_SECONDS: Final = 2.0
LOOK_AGAIN_SECONDS: Final = 1.0


def deadline(machine: Machine, vmi: Json | None, pod: Json | None) -> float | None:
    """When the guest must be down, in wall-clock seconds; None: it is not to be stopped."""
    candidates: list[float] = []
    if machine.stop_deadline is not None:
        candidates.append(machine.stop_deadline)
    if vmi is None:
        candidates.append(0.0)
    elif is_deleting(vmi):
        candidates.append(_seconds(vmi) + translate.grace_seconds(vmi))
    if pod is not None and is_deleting(pod):
        # A pod's deletionTimestamp is the end of its grace, not its beginning.
        candidates.append(_seconds(pod))
    return min(candidates) if candidates else None


def _seconds(obj: Json) -> float:
    text = str(metadata(obj).get("deletionTimestamp") or "")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


async def step(context: NodeContext, machine: Machine, session: DriverSession | None, until: float) -> float:
    """Do what is due now; returns after how many seconds to look again."""
    if not machine.announced_stop:
        machine.announced_stop = True
        context.event(machine, EventKind.NORMAL, "ShuttingDown", "the guest is asked to shut down")
    left = until - time.time()
    if left <= 0:
        await _force(context, machine, session)
        return LOOK_AGAIN_SECONDS
    since = time.monotonic() - machine.last_request
    if since >= REPEAT_SECONDS or not machine.last_request:
        machine.last_request = time.monotonic()
        await _request(context, machine, session)
        since = 0.0
    return max(min(REPEAT_SECONDS - since, left), 0.05)


async def _request(context: NodeContext, machine: Machine, session: DriverSession | None) -> None:
    if session is not None and session.synced:
        record = machine.record
        try:
            await session.client.stop(machine.id, generation=record.generation, minor=record.hri_minor)
            return
        except HriError as error:
            log.warning("machine %s: the driver did not ask the guest to stop: %s", machine.id, error)
    if machine.script is None or machine.script.done():
        machine.script = context.tasks.create_task(_play_request(context, machine))


async def _play_request(context: NodeContext, machine: Machine) -> bool:
    """Ask the guest without a driver; when it is down, that is how the run ended."""
    if machine.launcher is None:
        return False
    down = await script.request(machine.launcher.directory, machine.record.grace_seconds + FORCE_SECONDS)
    if down and machine.alive:
        end = MachineState(phase=PHASE_STOPPED, end_reason=END_REASON_REQUESTED_SHUTDOWN)
        await machine.end(context.store, end)
        context.queue.add(machine.id)
    return down


async def _force(context: NodeContext, machine: Machine, session: DriverSession | None) -> None:
    """End the guest now; with the driver if it answers, else by the script, at last by SIGKILL."""
    record = machine.record
    if session is not None and session.synced:
        try:
            async with asyncio.timeout(FORCE_SECONDS):
                operation = await session.client.stop(
                    machine.id, generation=record.generation, minor=record.hri_minor, force=True
                )
                await session.finished(operation, FORCE_SECONDS)
                return
        except (HriError, TimeoutError) as error:
            log.warning("machine %s: the driver did not end the guest: %s", machine.id, error)
    if record.external:  # nobody else can, and until it has happened nothing may be said
        return
    await machine.end(context.store, MachineState(phase=PHASE_STOPPED, end_reason=END_REASON_FORCED))
    await end_process(machine)


async def end_process(machine: Machine) -> None:
    """End the VMM: flushed if it listens to its stop script, by SIGKILL if not."""
    if not machine.alive or machine.launcher is None:
        return
    if not machine.record.has_process:
        processes.send_signal(machine.launcher.pidfd, signal.SIGTERM)
    else:
        await script.finish(machine.launcher.directory, SCRIPT_SECONDS)
    await machine.settled()
    if machine.alive:
        processes.send_signal(machine.launcher.pidfd, signal.SIGKILL)
        await machine.settled()
