"""Links of a running guest's interfaces: brought up and down as `state` in the VMI says."""

import logging
from typing import Final

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.status import Problem
from anyvisor.agent.translate_devices import nic_id
from anyvisor.api.meta import Json, list_at
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, MachineState
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

CAPABILITY: Final = "change.nic.link"


def wanted(vmi: Json) -> dict[str, bool]:
    """Interface -> whether its link is up; those that are to go are left out."""
    declared = list_at(vmi, "spec", "domain", "devices", "interfaces")
    return {str(each.get("name")): each.get("state") != "down" for each in declared if each.get("state") != "absent"}


async def follow(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession | None, state: MachineState | None
) -> Problem | None:
    """Change what is not as it should be; what stands in the way, if anything does.

    After a restart of the agent it is not known what was changed before it, so every link is set again.
    """
    if session is None or state is None or state.phase not in (PHASE_RUNNING, PHASE_PAUSED) or machine.network is None:
        return None
    present = {nic.id for nic in machine.network.nics}
    late = {name: up for name, up in wanted(vmi).items() if name in present and machine.links.get(name) is not up}
    if not late:
        return None
    if CAPABILITY not in session.address.capabilities:
        _say_once(context, machine, late)
        return None
    try:
        for name, up in late.items():
            await _set(session, machine, name, up=up)
    except HriError as error:
        log.warning("machine %s: its links are not set: %s", machine.id, error)
        return Problem("LinkNotChanged", f"spec.domain.devices.interfaces: {error}")
    return None


async def _set(session: DriverSession, machine: Machine, name: str, *, up: bool) -> None:
    change = ApplyRequest()
    change.set_link.nic_id, change.set_link.up = nic_id(name), up
    record = machine.record
    operation = await session.client.apply(machine.id, change, generation=record.generation, minor=record.hri_minor)
    await session.finished(operation)
    machine.links[name] = up
    for entry in machine.network.status if machine.network is not None else ():
        if entry["name"] == name:
            entry["linkState"] = "up" if up else "down"


def _say_once(context: NodeContext, machine: Machine, late: dict[str, bool]) -> None:
    """A driver that cannot: links are as they were at the start, which is told for what a user changed since."""
    for name, up in late.items():
        if name in machine.links:
            message = f"driver {machine.record.driver} cannot set the link of interface {name} while the guest runs"
            context.event(machine, EventKind.WARNING, "LinkNotChanged", f"{message}; restart the VM")
        machine.links[name] = up
