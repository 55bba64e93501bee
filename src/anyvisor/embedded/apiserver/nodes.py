"""A node's user has power over its own node and pods alone (the rules of Kubernetes' node authorizer).

As the nodes of this machine also fill claims, what an unfinished import names may be read, too.
"""

from collections.abc import Iterator
from typing import Any, Literal, cast

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.rbac import Attributes
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.values import as_objects, lookup, objects_at

Json = dict[str, Any]

GROUP = "system:nodes"
PREFIX = "system:node:"
_IMPORTS = ("cdi.kubevirt.io/datavolumes", "cdi.kubevirt.io/volumeimportsources")


def node_of(identity: Identity) -> str:
    """Return the node whose user this is; empty for all others."""
    if GROUP in identity.groups and identity.user.startswith(PREFIX):
        return identity.user.removeprefix(PREFIX)
    return ""


def may_read(state: State, identity: Identity, asked: Attributes) -> bool:
    """Say whether a node may read one Secret or ConfigMap: when a pod that is bound to it, or an import, names it."""
    node = node_of(identity)
    if not node or asked.group or asked.resource not in ("secrets", "configmaps"):
        return True
    if asked.verb != "get" or not asked.name:
        return False
    for entry in state.collection("pods").range(asked.namespace):
        if entry.fields.get("spec.nodeName") == node and asked.name in set(_named(entry.object(), asked.resource)):
            return True
    return any(
        asked.name in _named_by_import(entry.object(), asked.resource)
        for imports in _IMPORTS
        for entry in state.collection(imports).range(asked.namespace)
    )


def _named_by_import(imported: Json, resource: str) -> set[str]:
    """The Secrets or ConfigMaps that an import needs, until it is done."""
    if lookup(imported, ("status", "phase")) == "Succeeded":
        return set()
    sources = [object_at(imported, "spec", "source", kind) for kind in ("http", "registry")]
    fields = ("secretRef", "secretExtraHeaders") if resource == "secrets" else ("certConfigMap",)
    values = [source.get(field) for source in sources for field in fields]
    listed = [cast("list[Any]", value) if isinstance(value, list) else [value] for value in values if value]
    return {str(name) for names in listed for name in names}


def _named(pod: Json, resource: str) -> Iterator[str]:
    """Yield the names of the Secrets or ConfigMaps that a pod uses."""
    kind, field = ("secret", "secretName") if resource == "secrets" else ("configMap", "name")
    reference = f"{kind}Ref"
    spec = object_at(pod, "spec")
    for volume in objects_at(spec, "volumes"):
        projected = objects_at(volume, "projected", "sources")
        for source in [object_at(item, kind) for item in (volume, *projected)]:
            yield from (str(source[name]) for name in (field, "name") if source.get(name))
    for container in [*objects_at(spec, "containers"), *objects_at(spec, "initContainers")]:
        for item in objects_at(container, "envFrom"):
            yield str(lookup(item, (reference, "name")) or "")
        for item in objects_at(container, "env"):
            yield str(lookup(item, ("valueFrom", f"{kind}KeyRef", "name")) or "")
    if resource == "secrets":
        yield from (str(item.get("name")) for item in as_objects(spec.get("imagePullSecrets")))


class NodeRestriction:
    """Refuses writes of a node to other nodes and to pods that are not bound to it."""

    phase: Literal["mutating", "validating"] = "validating"

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Answer a write; users that are no nodes are not concerned."""
        node = node_of(request.user)
        if not node or request.resource.group:
            return ALLOWED
        if request.resource.plural == "nodes" and request.name != node:
            return AdmissionResult(denied=f'node "{node}" is not allowed to modify node "{request.name}"')
        if request.resource.plural != "pods":
            return ALLOWED
        pod = request.old_object or request.object
        bound = lookup(pod, ("spec", "nodeName"))
        if bound == node and request.operation != "CREATE":
            return ALLOWED
        return AdmissionResult(
            denied=f'node "{node}" can only modify pods with spec.nodeName set to itself; this one has "{bound or ""}"'
        )
