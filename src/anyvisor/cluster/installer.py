"""Installs, upgrades and looks at the system on a cluster, by the manifest that the chart makes.

Nothing is taken over: where another KubeVirt serves the API, an installation is refused.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from anyvisor.api.meta import Json, condition_is, generation, list_at, name, object_at, text_at
from anyvisor.cluster.keeper import API_SERVICES, MUTATING, VALIDATING
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import CRDS, KUBEVIRTS, NAMESPACES, NODES, PDBS, PODS, SERVICES, Resource

MANAGER: Final = "anyvisor-install"
NAMESPACE: Final = "anyvisor"
REGISTRY: Final = "ghcr.io/anyvisor"
GATEWAY: Final = "anyvisor-gateway"
READY_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 1.0
PART_OF: Final = "app.kubernetes.io/part-of"
_OWN_FIELD: Final = "hypervisor"
"""A field of instances that no other implementation of the API has."""


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", plural, namespaced, kind)


def _policy(plural: str, kind: str) -> Resource:
    return Resource("admissionregistration.k8s.io", "v1", plural, namespaced=False, kind=kind)


DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", namespaced=True, kind="Deployment")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", namespaced=True, kind="DaemonSet")
_KINDS: Final = {
    resource.kind: resource
    for resource in (
        *(NAMESPACES, CRDS, SERVICES, PDBS, DEPLOYMENTS, DAEMON_SETS, API_SERVICES, MUTATING, VALIDATING),
        Resource("", "v1", "serviceaccounts", namespaced=True, kind="ServiceAccount"),
        Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass"),
        Resource("networking.k8s.io", "v1", "networkpolicies", namespaced=True, kind="NetworkPolicy"),
        _rbac("clusterroles", "ClusterRole", namespaced=False),
        _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        _rbac("roles", "Role", namespaced=True),
        _rbac("rolebindings", "RoleBinding", namespaced=True),
        _policy("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        _policy("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    )
}
_WORKLOADS: Final = ("Deployment", "DaemonSet")
_ORDER: Final = ("gateway", "controller", "driver", "agent")
_SUBRESOURCES: Final = "v1.subresources.kubevirt.io"
Tell = Callable[[str], None]


class InstallError(Exception):
    """It was not done; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """How one part of the installation is."""

    kind: str
    name: str
    ready: int
    wanted: int


def manifest(registry: str = REGISTRY) -> list[Json]:
    """The objects of an installation, with images of a registry."""
    here = Path(__file__)
    packaged = here.with_name("anyvisor-install.yaml")
    path = packaged if packaged.exists() else here.parents[3] / "deploy" / "anyvisor-install.yaml"
    try:
        text = path.read_text()
    except OSError as error:
        raise InstallError(f"the manifest {path} cannot be read: {error.strerror}; install the package anew") from error
    text = text.replace(f"{REGISTRY}/", f"{registry.rstrip('/')}/")
    found: Iterable[Any] = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return [one for one in found if one]


async def install(client: Client, registry: str, tell: Tell, *, wait: bool = True) -> None:
    """Install, or bring an installation of ours to this version; running VMs do not notice.

    An upgrade replaces one component after the other: who admits what is new before who writes it. With `wait`, the
    next one begins when the one before is ready, so that a version that does not start stops the upgrade there.

    Raises:
        InstallError: another implementation serves the API, the cluster refuses, or a component does not become ready.
    """
    await _refuse_foreign(client)
    objects = manifest(registry)
    definitions = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    for one in definitions:
        await _apply(client, one)
    await _established(client, definitions)
    tell(f"{len(definitions)} definitions are served")
    rest = [one for one in objects if one["kind"] not in ("CustomResourceDefinition", *_WORKLOADS)]
    for one in rest:
        await _apply(client, one)
    tell(f"{len(rest)} objects are applied")
    upgrade = bool(await status(client))
    silent = await silent_nodes(client) if upgrade else []
    for component in _ORDER:
        for one in objects:
            if one["kind"] in _WORKLOADS and component in _app(one):
                await _apply(client, around(one, len(silent), len(await _nodes(client))) if silent else one)
        if upgrade and wait:
            await _rolled_out(client, component, READY_SECONDS, tell)


def around(workload: Json, silent: int, nodes: int) -> Json:
    """A DaemonSet that rolls out past nodes that do not answer, each of which counts as unavailable: pure."""
    if workload["kind"] != "DaemonSet":
        return workload
    update = object_at(workload, "spec", "updateStrategy")
    allowed = object_at(update, "rollingUpdate").get("maxUnavailable", 1)
    share = str(allowed).removesuffix("%")
    usual = -(-nodes * int(share) // 100) if share != str(allowed) else int(allowed)
    strategy: Json = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": usual + silent}}
    return {**workload, "spec": {**workload["spec"], "updateStrategy": strategy}}


async def _nodes(client: Client) -> list[Json]:
    found: list[Json] = list_at(await client.list(NODES), "items")
    return found


async def silent_nodes(client: Client) -> list[str]:
    """The nodes whose kubelets do not answer."""
    return [name(node) for node in await _nodes(client) if not condition_is(node, "Ready")]


async def _rolled_out(client: Client, component: str, seconds: float, tell: Tell) -> None:
    """Wait until a component is of this version on every node that answers; those that do not are told of."""
    deadline = time.monotonic() + seconds
    while True:
        lacking, left = await _lacking(client, component)
        if not lacking:
            behind = f"; on {', '.join(left)}, not answering now, when that is back" if left else ""
            tell(f"{component} is of this version{behind}")
            return
        if time.monotonic() > deadline:
            raise InstallError(
                f"{_told_rows(lacking)} is not ready after {seconds:.0f} s, and the upgrade stops here; what runs goes "
                f"on. Look at `kubectl get pods,events -n {NAMESPACE}`, and call it again"
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def _lacking(client: Client, component: str = "") -> tuple[list[Row], list[str]]:
    """What is not ready though its nodes answer, and the nodes that do not answer and should run it."""
    rows = [row for row in await status(client) if component in row.name and row.ready < row.wanted]
    silent = await silent_nodes(client) if rows else []
    if not silent:
        return rows, []
    pods: list[Json] = list_at(await client.list(PODS, NAMESPACE, labels=f"{PART_OF}=anyvisor"), "items")
    lacking: list[Row] = []
    left: set[str] = set()
    for row in rows:
        waited = away(row, pods, silent)
        if row.ready >= row.wanted - len(waited):
            left |= waited
        else:
            lacking.append(row)
    return lacking, sorted(left)


def away(row: Row, pods: Sequence[Json], silent: Sequence[str]) -> set[str]:
    """The silent nodes on which a DaemonSet has a pod: pure."""
    if row.kind != "DaemonSet":
        return set()
    owned = (
        pod
        for pod in pods
        if any(owner.get("name") == row.name for owner in list_at(pod, "metadata", "ownerReferences"))
    )
    return {_node_of(pod) for pod in owned} & set(silent)


def _node_of(pod: Json) -> str:
    """Where a pod runs, or will: DaemonSets name it by an affinity until the scheduler has bound it."""
    bound = text_at(pod, "spec", "nodeName")
    required = object_at(pod, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    named = [
        str(field["values"][0])
        for term in list_at(required, "nodeSelectorTerms")
        for field in list_at(term, "matchFields")
        if field.get("key") == "metadata.name" and field.get("values")
    ]
    return bound or next(iter(named), "")


def _app(workload: Json) -> str:
    return text_at(workload, "spec", "selector", "matchLabels", "app")


def _told_rows(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.kind} {row.name} ({row.ready} of {row.wanted})" for row in rows)


async def wait_ready(client: Client, tell: Tell, seconds: float = READY_SECONDS) -> None:
    """Wait until every component runs. Raises InstallError with what does not."""
    deadline = time.monotonic() + seconds
    while True:
        lacking, left = await _lacking(client)
        if not lacking and await _configured(client):
            behind = f"; {', '.join(left)}: does not answer, and is served when it is back" if left else ""
            tell(f"all components are ready{behind}")
            return
        if time.monotonic() > deadline:
            raise InstallError(
                f"not ready after {seconds:.0f} s: {_told_rows(lacking) or 'the KubeVirt object is not deployed'}; "
                f"look at `kubectl get pods,events -n {NAMESPACE}`"
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def status(client: Client) -> list[Row]:
    """The components, and how many of each are ready."""
    rows: list[Row] = []
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        found = await client.list(resource, NAMESPACE, labels=f"{PART_OF}=anyvisor")
        rows += [_row(resource.kind, one) for one in list_at(found, "items")]
    return rows


def _row(kind: str, obj: Json) -> Row:
    """What is ready of the version that was applied last."""
    state = object_at(obj, "status")
    seen = int(state.get("observedGeneration") or 0) >= generation(obj)
    if kind == "DaemonSet":
        counts = [int(state.get(key) or 0) for key in ("numberReady", "updatedNumberScheduled")]
        wanted = int(state.get("desiredNumberScheduled") or 0) if seen else 1
    else:
        counts = [int(state.get(key) or 0) for key in ("readyReplicas", "updatedReplicas")]
        replicas = object_at(obj, "spec").get("replicas")
        wanted = 1 if replicas is None else int(replicas)
    return Row(kind, name(obj), min(counts) if seen else 0, wanted)


async def _configured(client: Client) -> bool:
    try:
        found = await client.get(KUBEVIRTS, "kubevirt", NAMESPACE)
    except NotFound:
        return False
    return text_at(found, "status", "phase") == "Deployed"


async def _refuse_foreign(client: Client) -> None:
    try:
        definition = await client.get(CRDS, "virtualmachineinstances.kubevirt.io")
    except NotFound:
        return
    served = await _get(client, API_SERVICES, _SUBRESOURCES)
    service = text_at(served or {}, "spec", "service", "name")
    if is_ours(definition) and service in ("", GATEWAY):
        return
    raise InstallError(
        "another KubeVirt serves kubevirt.io on this cluster, and its objects are not taken over: remove it first, "
        "with its VMs, or use another cluster"
    )


def is_ours(definition: Json) -> bool:
    """Whether the definition of VirtualMachineInstances is that of this project."""
    for version in list_at(definition, "spec", "versions"):
        fields = object_at(version, "schema", "openAPIV3Schema", "properties", "spec", "properties")
        if _OWN_FIELD in fields:
            return True
    return False


async def _apply(client: Client, obj: Json) -> None:
    resource = resource_of(obj)
    try:
        await client.apply(resource, obj, field_manager=MANAGER)
    except ApiError as error:
        raise InstallError(f"{obj['kind']} {name(obj)} is refused: {error}") from error


async def _established(client: Client, definitions: Sequence[Json], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    for one in definitions:
        while not condition_is(await client.get(CRDS, name(one)), "Established"):
            if time.monotonic() > deadline:
                raise InstallError(f"the cluster does not serve {name(one)} after {seconds:.0f} s")
            await asyncio.sleep(_LOOK_SECONDS / 10)


async def _get(client: Client, resource: Resource, called: str) -> Json | None:
    try:
        return await client.get(resource, called)
    except NotFound:
        return None


def resource_of(obj: Json) -> Resource:
    """Where the API has an object of the manifest. Raises InstallError."""
    found = _KINDS.get(obj["kind"])
    if found is None:
        raise InstallError(f"the manifest has an object of the unknown kind {obj['kind']}")
    return found
