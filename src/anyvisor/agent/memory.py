"""Memory of a running guest: more and less of it as the VMI's spec says, and told in its status."""

from dataclasses import dataclass
from typing import Final

from anyvisor.agent import resizing
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.status import MEMORY_CHANGE, GuestMemory
from anyvisor.api.meta import Json, object_at
from anyvisor.api.quantity import parse_quantity
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import MachineState
from anyvisor.kube.events import EventKind

CAPABILITY: Final = "change.memory"
FAILED: Final = "HotPlugMemoryError"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bytes that the VMI asks for, that the guest began with, and that its status says it has now."""

    size: str
    wanted: int
    at_boot: int
    present: int


def wanted(vmi: Json) -> Wanted | None:
    """None for a machine whose memory cannot change while it runs."""
    memory, now = object_at(vmi, "spec", "domain", "memory"), object_at(vmi, "status", "memory")
    if not memory.get("maxGuest") or not memory.get("guest") or not now.get("guestCurrent"):
        return None
    return Wanted(
        size=str(memory["guest"]),
        wanted=parse_quantity(memory["guest"]).value,
        at_boot=parse_quantity(now.get("guestAtBoot") or now["guestCurrent"]).value,
        present=parse_quantity(now["guestCurrent"]).value,
    )


async def follow(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> GuestMemory | None:
    """Make the change; what is to be told of it, None when there is nothing to say.

    Raises:
        HriError: the driver does not answer; try again later.
    """
    asked = wanted(vmi)
    if session is None or asked is None or not resizing.can_change(state):
        return None
    step = resizing.next_step(vmi, MEMORY_CHANGE, asked.wanted, asked.present)
    if step == "none":
        return None
    if step == "tell":
        return GuestMemory(asked.size)
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
    change = ApplyRequest()
    change.set_memory.size_bytes = asked.wanted
    try:
        if grows:
            await context.launchers.resize(pod, asked.wanted - asked.at_boot)
        failure = await resizing.apply(session, machine, change, "memory is")
        if failure and grows:
            await context.launchers.resize(pod, asked.present - asked.at_boot)
        elif not failure and not grows:
            await context.launchers.resize(pod, asked.wanted - asked.at_boot)
    except OSError as error:
        return f"the memory of its pod cannot be changed: {error.strerror or error}"
    return failure
