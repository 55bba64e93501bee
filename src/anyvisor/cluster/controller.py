"""The controller's process. Of several, one works; two at once would be harmless, as they write with versions."""

import asyncio
import logging
import os
import platform
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anyvisor import __version__
from anyvisor.cluster import process
from anyvisor.cluster.features import has_image_volumes
from anyvisor.cluster.foreign import newcomers
from anyvisor.cluster.probes import probes
from anyvisor.cluster.retired import remove_retired
from anyvisor.controller.metrics import ControllerMetrics
from anyvisor.controller.service import Controllers
from anyvisor.controller.sources import FOREIGN
from anyvisor.hri.packages import DriverPackage
from anyvisor.hri.packages import load as load_driver
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, ApiError, NotFound
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.leader import Elector
from anyvisor.kube.resources import CLASSES, DRIVERS, KUBEVIRTS

log = logging.getLogger(__name__)

Json = dict[str, Any]
LEASE: Final = "anyvisor-controller"
CONFIGURATION: Final = "kubevirt"
RETRY_SECONDS: Final = 2.0
SERVED_SECONDS: Final = 2.0
"""A server answers for a kind a moment after it has said that it does."""
_MANAGER: Final = "anyvisor-controller"
_API_VERSION: Final = "anyvisor.io/v1alpha1"


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """What a controller is told at its start."""

    namespace: str
    drivers: Sequence[str] = ()
    images: Mapping[str, str] = field(default_factory=dict[str, str])
    """The launcher image of each driver; the manifest's own where a driver is not named."""
    identity: str = ""
    """Unique among controllers; made up when empty."""
    health_port: int = 0
    """Where `/healthz` and `/metrics` answer; 0 = nowhere."""
    kubeconfig: Path | None = None


def run(config: ControllerConfig) -> None:
    """Work until SIGTERM."""
    process.run(_run(config))


async def _run(config: ControllerConfig) -> None:
    packages = [load_driver(name) for name in config.drivers]
    identity = config.identity or f"{platform.node()}-{os.getpid()}-{secrets.token_hex(3)}"
    acting = [ControllerMetrics()]

    async def lead() -> None:
        while True:
            async with newcomers(client, FOREIGN) as came, asyncio.TaskGroup() as group:
                working = group.create_task(work(), name="controllers")
                await came.wait()
                await asyncio.sleep(SERVED_SECONDS)
                log.info("a kind of somebody else is served from now on: everything is read anew")
                working.cancel()

    async def work() -> None:
        acting[:] = [ControllerMetrics()]
        async with EventRecorder(client, "anyvisor-controller", platform.node()) as events:
            images = await has_image_volumes(client, config.namespace)
            controllers = Controllers(client, events, on_cluster=True, image_volumes=images, metrics=acting[0])
            try:
                await asyncio.gather(
                    keep_installed(client, config, packages),
                    controllers.run(),
                    remove_retired(client, config.namespace, packages),
                )
            finally:
                acting[:] = [ControllerMetrics()]

    async def metrics() -> bytes:
        return await acting[0].text()

    # Who waits for the lease is as well as who holds it.
    async with process.client(config.kubeconfig, "anyvisor-controller") as client, probes(config.health_port, metrics):
        await Elector(client, config.namespace, LEASE, identity).run(lead)


async def keep_installed(client: Client, config: ControllerConfig, packages: Sequence[DriverPackage]) -> None:
    """Make the configuration object, and what the installed drivers offer, as soon as admission lets us."""
    while True:
        try:
            await install(client, config, packages)
            return
        except ApiError as error:
            log.warning("the installation is not complete, again soon: %s", error)
            await asyncio.sleep(RETRY_SECONDS)


async def install(client: Client, config: ControllerConfig, packages: Sequence[DriverPackage]) -> None:
    """Bring KubeVirt, HypervisorDriver and HypervisorClass objects up to date; what an admin made stays as it is."""
    for package in packages:
        driver: Json = {
            "apiVersion": _API_VERSION,
            "kind": "HypervisorDriver",
            "metadata": {"name": package.manifest["driver"]},
            "spec": {**package.spec, **image_of(package, config.images)},
        }
        await client.apply(DRIVERS, driver, field_manager=_MANAGER)
    default = max(packages, key=lambda package: len(package.manifest["capabilities"]), default=None)
    for package in packages:
        spec: Json = {"driver": package.manifest["driver"]}
        if package is default:
            spec["default"] = True
        offered: Json = {"apiVersion": _API_VERSION, "kind": "HypervisorClass", "metadata": {"name": package.name}}
        with suppress(AlreadyExists):
            await client.create(CLASSES, {**offered, "spec": spec})
    await _configuration(client, config.namespace)


def image_of(package: DriverPackage, images: Mapping[str, str]) -> Json:
    """The launcher image of this installation; the manifest stays as the driver ships it, and so does its digest."""
    image = images.get(package.name)
    return {"image": image} if image else {}


async def _configuration(client: Client, namespace: str) -> None:
    try:
        await client.get(KUBEVIRTS, CONFIGURATION, namespace)
    except NotFound:
        made: Json = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": CONFIGURATION, "namespace": namespace},
            "spec": {"configuration": {"network": {"defaultNetworkInterface": "masquerade"}}},
        }
        await client.create(KUBEVIRTS, made)
    conditions = [("Available", "True"), ("Progressing", "False"), ("Degraded", "False"), ("Created", "True")]
    status: Json = {
        "phase": "Deployed",
        "observedKubeVirtVersion": __version__,
        "targetKubeVirtVersion": __version__,
        "operatorVersion": __version__,
        "conditions": [
            {"type": kind, "status": holds, "reason": "AllComponentsReady", "message": "All components are ready."}
            for kind, holds in conditions
        ],
    }
    await client.patch(KUBEVIRTS, CONFIGURATION, namespace, {"status": status}, subresource="status")
