"""Bring network interfaces into a running guest and out of it, as the VMI's spec says.

The pod's side comes and goes with its annotation: by the cluster's dynamic network plug-in, or by our own pod network.
"""

import logging
import os
from typing import Final

from anyvisor.agent import start
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.network import MachineNetwork
from anyvisor.agent.nic_changes import ATTACH, DETACH, Step, steps
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.status import Problem
from anyvisor.agent.translate import with_device_id
from anyvisor.agent.translate_devices import nic_id
from anyvisor.api.meta import Json
from anyvisor.api.names import secondary_interface
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, DescriptorToken, MachineState
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

REASON: Final = "InterfaceNotChanged"
_CAPABILITIES: Final = {ATTACH: "change.nic.attach", DETACH: "change.nic.detach"}
_DONE: Final = {
    ATTACH: ("InterfaceAttached", "is attached to the guest"),
    DETACH: ("InterfaceDetached", "is detached from the guest"),
}


class _NotChangeableError(Exception):
    """The driver has no such change."""


def follow(context: NodeContext, machine: Machine, vmi: Json, session: DriverSession, state: MachineState) -> None:
    """Begin what the spec asks for; one after the other, beside all else of the machine."""
    own, network = machine.nic_changes, machine.network
    if own.task is not None or network is None or state.phase not in (PHASE_RUNNING, PHASE_PAUSED):
        return
    pod = context.pod(machine.id, machine.record.pod_uid)
    if pod is None:
        return
    due = own.due(steps(vmi, {nic.id for nic in network.nics}, pod))
    if due:
        work = _carry_out(context, machine, network, vmi, pod, session, due)
        own.task = context.tasks.create_task(work, name=f"interfaces of {machine.id}")


async def _carry_out(
    context: NodeContext,
    machine: Machine,
    network: MachineNetwork,
    vmi: Json,
    pod: Json,
    session: DriverSession,
    todo: list[Step],
) -> None:
    own = machine.nic_changes
    try:
        for step in todo:
            problem: Problem | None = None
            try:
                if step.kind == ATTACH:
                    await _attach(context, machine, network, vmi, pod, session, step.interface)
                else:
                    await _detach(context, machine, network, pod, session, step.interface)
            except (HriError, OpenError, OSError, _NotChangeableError) as error:
                said = error.message if isinstance(error, HriError) else str(error)
                log.warning("machine %s: %s of interface %s: %s", machine.id, step.kind, step.interface, said)
                problem = Problem(REASON, f"interface {step.interface}: {step.kind}: {said}"[:1024])
            if own.tried(step, problem) and problem is not None:
                context.event(machine, EventKind.WARNING, REASON, problem.message)
            elif problem is None:
                reason, what = _DONE[step.kind]
                context.event(machine, EventKind.NORMAL, reason, f"interface {step.interface} {what}")
    finally:
        own.task = None
        context.queue.add(machine.id)


async def _attach(
    context: NodeContext,
    machine: Machine,
    network: MachineNetwork,
    vmi: Json,
    pod: Json,
    session: DriverSession,
    name: str,
) -> None:
    _must_have(machine, session, ATTACH)
    opened = await start.attach(context, vmi, pod, adopted=False, external=machine.record.external, only=name)
    try:
        (nic,) = opened.nics
        change = ApplyRequest()
        change.attach_nic.CopyFrom(with_device_id(nic, mtu="nic.mtu" in session.address.capabilities))
        tokens: list[DescriptorToken] = []
        for handle, descriptor in list(opened.descriptors.items()):
            tokens.append(await session.client.send_descriptor(handle, descriptor))
            os.close(opened.descriptors.pop(handle))
        await _apply(machine, session, change, tokens)
    except BaseException:
        opened.close()
        raise
    network.absorb(opened)
    machine.links[name] = not nic.link_down


async def _detach(
    context: NodeContext, machine: Machine, network: MachineNetwork, pod: Json, session: DriverSession, name: str
) -> None:
    if name in {nic.id for nic in network.nics}:
        _must_have(machine, session, DETACH)
        await _apply(machine, session, ApplyRequest(detach_nic=nic_id(name)), [])
        network.drop(name)
        machine.links.pop(name, None)
    netns = await context.launchers.network_namespace(machine.record.pod_uid)
    if netns is not None:
        try:
            await context.detach_network(pod=pod, netns=netns, interface=secondary_interface(name))
        finally:
            os.close(netns)


def _must_have(machine: Machine, session: DriverSession, kind: str) -> None:
    if _CAPABILITIES[kind] not in session.address.capabilities:
        driver = machine.record.driver
        raise _NotChangeableError(f"driver {driver} does not do that while the guest runs; restart the VM")


async def _apply(machine: Machine, session: DriverSession, change: ApplyRequest, tokens: list[DescriptorToken]) -> None:
    generation, minor = machine.record.generation, machine.record.hri_minor
    accepted = await session.client.apply(machine.id, change, generation=generation, minor=minor, tokens=tokens)
    await session.finished(accepted)
