"""What sizes of a running guest have in common: when one follows the VMI's spec, and how the driver is asked."""

import logging
from typing import Literal

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.api.meta import Json, condition
from anyvisor.hri.errors import NotImplementedByDriver, Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, MachineState

log = logging.getLogger(__name__)

Step = Literal["none", "tell", "change"]


def next_step(vmi: Json, change: str, wanted: int, present: int) -> Step:
    """What is to be done for a size whose changes are announced by the condition `change`.

    A change that failed is not tried again: the VM's controller asks for a restart. One whose result was not written,
    as we ended in between, is made again, which changes nothing.
    """
    announced = condition(vmi, change)
    if wanted == present:
        return "none" if announced is None else "tell"
    return "none" if (announced or {}).get("status") == "False" else "change"


def can_change(state: MachineState | None) -> bool:
    """Whether the guest is there to be changed."""
    return state is not None and state.phase in (PHASE_RUNNING, PHASE_PAUSED)


async def apply(session: DriverSession, machine: Machine, change: ApplyRequest, what: str) -> str:
    """Have the driver make a change; why it cannot be, empty when it is done.

    Raises:
        HriError: the driver does not answer; try again later.
    """
    record = machine.record
    try:
        operation = await session.client.apply(machine.id, change, generation=record.generation, minor=record.hri_minor)
        await session.finished(operation)
    except (Refused, NotImplementedByDriver) as error:
        log.warning("machine %s: its %s not changed: %s", machine.id, what, error)
        return str(error)
    return ""
