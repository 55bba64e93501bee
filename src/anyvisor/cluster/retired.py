"""The end of older driver versions: their DaemonSets stay after an upgrade until they hold no machine."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from anyvisor.api.meta import Json, list_at, name, object_at, text_at
from anyvisor.cluster.driver_links import APP, DRIVER, VERSION
from anyvisor.cluster.installer import DAEMON_SETS
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import VMIS

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
_OVER: Final = ("Succeeded", "Failed")


async def remove_retired(client: Client, namespace: str, packages: Sequence[DriverPackage]) -> None:
    """Look now and then, until cancelled: an upgrade is rare, and nobody waits for this."""
    while True:
        try:
            await _look(client, namespace, packages)
        except ApiError as error:
            log.warning("whether older drivers are in use is not known, again soon: %s", error)
        await asyncio.sleep(LOOK_SECONDS)


async def _look(client: Client, namespace: str, packages: Sequence[DriverPackage]) -> None:
    sets: list[Json] = list_at(await client.list(DAEMON_SETS, namespace), "items")
    older = retired(sets, packages)
    if not older:
        return
    vmis: list[Json] = list_at(await client.list(VMIS), "items")
    for found in unused(older, vmis, packages):
        log.info("DaemonSet %s is of a driver version that no machine uses any more: deleted", name(found))
        try:
            await client.delete(DAEMON_SETS, name(found), namespace)
        except NotFound:
            continue


def _identity(daemon_set: Json) -> tuple[str, str]:
    """Driver and version; empty for what is no driver's."""
    selected = object_at(daemon_set, "spec", "selector", "matchLabels")
    if selected.get(APP[0]) != APP[1]:
        return "", ""
    return str(selected.get(DRIVER, "")), str(selected.get(VERSION, ""))


def retired(daemon_sets: Sequence[Json], packages: Sequence[DriverPackage]) -> list[Json]:
    """The DaemonSets of driver versions that ours came after.

    In an upgrade, controllers of both versions are there for a while: to the older one, what is newer is not retired.
    """
    ours: dict[str, str] = {}
    for package in packages:
        version = str(package.manifest["version"])
        times = [_created(one) for one in daemon_sets if _identity(one) == (package.name, version)]
        ours[package.name] = max(times, default="")
    return [one for one in daemon_sets if _created(one) < ours.get(_identity(one)[0], "")]


def _created(obj: Json) -> str:
    """When, in the form of RFC 3339 with whole seconds in UTC, which sorts as text."""
    return text_at(obj, "metadata", "creationTimestamp")


def unused(daemon_sets: Iterable[Json], vmis: Iterable[Json], packages: Sequence[DriverPackage]) -> list[Json]:
    """Those whose version runs no machine."""
    short = {str(package.manifest["driver"]): package.name for package in packages}
    held = {
        (
            short.get(text_at(vmi, "status", "hypervisor", "driver")),
            text_at(vmi, "status", "hypervisor", "driverVersion"),
        )
        for vmi in vmis
        if text_at(vmi, "status", "phase") not in _OVER
    }
    return [one for one in daemon_sets if _identity(one) not in held]
