"""What admission looks up: the server's own objects, as they are at this moment."""

import platform
from collections.abc import Sequence
from typing import Any

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.values import Obj
from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.planning.facts import NodeFacts, fleet

Json = dict[str, Any]
_STORES = {
    "ControllerRevision": "apps/controllerrevisions",
    "HypervisorClass": "anyvisor.io/hypervisorclasses",
    "HypervisorDriver": "anyvisor.io/hypervisordrivers",
    "HypervisorNode": "anyvisor.io/hypervisornodes",
    "KubeVirt": "kubevirt.io/kubevirts",
    "Namespace": "namespaces",
    "Node": "nodes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "VirtualMachine": "kubevirt.io/virtualmachines",
    "VirtualMachineClusterInstancetype": "instancetype.kubevirt.io/virtualmachineclusterinstancetypes",
    "VirtualMachineClusterPreference": "instancetype.kubevirt.io/virtualmachineclusterpreferences",
    "VirtualMachineInstance": "kubevirt.io/virtualmachineinstances",
    "VirtualMachineInstanceMigration": "kubevirt.io/virtualmachineinstancemigrations",
    "VirtualMachineInstancetype": "instancetype.kubevirt.io/virtualmachineinstancetypes",
    "VirtualMachinePreference": "instancetype.kubevirt.io/virtualmachinepreferences",
}
_SHARED = frozenset({"HypervisorClass", "HypervisorDriver", "HypervisorNode"})
"""Kinds without namespaces that every machine is judged by: decoded once for each change."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}


class ServerWorld:
    """Objects of one server; `server` is set once it exists, as its admission is made before it."""

    def __init__(self) -> None:
        self.server: ApiServer | None = None
        self._config: tuple[int, ClusterConfig] | None = None
        self._shared: dict[str, tuple[int, Sequence[Obj]]] = {}
        self._nodes: tuple[Sequence[Obj], tuple[NodeFacts, ...]] = (), ()

    def get(self, kind: str, namespace: str, name: str) -> Obj | None:
        """One object, or None; kinds that are not known here have none."""
        if self.server is None or kind not in _STORES:
            return None
        entry = self.server.stored(_STORES[kind]).latest((namespace, name))
        return entry.object() if entry is not None else None

    def list(self, kind: str, namespace: str = "") -> Sequence[Obj]:
        """All objects of a kind, of one namespace unless that is empty. They are not the caller's to change."""
        if self.server is None or kind not in _STORES:
            return ()
        stored = self.server.stored(_STORES[kind])
        if kind not in _SHARED:
            return [entry.object() for entry in stored.range(namespace or None)]
        known = self._shared.get(kind)
        if known is None or known[0] != stored.newest:
            known = self._shared[kind] = stored.newest, [entry.object() for entry in stored.range(None)]
        return known[1]

    def nodes(self) -> tuple[NodeFacts, ...]:
        """What is known of the nodes: the same tuple until one of them changes."""
        objects = self.list("HypervisorNode")
        if self._nodes[0] is not objects:
            self._nodes = objects, fleet(objects)
        return self._nodes[1]

    @property
    def version(self) -> int:
        """Another number after every change of what is looked up here."""
        return self.server.version if self.server is not None else 0

    def config(self) -> ClusterConfig:
        """The effective configuration, kept until a KubeVirt object changes."""
        stored = self.server.stored(_STORES["KubeVirt"]) if self.server is not None else None
        version = stored.newest if stored is not None else 0
        if self._config is None or self._config[0] != version:
            newest: Json = {}
            for entry in stored.range(None) if stored is not None else ():
                newest = entry.object()
            machine = platform.machine()
            configuration = object_at(newest, "spec", "configuration")
            annotations = object_at(newest, "metadata", "annotations")
            architecture = _ARCHITECTURES.get(machine, machine)
            self._config = version, ClusterConfig.of(configuration, architecture, annotations)
        return self._config[1]
