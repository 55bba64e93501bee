"""The end of an installation: everything that came with it goes, also what components left on nodes.

In an order that leaves nothing stuck: first what the API server would ask a gateway for, then the components, which
would make anew what is taken away, and then everything else. Each step may be repeated; what is gone is no error.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from anyvisor.api.meta import Json, annotations, labels, list_at, name, namespace, object_at, text_at
from anyvisor.cluster import installer
from anyvisor.cluster.installer import DAEMON_SETS, DEPLOYMENTS, NAMESPACE, PART_OF, InstallError, Tell
from anyvisor.kube.client import Client, PatchType, Propagation
from anyvisor.kube.errors import ApiError, Conflict, NotFound
from anyvisor.kube.resources import CRDS, DRIVERS, NAMESPACES, NODES, PODS, VMIS, VMS, Resource

WAIT_SECONDS: Final = 180.0
_LOOK_SECONDS: Final = 0.5
_TOLD: Final = 10
_FIRST: Final = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService")
_OURS: Final = ("kubevirt.io", "anyvisor.io")
_DEVICES: Final = "devices.kubevirt.io/"


async def uninstall(client: Client, tell: Tell, seconds: float = WAIT_SECONDS) -> None:
    """Remove everything of ours; returns when it is gone, or has told what the cluster still does.

    Raises:
        InstallError: VMs exist (it says which), or the cluster refuses.
    """
    await _refuse_machines(client)
    objects = installer.manifest()
    for kind in _FIRST:
        await _remove(client, [one for one in objects if one["kind"] == kind])
    await _components(client)
    await _wait(_pods_are_gone(client, tell), seconds)
    tell("the components are gone")
    await _clean_nodes(client, tell, await _driver_names(client))
    definitions = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    for one in definitions:
        await _release(client, one)
    await _remove(client, definitions)
    await _remove(
        client, [one for one in reversed(objects) if one["kind"] not in (*_FIRST, "CustomResourceDefinition")]
    )
    left = await _left(client, definitions, seconds)
    if left:
        tell(f"the cluster is still at work on {', '.join(left)}: `kubectl describe` tells what it waits for")
        return
    tell("everything is removed; nodes keep the files below /var/lib/anyvisor, if any")


async def _refuse_machines(client: Client) -> None:
    for resource in (VMS, VMIS):
        try:
            found = list_at(await client.list(resource), "items")
        except NotFound:
            continue
        if found:
            named = [f"{namespace(one)}/{name(one)}" for one in found[:_TOLD]]
            more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
            raise InstallError(f"{len(found)} {resource.plural} exist: {', '.join(named)}{more}; delete them first")


async def _components(client: Client) -> None:
    """Also the drivers of versions before, which the manifest does not name."""
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        found = await client.list(resource, NAMESPACE, labels=f"{PART_OF}=anyvisor")
        for one in list_at(found, "items"):
            await _delete(client, resource, name(one), NAMESPACE)


def _pods_are_gone(client: Client, tell: Tell) -> Callable[[], Awaitable[bool]]:
    """Whether no component runs any more; pods on nodes that do not answer are told of and not waited for."""
    told: set[str] = set()

    async def gone() -> bool:
        pods: list[Json] = list_at(await client.list(PODS, NAMESPACE, labels=f"{PART_OF}=anyvisor"), "items")
        silent = set(await installer.silent_nodes(client)) if pods else set[str]()
        for node in sorted({text_at(pod, "spec", "nodeName") for pod in pods} & silent - told):
            told.add(node)
            tell(f"node {node} does not answer: what runs on it ends when it is back, or with `kubectl delete node`")
        return all(text_at(pod, "spec", "nodeName") in silent for pod in pods)

    return gone


async def _wait(done: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not await done():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


async def _driver_names(client: Client) -> list[str]:
    """Drivers of other makers have labels of their own on nodes."""
    try:
        return [name(one) for one in list_at(await client.list(DRIVERS), "items")]
    except NotFound:
        return []


async def _clean_nodes(client: Client, tell: Tell, drivers: Sequence[str]) -> None:
    """Take away what agents and device plugins told of the nodes."""
    offered: list[str] = []
    for node in list_at(await client.list(NODES), "items"):
        patch = without_ours(node, drivers)
        devices = device_removals(node)
        if devices:
            offered.append(name(node))
        try:
            if patch:
                await client.patch(NODES, name(node), None, {"metadata": patch})
            if devices:
                await client.patch(NODES, name(node), None, devices, PatchType.JSON, subresource="status")
        except (NotFound, ApiError) as error:
            tell(f"node {name(node)} keeps its labels: {error}")
    if offered:
        tell(
            f"{', '.join(offered[:_TOLD])}: kubelets show {_DEVICES}* without any that can be had until they forget "
            "them, 5 minutes from now; call `anyvisor uninstall` again then to take the zeros away"
        )


def without_ours(node: Json, drivers: Sequence[str]) -> Json:
    """A patch of a node's metadata that takes away our labels and annotations; empty when there are none. Pure."""
    patch: Json = {}
    for field, present in (("labels", labels(node)), ("annotations", annotations(node))):
        gone = [key for key in present if _is_ours(key, drivers)]
        if gone:
            patch[field] = dict.fromkeys(gone)
    return patch


def _is_ours(key: str, drivers: Sequence[str]) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return domain in drivers or any(domain == own or domain.endswith(f".{own}") for own in _OURS)


def device_removals(node: Json) -> list[Json]:
    """A JSON patch of a node's status without our devices: pure."""
    return [
        {"op": "remove", "path": f"/status/{field}/{key.replace('~', '~0').replace('/', '~1')}"}
        for field in ("capacity", "allocatable")
        for key in object_at(node, "status", field)
        if key.startswith(_DEVICES)
    ]


async def _release(client: Client, definition: Json) -> None:
    """Take finalizers off the objects of a kind: nobody is left who would do what they wait for."""
    served = next((str(one["name"]) for one in definition["spec"]["versions"] if one.get("served")), "")
    names: Mapping[str, str] = definition["spec"]["names"]
    scoped = definition["spec"]["scope"] == "Namespaced"
    resource = Resource(definition["spec"]["group"], served, names["plural"], scoped, names["kind"])
    try:
        found: list[Json] = list_at(await client.list(resource), "items")
    except NotFound:
        return
    for one in found:
        if list_at(one, "metadata", "finalizers"):
            free: Json = {"metadata": {"finalizers": None}}
            try:
                await client.patch(resource, name(one), namespace(one) or None, free)
            except NotFound:
                continue


async def _left(client: Client, definitions: Sequence[Json], seconds: float) -> list[str]:
    """What the cluster has not taken away yet, after it had its time."""
    left: list[str] = []

    async def gone() -> bool:
        left.clear()
        present = {name(one) for one in list_at(await client.list(CRDS), "items")}
        left.extend(f"definition {name(one)}" for one in definitions if name(one) in present)
        try:
            await client.get(NAMESPACES, NAMESPACE)
            left.append(f"namespace {NAMESPACE}")
        except NotFound:
            pass
        return not left

    await _wait(gone, seconds)
    return left


async def _remove(client: Client, objects: Sequence[Json]) -> None:
    for one in objects:
        await _delete(client, installer.resource_of(one), name(one), namespace(one) or None)


async def _delete(client: Client, resource: Resource, called: str, within: str | None) -> None:
    try:
        await client.delete(resource, called, within, propagation=Propagation.BACKGROUND)
    except (NotFound, Conflict):
        return
    except ApiError as error:
        raise InstallError(f"{resource.kind} {called} cannot be removed: {error}") from error
