"""Take over what runs: from records at our start, and in a driver after its restart."""

import asyncio
import logging
import os

from anyvisor.agent import processes, start
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.endpoints import EndpointError
from anyvisor.agent.handover import was_taken
from anyvisor.agent.launchers import Launcher
from anyvisor.agent.machine import DRIVER, Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.records import Record, RecordError
from anyvisor.agent.status import Problem
from anyvisor.api.meta import Json
from anyvisor.hri.errors import HriError

log = logging.getLogger(__name__)


async def load(context: NodeContext) -> None:
    """Build the machines of all records; a record that cannot be used is reported on its VMI, never removed."""
    for machine_id in await asyncio.to_thread(lambda: list(context.store.ids())):
        try:
            record = await asyncio.to_thread(context.store.read, machine_id)
        except RecordError as error:
            log.error("%s", error)
            context.damaged[machine_id] = str(error)
            continue
        if record is not None:
            context.machines[machine_id] = await recorded(context, record)


async def recorded(context: NodeContext, record: Record) -> Machine:
    """The machine of a record: alive when exactly its process still runs."""
    launcher = await _launcher(context, record)
    machine = Machine(record, launcher, lambda: context.queue.add(record.machine_id))
    context.launchers.hold(record.pod_uid)
    if launcher is not None:
        machine.open_log(context.store, adopted=True)
        machine.open_hook(lambda: start.hook_asked(context, machine))
    return machine


async def _launcher(context: NodeContext, record: Record) -> Launcher | None:
    pidfd = processes.open_process(record.process)
    if pidfd is None:
        return None
    found = await context.launchers.find(record.pod_uid)
    if found is not None and found.pid == record.pid:
        os.close(pidfd)
        return found
    if found is not None:
        found.close()
    log.warning("machine %s runs, but its launcher's directory is not known any more", record.machine_id)
    directory = await asyncio.to_thread(context.store.directory, record.machine_id)
    return Launcher(record.pid, pidfd, directory, os.geteuid(), os.getegid())


async def confirm_taken(machine: Machine) -> bool:
    """Whether the plan of a record left and was taken; False: nothing runs, and the start may begin anew.

    Raises:
        HandOverError: nobody can tell.
    """
    if machine.taken or not machine.record.has_process or machine.launcher is None:
        return True
    machine.taken = await was_taken(machine.launcher)
    return machine.taken


async def in_driver(session: DriverSession, machine: Machine) -> Problem | None:
    """Give a running machine to a driver that does not know it; what stands in the way, if anything does."""
    record = machine.record
    try:
        tokens = await start.give_descriptors(session, machine)
        response = await session.client.adopt(
            machine.id,
            record.handle,
            generation=record.generation,
            minor=record.hri_minor,
            tokens=tokens,
            pid=record.pid if record.has_process else 0,
        )
    except (EndpointError, HriError) as error:
        machine.endpoints.release_all(DRIVER)
        log.warning("machine %s is not adopted: %s", machine.id, error)
        return Problem("NotAdopted", f"the guest runs, but driver {record.driver} cannot take it over: {error}")
    session.adopted(machine.id, response.state)
    return None


async def reopen(context: NodeContext, machine: Machine, vmi: Json | None) -> None:
    """Open again what ended with the agent before: the console's connection and the network's sockets."""
    if machine.launcher is None or not machine.alive:
        return
    await machine.helpers.follow()
    if not machine.console.connected:
        await machine.open_console()
    pod = context.pod(machine.id, machine.record.pod_uid)
    if machine.network is None and vmi is not None and pod is not None:
        try:
            machine.network = await start.attach(context, vmi, pod, adopted=True, external=machine.record.external)
        except Exception as error:  # noqa: BLE001 - the guest runs; its network's extras must not stop its adoption
            log.warning("machine %s: its network's services are not reopened: %s", machine.id, error)
