"""Start a machine: claim, open, prepare, record, hand over, run. In this order, and each step at most once.

After a crash between two steps the record decides: none means that no plan has left, so the start begins anew
(the claim is kept); one means that the plan may have left (`adopt`).
"""

import asyncio
import contextlib
import logging
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from anyvisor.agent import endpoints, launch, processes, translate, vmi_status
from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.endpoints import EndpointError
from anyvisor.agent.handover import HandOverError, await_shim, hand_over
from anyvisor.agent.hostdevices import open_devices
from anyvisor.agent.launchers import Launcher, LauncherError
from anyvisor.agent.machine import DRIVER, Machine
from anyvisor.agent.network import MachineNetwork
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.plan import PodPlan
from anyvisor.agent.records import Record, RecordError, Stage
from anyvisor.agent.trace import Trace
from anyvisor.agent.translate_parts import TranslateError
from anyvisor.agent.volumes.context import VolumeContext
from anyvisor.agent.volumes.images import references
from anyvisor.agent.volumes.open import VolumeSet, open_volumes
from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.api import meta
from anyvisor.api.meta import Json, name, namespace, uid
from anyvisor.hri.errors import DeadlineExceeded, DriverUnavailable, HriError, OperationConflict
from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_INTERNAL_ERROR,
    PHASE_CRASHED,
    DescriptorToken,
    MachineState,
)
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

CONSOLE_LOG: Final = "console/log"
MAX_FINDINGS: Final = 16
"""Of one machine are told as events."""


class StartError(Exception):
    """A machine did not start. `retry` tells whether the same start may work later; else the VMI has failed."""

    def __init__(self, reason: str, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.reason, self.message, self.retry = reason, message, retry


@dataclass(slots=True)
class Opened:
    """Volumes and network of one machine, open."""

    volumes: VolumeSet
    network: MachineNetwork
    images: dict[str, str]
    """What the names of its images stand for."""


async def start(context: NodeContext, vmi: Json, pod: Json, wanted: PodPlan) -> Machine:
    """Bring a claimed VMI to a running guest, or to a machine whose record says how far it got.

    Raises:
        StartError: nothing of it runs.
        Conflict: the VMI changed meanwhile.
    """
    session = usable_session(context, wanted.plan.driver)
    trace = Trace()
    launcher = await context.launchers.find(uid(pod))
    if launcher is None:
        raise StartError("LauncherNotReady", "the launcher pod's process does not run yet", retry=True)
    try:
        vmi = await vmi_status.claim(context.client, vmi, uid(pod), context.node)
        trace.mark("claim")
        opened = await _open(context, vmi, pod, external=wanted.plan.launch_mode == "external")
        trace.mark("open")
    except BaseException:
        launcher.close()
        raise
    return await _start(context, session, vmi, pod, wanted, launcher, opened, trace)


def _digests(context: NodeContext, vmi: Json) -> dict[str, str]:
    """What the names of the VMI's images stand for; one that was taken away meanwhile is left out."""
    found: dict[str, str] = {}
    for reference in references(vmi):
        with contextlib.suppress(ImageError):
            found[reference] = context.images.digest(reference)
    return found


def usable_session(context: NodeContext, driver: str) -> DriverSession:
    """The session of a driver that works; raises StartError."""
    session = context.sessions.get(driver)
    if session is None:
        raise StartError("DriverNotInstalled", f"driver {driver} is not installed on node {context.node}", retry=True)
    if not session.usable:
        raise StartError("DriverNotReady", f"driver {driver} is not ready: {session.problem}", retry=True)
    return session


async def _open(context: NodeContext, vmi: Json, pod: Json, *, external: bool) -> Opened:
    """Open volumes and network at the same time. Both are waited for, as a thread cannot be called back."""
    directory = await asyncio.to_thread(context.store.directory, uid(vmi))
    try:
        volumes, network = await asyncio.gather(
            open_volumes(vmi, volume_context(context, vmi, uid(pod), directory)),
            attach(context, vmi, pod, adopted=False, external=external),
            return_exceptions=True,
        )
    finally:
        os.close(directory)
    if not isinstance(volumes, BaseException) and not isinstance(network, BaseException):
        return Opened(volumes, network, await asyncio.to_thread(_digests, context, vmi))
    failures: list[BaseException] = []
    for result in (volumes, network):
        if isinstance(result, BaseException):
            failures.append(result)
        else:
            result.close()
    if isinstance(error := failures[0], OpenError):
        raise StartError(error.reason, f"{error.field}: {error}", retry=error.retry) from error
    raise failures[0]


def volume_context(context: NodeContext, vmi: Json, pod_uid: str, directory: int) -> VolumeContext:
    """What opening volumes needs, for the machine of this launcher pod."""
    images, claims = context.volume_sources(vmi, pod_uid)
    mount = partial(context.launchers.mount, pod_uid)
    share = partial(context.launchers.share, pod_uid)
    return VolumeContext(images=images, claims=claims, directory=directory, mount=mount, share=share)


async def attach(
    context: NodeContext, vmi: Json, pod: Json, *, adopted: bool, external: bool, only: str = ""
) -> MachineNetwork:
    """Open the machine's network in the pod's namespace; what a daemon outside runs is not in it."""
    netns = None if external else await context.launchers.network_namespace(uid(pod))
    try:
        return await context.attach_network(vmi, pod=pod, netns=netns, adopted=adopted, only=only)
    finally:
        if netns is not None:
            os.close(netns)


async def _start(
    context: NodeContext,
    session: DriverSession,
    vmi: Json,
    pod: Json,
    wanted: PodPlan,
    launcher: Launcher,
    opened: Opened,
    trace: Trace,
) -> Machine:
    """Everything from here on owns `launcher` and `opened`."""
    machine_id = uid(vmi)
    context.starting.add(machine_id)
    machine: Machine | None = None
    with Descriptors() as held:
        try:
            held.put_all(_taken(opened.volumes.descriptors))
            held.put_all(_taken(opened.network.descriptors))
            held.put_all(open_devices(vmi))
            record = _draft(context, vmi, pod, wanted, launcher, opened.images)
            machine = Machine(record, launcher, lambda: context.queue.add(machine_id))
            context.launchers.hold(uid(pod))
            machine.network = opened.network
            machine.links = {nic.id: not nic.link_down for nic in opened.network.nics}
            machine.open_log(context.store, adopted=False)
            if machine.serial_log is not None:
                held.put(CONSOLE_LOG, machine.serial_log.for_vmm())
            prepared = await _prepare(session, machine, vmi, wanted, opened)
            trace.mark("prepare")
            _tell_findings(context, machine, prepared)
            await _hand_over(context, machine, prepared, held, wanted.plan.resources.memory_lock_bytes, trace)
        except BaseException as error:
            if machine is None:
                _close_loose(launcher, opened)
            await _undo(context, session, machine_id, machine, error)
            log.debug("machine %s does not start", machine_id, exc_info=True)
            failure = _start_error(error)
            if failure is None:
                raise
            raise failure from error
        finally:
            context.starting.discard(machine_id)
        await first_run(context, session, machine, held)
        trace.mark("run")
    log.info("machine %s started, milliseconds: %s", machine_id, trace)
    return machine


def _tell_findings(context: NodeContext, machine: Machine, prepared: PrepareResponse) -> None:
    """What the driver does otherwise than it was asked, for the machine's owner."""
    for finding in prepared.findings[:MAX_FINDINGS]:
        kind = EventKind.WARNING if finding.severity in ("warn", "error") else EventKind.NORMAL
        context.event(machine, kind, "Adjusted", f"{finding.field}: {finding.message}"[:1024])


def _close_loose(launcher: Launcher, opened: Opened) -> None:
    """Close what no machine owns yet."""
    launcher.close()
    opened.network.close()


def _taken(descriptors: dict[str, int]) -> dict[str, int]:
    """Move all out of a set: it no longer closes them."""
    moved = dict(descriptors)
    descriptors.clear()
    return moved


def _draft(
    context: NodeContext, vmi: Json, pod: Json, wanted: PodPlan, launcher: Launcher, images: dict[str, str]
) -> Record:
    identity = processes.identify(launcher.pid, launcher.pidfd)
    if identity is None:
        raise LauncherError("the launcher ended before it took a plan")
    cgroup = processes.memory_cgroup(launcher.pid)
    session = context.sessions[wanted.plan.driver]
    return Record(
        machine_id=uid(vmi),
        namespace=namespace(vmi),
        name=name(vmi),
        pod_uid=uid(pod),
        pod_name=name(pod),
        boot_id=identity.boot_id,
        pid=identity.pid,
        start_time=identity.start_time,
        driver=wanted.plan.driver,
        driver_version=session.info.version if session.info else wanted.plan.driver_version,
        hri_minor=session.client.minor,
        plan_digest=wanted.digest,
        generation=meta.generation(vmi),
        stage=Stage.HANDING_OVER,
        memory_cgroup=cgroup,
        out_of_memory_kills=processes.out_of_memory_kills(cgroup) if cgroup else 0,
        grace_seconds=float(translate.grace_seconds(vmi)),
        acpi=translate.acpi_enabled(vmi),
        hypervisor_class=wanted.plan.hypervisor_class,
        images=images,
    )


async def _prepare(
    session: DriverSession, machine: Machine, vmi: Json, wanted: PodPlan, opened: Opened
) -> PrepareResponse:
    parts = translate.Parts(
        opened.volumes.handles,
        opened.volumes.kernel,
        opened.network.nics,
        CONSOLE_LOG if "console.log" in session.address.capabilities else "",
        agent_port="guest.agent" in session.address.capabilities,
        attachable="change.disk.attach" in session.address.capabilities,
        tells_mtu="nic.mtu" in session.address.capabilities,
        variables=opened.volumes.variables,
        tpm_state=opened.volumes.tpm_state,
        shares=opened.volumes.shares,
    )
    spec = translate.machine(vmi, wanted.plan, parts)
    generation, minor = machine.record.generation, machine.record.hri_minor
    try:
        return await session.client.prepare(spec, wanted.plan.confirmed, generation=generation, minor=minor)
    except OperationConflict:
        # A leftover of a start that a crash of ours cut off: no plan of it ever left.
        await session.client.destroy(spec.id, generation=generation, minor=minor)
        return await session.client.prepare(spec, wanted.plan.confirmed, generation=generation, minor=minor)


async def _hand_over(
    context: NodeContext,
    machine: Machine,
    prepared: PrepareResponse,
    held: Descriptors,
    memory_lock: int,
    trace: Trace,
) -> None:
    """Record, then let the plan leave."""
    launcher = machine.launcher
    assert launcher is not None
    made = launch.assemble(prepared, held, launcher)
    launch.set_limits(prepared.launch, launcher.pid, memory_lock)
    launch.leave_stop_script(prepared, made, launcher, machine.record.grace_seconds)
    machine.open_hook(lambda: hook_asked(context, machine))
    with_process = launch.has_process(prepared.launch.mode)
    await machine.write(
        context.store,
        handle=prepared.handle,
        driver_handles=tuple(prepared.driver_handles),
        endpoints=made.endpoints,
        machine_type=prepared.profile,
        accelerator=prepared.accelerator,
        has_process=with_process,
        helpers=made.helpers,
        external=launch.is_external(prepared.launch.mode),
    )
    machine.use_endpoints()
    trace.mark("record")
    if with_process:
        await hand_over(await await_shim(launcher), made.plan, made.descriptors)
    launch.close_given(prepared.launch, held)
    machine.taken = True
    await machine.helpers.follow()
    trace.mark("hand-over")


def hook_asked(context: NodeContext, machine: Machine) -> None:
    """The stop hook of the launcher asks to stop the guest."""
    if machine.stop_deadline is None:
        machine.stop_deadline = time.time() + machine.record.grace_seconds
    context.queue.add(machine.id)


async def run(context: NodeContext, session: DriverSession, machine: Machine, held: Descriptors | None = None) -> None:
    """Drain the console and have the driver run the guest. Some VMMs open the console only then."""
    await machine.open_console(expected=False)
    tokens = await give_descriptors(session, machine, held)
    record = machine.record
    operation = await session.client.start(
        machine.id, generation=record.generation, minor=record.hri_minor, tokens=tokens
    )
    await session.finished(operation)
    await machine.open_console()


async def give_descriptors(
    session: DriverSession, machine: Machine, held: Descriptors | None = None
) -> list[DescriptorToken]:
    """Send the driver the descriptors that it asked for: ways to the VMM, and for a start (`held`) what was opened.

    Raises:
        EndpointError: the VMM does not answer there. HriError: the driver does not take it.
    """
    tokens: list[DescriptorToken] = []
    for handle in machine.record.driver_handles:
        opened = held.get(handle) if held is not None else None
        if opened is not None:
            tokens.append(await session.client.send_descriptor(handle, opened))
            continue
        if held is None and machine.endpoints.get(handle) is None:
            continue
        descriptor = await _way_to(machine, handle)
        try:
            tokens.append(await session.client.send_descriptor(handle, descriptor))
        finally:
            os.close(descriptor)
    return tokens


async def _way_to(machine: Machine, endpoint_id: str) -> int:
    """A descriptor for the driver: a connection to the VMM, or the listening socket where the driver stands for it."""
    if not machine.record.external:
        return await machine.endpoints.descriptor(endpoint_id, DRIVER)
    record = machine.endpoints.get(endpoint_id)
    if record is None or machine.launcher is None:
        raise EndpointError(f"endpoint {endpoint_id!r} cannot be made: the launcher is gone")
    return endpoints.bind(machine.launcher, record)


async def first_run(
    context: NodeContext, session: DriverSession, machine: Machine, held: Descriptors | None = None
) -> None:
    """Run a machine whose plan has left; from here on its record leads, so nothing is raised.

    A driver that is away finds the machine again by adoption; one that refuses ends it.
    """
    machine.trouble = ""
    try:
        await run(context, session, machine, held)
    except (DriverUnavailable, DeadlineExceeded) as error:
        machine.trouble = (
            f"driver {machine.record.driver} does not start the guest: {error}; it goes on when the driver does, "
            "and a delete ends it"
        )
        log.warning("machine %s: %s", machine.id, machine.trouble)
    except (HriError, EndpointError) as error:
        await machine.end(context.store, await failed_start(machine, str(error)))


async def failed_start(machine: Machine, said: str) -> MachineState:
    """The end of a machine that did not come to run: what its process said counts more than what its driver saw."""
    await machine.settled()
    if machine.alive:
        return MachineState(phase=PHASE_CRASHED, end_reason=END_REASON_INTERNAL_ERROR, message=said)
    end = await machine.ended_state()
    end.message = f"{end.message}; {said}" if end.message else said
    return end


async def _undo(
    context: NodeContext,
    session: DriverSession,
    machine_id: str,
    machine: Machine | None,
    error: BaseException,
) -> None:
    """Nothing of a failed start stays: the driver forgets it, and a launcher that may have taken a plan ends.

    When we are the ones who end, all is left as it is: the record leads whoever comes next.
    """
    if isinstance(error, Exception):
        used_up = isinstance(error, HandOverError) and error.taken
        if used_up and machine is not None and machine.launcher is not None:
            processes.send_signal(machine.launcher.pidfd, signal.SIGKILL)
        await asyncio.to_thread(context.store.drop, machine_id)
        with contextlib.suppress(HriError):
            await session.client.destroy(machine_id, generation=machine.record.generation if machine else 0)
    if machine is not None:
        context.launchers.release(machine.record.pod_uid)
        machine.close("the machine did not start")


def _start_error(error: BaseException) -> StartError | None:
    """What a failed start means for the VMI; None for what is not about the machine."""
    if isinstance(error, StartError):
        return error
    if isinstance(error, OpenError):
        return StartError(error.reason, f"{error.field}: {error}", retry=error.retry)
    if isinstance(error, TranslateError):
        return StartError("FieldNotServed", str(error), retry=False)
    if isinstance(error, RecordError):
        return StartError("RecordNotWritten", str(error), retry=True)
    if isinstance(error, HandOverError):
        return StartError("LauncherFailed", str(error), retry=not error.taken)
    if isinstance(error, LauncherError):
        return StartError("LaunchPlanRefused", str(error), retry=False)
    if isinstance(error, DriverUnavailable | DeadlineExceeded):
        return StartError("DriverNotReady", f"{error.message}; the start is tried again", retry=True)
    if isinstance(error, HriError):
        said = "; ".join(f"{f.field}: {f.message}" if f.field else f.message for f in error.findings)
        message = f"{error.message}: {said}" if said and said not in error.message else error.message
        return StartError("DriverRefused", message, retry=error.retry in ("backoff", "now"))
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return StartError(
            "NodeNotReady", f"this node cannot start it now: {error.strerror or error}{where}", retry=True
        )
    return None
