"""The control process: API server, controllers, scheduler and gateway, as an unprivileged user."""

import asyncio
import contextlib
import logging
import os
import platform
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from ipaddress import IPv4Network

import uvloop

from anyvisor.api.crd import crds, imports
from anyvisor.controller.metrics import ControllerMetrics
from anyvisor.controller.service import Controllers
from anyvisor.embedded import bootstrap, confine, identities
from anyvisor.embedded.admission import LauncherPodsOnly, VirtualizationRules
from anyvisor.embedded.aggregation import GatewayRoutes, NodeProxy, PodLogs
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.audit import AuditLog
from anyvisor.embedded.eviction import Evictions
from anyvisor.embedded.imports.rules import ImportRules
from anyvisor.embedded.instance import Instance
from anyvisor.embedded.podnetwork import attachments
from anyvisor.embedded.scheduler.service import Scheduler
from anyvisor.embedded.services.controller import EndpointSlices
from anyvisor.embedded.world import ServerWorld
from anyvisor.gateway.agents import Agents
from anyvisor.gateway.pages import Pages
from anyvisor.gateway.service import Gateway
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder

log = logging.getLogger(__name__)


def run(
    instance: Instance, listener: socket.socket, context: ssl.SSLContext, packages: Sequence[DriverPackage], ready: int
) -> None:
    """Serve until SIGTERM. One `+` is written to `ready` when the API answers."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    authority = (instance.pki_dir / "ca.crt").read_text()
    confine.become(instance.users.control, [instance.control_dir])
    uvloop.run(_serve(instance, listener, context, packages, ready, authority))


async def _serve(
    instance: Instance,
    listener: socket.socket,
    context: ssl.SSLContext,
    packages: Sequence[DriverPackage],
    ready: int,
    authority: str,
) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    world, aggregated, agents = ServerWorld(), GatewayRoutes(), Agents()
    evictions, metrics = Evictions(world), ControllerMetrics()
    made = ApiServer(_config(instance, authority, world, aggregated, agents, evictions, metrics))
    async with agents, made as server, asyncio.TaskGroup() as group:
        world.server = server
        evictions.client = Client(server.inprocess(identities.CONTROLLER))
        await bootstrap.install(Client(server.inprocess(bootstrap.IDENTITY)), packages)
        await server.serve(listener, context)
        with contextlib.suppress(OSError):  # nobody waits after a restart
            os.write(ready, b"+")
        os.close(ready)
        async with Gateway(Client(server.inprocess(identities.GATEWAY)), agents) as gateway:
            aggregated.gateway = gateway
            work = group.create_task(_work(server, metrics), name="controllers")
            await stopped.wait()
            work.cancel()


def _config(
    instance: Instance,
    authority: str,
    world: ServerWorld,
    aggregated: GatewayRoutes,
    agents: Agents,
    evictions: Evictions,
    metrics: ControllerMetrics,
) -> ServerConfig:
    return ServerConfig(
        database=instance.database,
        service_network=IPv4Network(instance.service_network),
        crds=[*crds(), *imports(), attachments.definition()],
        objects=bootstrap.objects(),
        namespace_objects=bootstrap.namespace_objects(authority),
        admission=[
            VirtualizationRules(world, "mutating"),
            VirtualizationRules(world, "validating"),
            LauncherPodsOnly(),
            ImportRules(),
        ],
        aggregated=aggregated.all(),
        pod_log=PodLogs(world, agents).read,
        node_proxy=NodeProxy(world, agents).get,
        exporters=[metrics.text],
        pages=Pages,
        evict=evictions.ask,
        audit=AuditLog(instance.audit_log).write if instance.audit else None,
    )


async def _work(server: ApiServer, metrics: ControllerMetrics) -> None:
    """Controllers and scheduler, each with its own identity."""
    host = platform.node()
    scheduling = Client(server.inprocess(identities.SCHEDULER), "default-scheduler")
    controlling = Client(server.inprocess(identities.CONTROLLER), "anyvisor-controller")
    async with (
        EventRecorder(scheduling, "default-scheduler", host) as placed,
        EventRecorder(controlling, "anyvisor-controller", host) as controlled,
        asyncio.TaskGroup() as group,
    ):
        slices = EndpointSlices(server, Client(server.inprocess(identities.ENDPOINT_SLICES)))
        group.create_task(slices.run(), name="endpoint slices")
        group.create_task(Scheduler(scheduling, placed).run(), name="scheduler")
        group.create_task(Controllers(controlling, controlled, metrics=metrics).run(), name="controllers")
