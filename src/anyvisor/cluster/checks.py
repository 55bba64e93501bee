"""What a cluster offers to machines, looked at before or after an installation, with the fix for what is missing."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from anyvisor.api.meta import Json, annotations, condition, condition_is, list_at, name, object_at
from anyvisor.cluster import installer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import CRDS, HYPERVISOR_NODES, NETWORK_ATTACHMENTS, NODES, STORAGE_CLASSES, Resource

OLDEST: Final = (1, 33)
IMAGE_VOLUMES: Final = (1, 35)
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_ACCESS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False, kind="SelfSubjectAccessReview"
)
_NEEDED: Final = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "daemonsets"),
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `fix` is empty when there is nothing to do."""

    name: str
    result: Literal["ok", "warn", "fail"]
    found: str
    fix: str = ""


async def checks(client: Client) -> AsyncIterator[Check]:
    """All checks, in the order in which a person would repair them."""
    version = await _version(client)
    yield _version_check(version)
    yield await _rights(client)
    yield await _served(client)
    yield await _storage(client)
    yield await _network(client)
    nodes: list[Json] = list_at(await client.list(NODES), "items")
    for node in nodes:
        yield _node(node)
    async for check in _drivers(client):
        yield check


async def _version(client: Client) -> tuple[int, int]:
    found: dict[str, Any] = msgspec.json.decode(await client.call("GET", "/version"))
    numbers = re.match(r"v(\d+)\.(\d+)", str(found.get("gitVersion", "")))
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _version_check(version: tuple[int, int]) -> Check:
    told = ".".join(map(str, version))
    if version < OLDEST:
        return Check("kubernetes", "fail", told, f"upgrade to {OLDEST[0]}.{OLDEST[1]} or newer")
    if version < IMAGE_VOLUMES:
        return Check("kubernetes", "ok", f"{told}; where images cannot be volumes, disks are copied out of them")
    return Check("kubernetes", "ok", told)


async def _rights(client: Client) -> Check:
    lacking: list[str] = []
    for group, plural in _NEEDED:
        asked: Json = {"spec": {"resourceAttributes": {"verb": "create", "group": group, "resource": plural}}}
        answer = await client.create(_ACCESS, asked)
        if object_at(answer, "status").get("allowed") is not True:
            lacking.append(f"{plural}.{group}")
    if lacking:
        return Check("rights", "fail", f"may not create {', '.join(lacking)}", "install as a cluster admin")
    return Check("rights", "ok", "may install")


async def _served(client: Client) -> Check:
    try:
        definition = await client.get(CRDS, "virtualmachineinstances.kubevirt.io")
    except NotFound:
        return Check("api", "ok", "kubevirt.io is not served yet", "anyvisor install")
    if not installer.is_ours(definition):
        return Check("api", "fail", "another KubeVirt serves kubevirt.io", "remove it first, or use another cluster")
    rows = await installer.status(client)
    lacking = [row.name for row in rows if row.ready < row.wanted]
    if lacking:
        fix = f"kubectl describe pods -n {installer.NAMESPACE}"
        return Check("api", "warn", f"served, but not ready: {', '.join(lacking)}", fix)
    return Check("api", "ok", "served by Anyvisor")


async def _storage(client: Client) -> Check:
    classes: list[Json] = list_at(await client.list(STORAGE_CLASSES), "items")
    default = next((name(one) for one in classes if annotations(one).get(_DEFAULT_CLASS) == "true"), "")
    if default:
        return Check("storage", "ok", f"default storage class {default}")
    found = "no storage class" if not classes else "no default storage class"
    return Check("storage", "warn", found, "install a provisioner, or name a class in each claim")


async def _network(client: Client) -> Check:
    """Every cluster has a pod network; whether machines can have more is told by a kind that its makers share."""
    try:
        await client.list(NETWORK_ATTACHMENTS, limit=1)
    except NotFound:
        return Check("network", "ok", "the pod network; no secondary ones, as no NetworkAttachmentDefinition is served")
    return Check("network", "ok", "the pod network, and secondary ones by NetworkAttachmentDefinition")


def _node(node: Json) -> Check:
    called = f"node {name(node)}"
    info = object_at(node, "status", "nodeInfo")
    told = f"{info.get('containerRuntimeVersion', '')}, Linux {info.get('kernelVersion', '')}"
    if not condition_is(node, "Ready"):
        why = (condition(node, "Ready") or {}).get("message") or "its kubelet says nothing"
        return Check(called, "warn", f"not ready: {why}; {told}", f"kubectl describe node {name(node)}")
    if condition_is(node, "NetworkUnavailable"):
        why = (condition(node, "NetworkUnavailable") or {}).get("message") or "no route"
        return Check(
            called, "warn", f"its network is not set up: {why}; {told}", "look at the pods of the network plugin"
        )
    offered = object_at(node, "status", "allocatable")
    devices = sorted(key.partition("/")[2] for key, count in offered.items() if _is_device(key) and count != "0")
    return Check(called, "ok", f"{told}; devices: {', '.join(devices) or 'none yet'}")


def _is_device(key: str) -> bool:
    return key.startswith("devices.kubevirt.io/")


async def _drivers(client: Client) -> AsyncIterator[Check]:
    try:
        nodes: list[Json] = list_at(await client.list(HYPERVISOR_NODES), "items")
    except (NotFound, ApiError):
        return
    for node in nodes:
        for driver in list_at(node, "status", "drivers"):
            called = f"driver {driver.get('driver')} on {name(node)}"
            if driver.get("healthy"):
                yield Check(called, "ok", f"accelerators: {', '.join(driver.get('accelerators') or ['none'])}")
                continue
            said = [one.get("message") for one in driver.get("conditions") or () if one.get("status") == "False"]
            why = next((str(message) for message in said if message), "not healthy")
            yield Check(called, "fail", why, f"kubectl logs -n {installer.NAMESPACE} -l app=anyvisor-driver")
