"""CPU sockets of a running guest: added as the VMI's spec says, and told in its status."""

import logging
from dataclasses import dataclass
from typing import Final

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.status import CPU_CHANGE, CpuSockets
from anyvisor.api.meta import Json, condition, object_at
from anyvisor.hri.errors import NotImplementedByDriver, Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, MachineState
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

CAPABILITY: Final = "change.cpu"
FAILED: Final = "HotPlugCPUError"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the VMI asks for, and what its status says that the guest has."""

    sockets: int
    present: int
    announced: bool
    """Whether the VMI says that a change is under way, or that one failed."""


def wanted(vmi: Json) -> Wanted | None:
    """None for a machine whose sockets cannot change while it runs."""
    cpu, now = object_at(vmi, "spec", "domain", "cpu"), object_at(vmi, "status", "currentCPUTopology")
    if not cpu.get("maxSockets") or not now:
        return None
    sockets, present = int(cpu.get("sockets") or 1), int(now.get("sockets") or 1)
    return Wanted(sockets, present, announced=condition(vmi, CPU_CHANGE) is not None)


async def follow(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> CpuSockets | None:
    """Add what is missing; what is to be told of it, None when there is nothing to say.

    A change that failed is not tried again: the VM's controller asks for a restart. One whose result was not written,
    as we ended in between, is made again, which changes nothing.

    Raises:
        HriError: the driver does not answer; try again later.
    """
    if session is None or state is None or state.phase not in (PHASE_RUNNING, PHASE_PAUSED):
        return None
    asked = wanted(vmi)
    if asked is None or (asked.sockets == asked.present and not asked.announced):
        return None
    failed = (condition(vmi, CPU_CHANGE) or {}).get("status") == "False"
    if failed and asked.sockets != asked.present:
        return None
    if asked.sockets == asked.present:
        return CpuSockets(asked.present)
    if CAPABILITY not in session.address.capabilities:
        why = f"driver {machine.record.driver} adds no CPU sockets while the guest runs"
    else:
        why = await _set(session, machine, asked.sockets)
    if why:
        context.event(machine, EventKind.WARNING, FAILED, f"spec.domain.cpu.sockets: {why}; restart the VM")
        return CpuSockets(asked.present, f"{why}; restart the VM")
    return CpuSockets(asked.sockets)


async def _set(session: DriverSession, machine: Machine, sockets: int) -> str:
    """Why it cannot be; empty when it is done."""
    change = ApplyRequest()
    change.set_cpu.sockets = sockets
    record = machine.record
    try:
        operation = await session.client.apply(machine.id, change, generation=record.generation, minor=record.hri_minor)
        await session.finished(operation)
    except (Refused, NotImplementedByDriver) as error:
        log.warning("machine %s: its CPU sockets are not changed: %s", machine.id, error)
        return str(error)
    return ""
