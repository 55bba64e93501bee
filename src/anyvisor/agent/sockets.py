"""CPU sockets of a running guest: added as the VMI's spec says, and told in its status."""

from dataclasses import dataclass
from typing import Final

from anyvisor.agent import resizing
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.status import CPU_CHANGE, CpuSockets
from anyvisor.api.meta import Json, object_at
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import MachineState
from anyvisor.kube.events import EventKind

CAPABILITY: Final = "change.cpu"
FAILED: Final = "HotPlugCPUError"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the VMI asks for, and what its status says that the guest has."""

    sockets: int
    present: int


def wanted(vmi: Json) -> Wanted | None:
    """None for a machine whose sockets cannot change while it runs."""
    cpu, now = object_at(vmi, "spec", "domain", "cpu"), object_at(vmi, "status", "currentCPUTopology")
    if not cpu.get("maxSockets") or not now:
        return None
    return Wanted(int(cpu.get("sockets") or 1), int(now.get("sockets") or 1))


async def follow(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> CpuSockets | None:
    """Add what is missing; what is to be told of it, None when there is nothing to say.

    Raises:
        HriError: the driver does not answer; try again later.
    """
    asked = wanted(vmi)
    if session is None or asked is None or not resizing.can_change(state):
        return None
    step = resizing.next_step(vmi, CPU_CHANGE, asked.sockets, asked.present)
    if step == "none":
        return None
    if step == "tell":
        return CpuSockets(asked.present)
    if CAPABILITY not in session.address.capabilities:
        why = f"driver {machine.record.driver} adds no CPU sockets while the guest runs"
    else:
        change = ApplyRequest()
        change.set_cpu.sockets = asked.sockets
        why = await resizing.apply(session, machine, change, "CPU sockets are")
    if why:
        context.event(machine, EventKind.WARNING, FAILED, f"spec.domain.cpu.sockets: {why}; restart the VM")
        return CpuSockets(asked.present, f"{why}; restart the VM")
    return CpuSockets(asked.sockets)
