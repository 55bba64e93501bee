"""Memory of a running guest: more and less of it as the VMI's spec says, and told in its status."""

import logging
from dataclasses import dataclass
from typing import Final

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.status import MEMORY_CHANGE, GuestMemory
from anyvisor.api.meta import Json, condition, object_at
from anyvisor.api.quantity import parse_quantity
from anyvisor.hri.errors import NotImplementedByDriver, Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, MachineState
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

CAPABILITY: Final = "change.memory"
FAILED: Final = "HotPlugMemoryError"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes that the VMI asks for, that the guest began with, and that its status says it has now."""

    size: str
    wanted: int
    at_boot: int
    present: int
    announced: bool
    """Whether the VMI says that a change is under way, or that one failed."""


def wanted(vmi: Json) -> Wanted | None:
    """None for a machine whose memory cannot change while it runs."""
    memory, now = object_at(vmi, "spec", "domain", "memory"), object_at(vmi, "status", "memory")
    if not memory.get("maxGuest") or not memory.get("guest") or not now.get("guestCurrent"):
        return None
    present = parse_quantity(now["guestCurrent"]).value
    return Wanted(
        size=str(memory["guest"]),
        wanted=parse_quantity(memory["guest"]).value,
        at_boot=parse_quantity(now.get("guestAtBoot") or now["guestCurrent"]).value,
        present=present,
        announced=condition(vmi, MEMORY_CHANGE) is not None,
    )


async def follow(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> GuestMemory | None:
    """Make the change; what is to be told of it, None when there is nothing to say.

    A change that failed is not tried again: the VM's controller asks for a restart. One whose result was not written,
    as we ended in between, is made again, which changes nothing.

    Raises:
        HriError: the driver does not answer; try again later.
    """
    if session is None or state is None or state.phase not in (PHASE_RUNNING, PHASE_PAUSED):
        return None
    asked = wanted(vmi)
    if asked is None or (asked.wanted == asked.present and not asked.announced):
        return None
    if asked.wanted == asked.present:
        return GuestMemory(asked.size)
    if (condition(vmi, MEMORY_CHANGE) or {}).get("status") == "False":
        return None
    if CAPABILITY not in session.address.capabilities:
        why = f"driver {machine.record.driver} changes no memory while the guest runs"
    else:
        why = await _change(context, session, machine, asked)
    if why:
        context.event(machine, EventKind.WARNING, FAILED, f"spec.domain.memory.guest: {why}; restart the VM")
        return GuestMemory(str(object_at(vmi, "status", "memory")["guestCurrent"]), f"{why}; restart the VM")
    return GuestMemory(asked.size)


async def _change(context: NodeContext, session: DriverSession, machine: Machine, asked: Wanted) -> str:
    """Why it cannot be; empty when it is done. The pod has room for the larger of both sizes meanwhile."""
    pod, grows = machine.record.pod_uid, asked.wanted > asked.present
    try:
        if grows:
            await context.launchers.resize(pod, asked.wanted - asked.at_boot)
        failure = await _set(session, machine, asked.wanted)
        if failure and grows:
            await context.launchers.resize(pod, asked.present - asked.at_boot)
        elif not failure and not grows:
            await context.launchers.resize(pod, asked.wanted - asked.at_boot)
    except OSError as error:
        return f"the memory of its pod cannot be changed: {error.strerror or error}"
    return failure


async def _set(session: DriverSession, machine: Machine, size: int) -> str:
    change = ApplyRequest()
    change.set_memory.size_bytes = size
    record = machine.record
    try:
        operation = await session.client.apply(machine.id, change, generation=record.generation, minor=record.hri_minor)
        await session.finished(operation)
    except (Refused, NotImplementedByDriver) as error:
        log.warning("machine %s: its memory is not changed: %s", machine.id, error)
        return str(error)
    return ""
