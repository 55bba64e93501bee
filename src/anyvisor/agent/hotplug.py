"""Bring volumes into a running guest and out of it: claims opened, descriptors handed to the driver, phases told."""

import asyncio
import logging
import os
from typing import Final

from anyvisor.agent import placing, translate_devices
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.launchers import LauncherError
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.translate_parts import TranslateError
from anyvisor.agent.volumes import hot
from anyvisor.agent.volumes.hot import Step
from anyvisor.agent.volumes.open import VolumeSet, open_claim
from anyvisor.api.meta import Json, list_at, text_at
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_PAUSED, PHASE_RUNNING, DescriptorToken, MachineState
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

FAILED: Final = "FailedHotplugSync"
_CAPABILITIES: Final = {
    "attach": "change.disk.attach",
    "detach": "change.disk.detach",
    "insert": "change.disk.media",
    "eject": "change.disk.media",
}
_DONE: Final = {
    "attach": ("VolumeReady", "the disk is attached to the guest"),
    "insert": ("VolumeReady", "the medium is in the guest's drive"),
    "present": ("VolumeReady", "the disk is attached to the guest"),
    "detach": ("VolumeUnMountedFromPod", "the disk is detached from the guest"),
    "eject": ("VolumeUnMountedFromPod", "the medium is out of the guest's drive"),
    "absent": ("VolumeUnMountedFromPod", "the guest has the disk no more"),
}


def follow(context: NodeContext, machine: Machine, vmi: Json, session: DriverSession, state: MachineState) -> None:
    """Begin what the spec asks for; one after the other, beside all else of the machine."""
    own = machine.hotplug
    if own.task is not None or own.told or state.phase not in (PHASE_RUNNING, PHASE_PAUSED):
        return
    phases = _phases(vmi)
    own.seen(phases)
    plugged = {device.id for device in state.devices}
    present = {name for name in phases if translate_devices.disk_id(name) in plugged}
    todo = [step for step in hot.steps(vmi, present) if step.volume not in own.unseen]
    due = own.retries.due(todo)
    if due:
        work = _carry_out(context, machine, vmi, session, due)
        own.task = context.tasks.create_task(work, name=f"volumes of {machine.id}")


def _phases(vmi: Json) -> dict[str, str]:
    return {str(each["name"]): text_at(each, "phase") for each in list_at(vmi, "status", "volumeStatus")}


async def _carry_out(
    context: NodeContext, machine: Machine, vmi: Json, session: DriverSession, todo: list[Step]
) -> None:
    own = machine.hotplug
    try:
        for step in todo:
            await _step(context, machine, vmi, session, step)
    finally:
        own.task = None
        context.queue.add(machine.id)


async def _step(context: NodeContext, machine: Machine, vmi: Json, session: DriverSession, step: Step) -> None:
    own = machine.hotplug
    try:
        await _apply(context, machine, vmi, session, step)
    except (HriError, OpenError, TranslateError, LauncherError, OSError) as error:
        said = f"{error.message}" if isinstance(error, HriError) else str(error)
        log.warning("machine %s: %s of volume %s: %s", machine.id, step.kind, step.volume, said)
        first = own.retries.tried(step, failed=True)
        own.told[step.volume] = {"reason": FAILED, "message": f"{step.kind}: {said}"[:1024]}
        if first:
            message = f"volume {step.volume}: {step.kind}: {said}"
            context.event(machine, EventKind.WARNING, FAILED, message)
        return
    own.retries.forget(step)
    reason, message = _DONE[step.kind]
    phase = hot.READY if reason == "VolumeReady" else hot.OUT
    own.unseen[step.volume] = _phases(vmi).get(step.volume, "")
    own.told[step.volume] = {"phase": phase, "reason": reason, "message": message}
    context.event(machine, EventKind.NORMAL, reason, f"volume {step.volume}: {message}")


async def _apply(context: NodeContext, machine: Machine, vmi: Json, session: DriverSession, step: Step) -> None:
    capability = _CAPABILITIES.get(step.kind)
    if capability is None:
        return
    if capability not in session.address.capabilities:
        raise TranslateError(
            "spec.volumes", f"driver {machine.record.driver} does not change disks while the guest runs; restart the VM"
        )
    change = ApplyRequest()
    volumes = VolumeSet()
    try:
        if step.kind in ("attach", "insert"):
            await _open(context, machine, vmi, step, volumes)
        device = translate_devices.disk_id(step.volume)
        if step.kind == "attach":
            change.attach_disk.CopyFrom(translate_devices.disk(vmi, step.volume, volumes.handles))
        elif step.kind == "detach":
            change.detach_disk = device
        else:
            change.change_media.disk_id = device
            if step.kind == "insert":
                change.change_media.volume.CopyFrom(volumes.handles[step.volume])
        if step.kind == "attach" and placing.CAPABILITY in session.address.capabilities:
            change.placed.update(await asyncio.to_thread(_placed, machine, device, volumes))
        tokens = await _tokens(session, volumes)
        generation, minor = machine.record.generation, machine.record.hri_minor
        accepted = await session.client.apply(machine.id, change, generation=generation, minor=minor, tokens=tokens)
        await session.finished(accepted)
        if step.kind == "detach" and machine.launcher is not None:
            await asyncio.to_thread(placing.remove, machine.launcher, device)
    finally:
        await asyncio.to_thread(volumes.close)


def _placed(machine: Machine, device: str, volumes: VolumeSet) -> dict[str, str]:
    """The volume's file as a name in the launcher's directory, by its handle."""
    if machine.launcher is None or len(volumes.descriptors) != 1:
        raise LauncherError("its VMM opens one file by name for each disk; restart the VM to have this one")
    ((handle, descriptor),) = volumes.descriptors.items()
    placing.place(machine.launcher, device, descriptor)
    return {handle: device}


async def _open(context: NodeContext, machine: Machine, vmi: Json, step: Step, volumes: VolumeSet) -> None:
    index, volume = next(
        (number, each) for number, each in enumerate(list_at(vmi, "spec", "volumes")) if each["name"] == step.volume
    )
    _, claims = context.volume_sources(vmi, machine.record.pod_uid)
    await open_claim(vmi, f"spec.volumes[{index}]", volume, claims, volumes)


async def _tokens(session: DriverSession, volumes: VolumeSet) -> list[DescriptorToken]:
    tokens: list[DescriptorToken] = []
    for handle, descriptor in list(volumes.descriptors.items()):
        tokens.append(await session.client.send_descriptor(handle, descriptor))
        os.close(volumes.descriptors.pop(handle))
    return tokens
