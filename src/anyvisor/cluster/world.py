"""What admission looks up on a cluster: caches that watches keep current."""

import platform
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.values import Obj
from anyvisor.api.meta import object_at
from anyvisor.kube.client import Client
from anyvisor.kube.derived import Derived, decoded
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import (
    CLASSES,
    CLUSTER_INSTANCETYPES,
    CLUSTER_PREFERENCES,
    CONTROLLER_REVISIONS,
    DRIVERS,
    HYPERVISOR_NODES,
    INSTANCETYPES,
    KUBEVIRTS,
    MIGRATIONS,
    NAMESPACES,
    NODES,
    PODS,
    PREFERENCES,
    PVCS,
    VMIS,
    VMS,
    Resource,
)
from anyvisor.planning.facts import NodeFacts, fleet

LAUNCHERS: Final = "kubevirt.io=virt-launcher"
"""Of the cluster's pods, rules look only at launchers: a cache of all pods would grow with what is not ours."""
_RESOURCES: Final[Sequence[Resource]] = (
    *(CLASSES, DRIVERS, HYPERVISOR_NODES, KUBEVIRTS, MIGRATIONS, VMIS, VMS),
    *(INSTANCETYPES, CLUSTER_INSTANCETYPES, PREFERENCES, CLUSTER_PREFERENCES),
    *(CONTROLLER_REVISIONS, NAMESPACES, NODES, PODS, PVCS),
)
_BY_NAMESPACE: Final = "namespace"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class ClusterWorld:
    """The objects that rules depend on. Use as `async with ClusterWorld(client) as world:`."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._namespace = namespace
        self._caches = {resource.kind: _cache(client, resource) for resource in _RESOURCES}
        self._stack = AsyncExitStack()
        self._config: tuple[str, ClusterConfig] | None = None
        self._nodes = Derived(self._caches[HYPERVISOR_NODES.kind], lambda found: fleet(decoded(found)))

    async def __aenter__(self) -> Self:
        for cache in self._caches.values():
            await self._stack.enter_async_context(cache)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def missing(self) -> list[str]:
        """The caches that are not filled yet, and why: a question that needs them cannot be answered."""
        return [
            f"{cache.resource.plural}: {cache.last_error or 'being read'}"
            for cache in self._caches.values()
            if not cache.synced.is_set()
        ]

    async def synced(self) -> None:
        """Wait until everything was read once."""
        for cache in self._caches.values():
            await cache.synced.wait()

    def get(self, kind: str, namespace: str, name: str) -> Obj | None:
        """One object, or None; kinds that are not known here have none."""
        cache = self._caches.get(kind)
        found = cache.get(namespace if cache.resource.namespaced else None, name) if cache is not None else None
        return found.json() if found is not None else None

    def list(self, kind: str, namespace: str = "") -> Sequence[Obj]:
        """All objects of a kind, of one namespace unless that is empty."""
        cache = self._caches.get(kind)
        if cache is None:
            return ()
        found = cache.index(_BY_NAMESPACE, namespace) if namespace else cache.values()
        return [one.json() for one in found]

    def nodes(self) -> tuple[NodeFacts, ...]:
        """What is known of the nodes: the same tuple until one of them changes."""
        return self._nodes.get()

    def config(self) -> ClusterConfig:
        """The effective configuration, kept until a KubeVirt object changes."""
        found = next(iter(self._caches["KubeVirt"].values()), None)
        version = found.meta.resource_version if found is not None else ""
        if self._config is None or self._config[0] != version:
            obj = found.json() if found is not None else {}
            machine = platform.machine()
            made = ClusterConfig.of(
                object_at(obj, "spec", "configuration"),
                _ARCHITECTURES.get(machine, machine),
                object_at(obj, "metadata", "annotations"),
                self._namespace,
            )
            self._config = version, made
        return self._config[1]


def _cache(client: Client, resource: Resource) -> Informer:
    labels = LAUNCHERS if resource is PODS else None
    return Informer(client, resource, labels=labels, indexes={_BY_NAMESPACE: _namespace_of})


def _namespace_of(obj: CachedObject) -> tuple[str, ...]:
    return (obj.meta.namespace or "",)
