"""The agent of one node, put together."""

import asyncio
import fcntl
import logging
import os
import resource
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from anyvisor.agent import adopt, http, metrics, status, sync
from anyvisor.agent.driver import DriverAddress, DriverSession
from anyvisor.agent.launchers import LauncherSource
from anyvisor.agent.machine import DRIVER, Machine
from anyvisor.agent.node import NodeReporter
from anyvisor.agent.node_context import (
    BY_UID,
    BY_VMI,
    AttachNetwork,
    DetachNetwork,
    NodeContext,
    VolumesOf,
    detach_bridge,
)
from anyvisor.agent.records import RecordStore
from anyvisor.agent.remote import RemoteListener
from anyvisor.agent.turns import Turns
from anyvisor.agent.volumes.source import ClaimSource, ImageSource
from anyvisor.hri import versions
from anyvisor.hri.client import Deadlines, HriClient
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.informer import Informer
from anyvisor.kube.metrics import QueueMetrics
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PODS, VMIS
from anyvisor.kube.store import IndexFunction

log = logging.getLogger(__name__)

COMPONENT: Final = "anyvisor-agent"
CREATED_BY_LABEL: Final = "kubevirt.io/created-by"


class AgentError(Exception):
    """The agent cannot run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """All that an agent needs to know."""

    node: str
    client: Client
    """As `system:anyvisor:agent:<node>`."""
    state_dir: Path
    """Durable: records and the machines' own disk files, in `machines/<id>/`."""
    socket: Path
    """Where it serves HTTP; a short path."""
    drivers: Sequence[DriverAddress]
    launchers: LauncherSource
    images: ImageSource
    claims: ClaimSource
    attach_network: AttachNetwork
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])
    """Filled with the machines of this node, for others in the same process."""
    http_uids: Collection[int] = ()
    """Who may ask over HTTP, besides root and ourselves: the control process."""
    remote: RemoteListener | None = None
    """Serves HTTP to a gateway elsewhere, instead of on the socket."""
    detach_network: DetachNetwork = detach_bridge
    volumes_of: VolumesOf | None = None
    """Where each machine's images and claims come from, instead of `images` and `claims`."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of the Node that no driver states."""
    released: Callable[[DriverAddress], None] | None = None
    """Told of a version that another one has replaced, once it has no machine any more."""
    workers: int = 32
    """Machines that are worked on at the same time, at most a third of them of one driver."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """Of the calls of drivers."""
    core_minor: int = versions.MINOR
    """The newest minor of the HRI that is spoken with drivers."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    pods: Informer | None = None
    """The pods of this node, by `POD_INDEXES`, where the same process keeps that cache already."""

    @property
    def endpoint(self) -> str:
        """Where the gateway asks."""
        return self.remote.endpoint if self.remote is not None else f"unix:{self.socket}"


async def run_agent(config: AgentConfig, started: asyncio.Event | None = None) -> None:
    """Run until cancelled; guests do not notice. `started` is set when the first look at everything was begun.

    Raises:
        AgentError: another agent of this node runs.
    """
    lock = _lock(config.state_dir)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # About eight descriptors per machine; the usual soft limit of 1024 is for programs that use select().
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        recorder = EventRecorder(config.client, COMPONENT, config.node)
        vmis = Informer(
            config.client, VMIS, labels=f"{status.NODE_LABEL}={config.node}", indexes={BY_UID: lambda o: (o.meta.uid,)}
        )
        pods = config.pods or Informer(config.client, PODS, fields=f"spec.nodeName={config.node}", indexes=POD_INDEXES)
        async with recorder, vmis, AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            if config.pods is None:
                await stack.enter_async_context(pods)
            store = RecordStore(config.state_dir / "machines")
            queue = WorkQueue[str](observer=QueueMetrics(config.registry).of("machine"))
            context = NodeContext(
                node=config.node,
                client=config.client,
                recorder=recorder,
                store=store,
                launchers=config.launchers,
                images=config.images,
                claims=config.claims,
                attach_network=config.attach_network,
                detach_network=config.detach_network,
                volumes_of=config.volumes_of,
                vmis=vmis,
                pods=pods,
                queue=queue,
                tasks=tasks,
                turns=Turns(max(config.workers // 3, 1), queue.add),
                machines=config.machines,
            )
            await _run(config, context, started)
    finally:
        os.close(lock)


async def _run(config: AgentConfig, context: NodeContext, started: asyncio.Event | None) -> None:
    reporter = NodeReporter(config.client, config.node, config.endpoint, context.sessions, config.labels)
    for address in config.drivers:
        context.sessions[address.key] = DriverSession(
            address,
            changed=context.queue.add,
            restarted=partial(_driver_restarted, context, address.key),
            facts_changed=partial(_facts_changed, context, reporter, address.key),
            client=HriClient(
                address.hri_socket, address.fd_socket, deadlines=config.deadlines, core_minor=config.core_minor
            ),
        )
    await adopt.load(context)
    # Before anything that may have to wait: a guest stalls when nobody drains its console.
    for machine in context.machines.values():
        context.tasks.create_task(adopt.reopen(context, machine, None), name=f"console of {machine.id}")
    async with _serving(config, context):
        for session in context.sessions.values():
            context.tasks.create_task(session.run(), name=f"driver {session.address.name}")
        context.tasks.create_task(reporter.run(), name="node reporter")
        # What is not in the cache counts as deleted: nothing is looked at before the caches are whole.
        await context.vmis.synced.wait()
        await context.pods.synced.wait()
        context.vmis.on_change(partial(_vmi_changed, context))
        context.pods.on_change(partial(_pod_changed, context))
        for machine_id in (*context.machines, *context.damaged, *context.store.ids()):
            context.queue.add(machine_id)
        if started is not None:
            started.set()
        try:
            await context.queue.run(partial(_reconcile, config, context), config.workers)
        finally:
            for machine in context.machines.values():
                machine.close("the agent ended")


async def _reconcile(config: AgentConfig, context: NodeContext, machine_id: str) -> float | None:
    again = await sync.reconcile(context, machine_id)
    if config.released is not None and not context.starting:
        _release(config.released, context)
    return again


def _release(released: Callable[[DriverAddress], None], context: NodeContext) -> None:
    retired = {key: session for key, session in context.sessions.items() if session.address.version}
    if not retired:
        return
    held = {context.session_of(machine.record) for machine in context.machines.values()}
    for key, session in retired.items():
        if session not in held:
            del context.sessions[key]
            released(session.address)


@asynccontextmanager
async def _serving(config: AgentConfig, context: NodeContext) -> AsyncGenerator[None]:
    registry = metrics.register(config.registry, context)
    if config.remote is not None:
        app = http.application(context, registry, config.remote.allows)
        runner = await config.remote.listen(app)
    else:
        app = http.application(context, registry, http.local_peers(config.http_uids))
        runner = await http.listen(config.socket, app, config.http_uids)
    try:
        yield
    finally:
        await runner.cleanup()


def _vmi_changed(context: NodeContext, old: CachedObject | None, new: CachedObject | None) -> None:
    for seen in (old, new):
        if seen is not None:
            context.queue.add(seen.meta.uid)


def _pod_changed(context: NodeContext, old: CachedObject | None, new: CachedObject | None) -> None:
    for seen in (old, new):
        if seen is not None:
            for machine_id in _created_by(seen):
                context.queue.add(machine_id)


def _created_by(pod: CachedObject) -> tuple[str, ...]:
    machine_id = (pod.meta.labels or {}).get(CREATED_BY_LABEL, "")
    return (machine_id,) if machine_id else ()


POD_INDEXES: Final[Mapping[str, IndexFunction]] = {BY_VMI: _created_by}
"""By which a cache of pods must be asked."""


def _driver_restarted(context: NodeContext, driver: str) -> None:
    """The driver's descriptors ended with its process."""
    for machine in context.machines.values():
        if context.session_of(machine.record) is context.sessions.get(driver):
            machine.endpoints.release_all(DRIVER)
            context.queue.add(machine.id)


def _facts_changed(context: NodeContext, reporter: NodeReporter, driver: str) -> None:
    """Tell what the node can run; what waits for a driver that works now is tried at once."""
    reporter.changed()
    session = context.sessions.get(driver)
    if session is not None and session.usable:
        for machine_id in list(context.not_before):
            del context.not_before[machine_id]
            context.queue.add(machine_id)


def _lock(state_dir: Path) -> int:
    """One agent per node: two would start and adopt the same machines."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(state_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AgentError(f"another agent uses {state_dir}; end it first") from error
    return descriptor
