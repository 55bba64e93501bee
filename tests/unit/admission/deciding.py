"""What the admission tests share: making requests, base objects, changing them."""

from collections.abc import Callable, Sequence
from typing import Any

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import CREATE, AdmissionRequest, AdmissionResult, User
from anyvisor.admission.values import clone, mapping

Json = dict[str, Any]
Change = Callable[[Json], object]

UUID = "6a1c9f4e-8f2b-4c39-9a44-2f0b6c1d7e55"
NOW = "2026-06-01T00:00:00Z"
CONTROLLER = User("system:anyvisor:controller")


class World:
    """A few objects to look up."""

    def __init__(self, *objects: Json) -> None:
        self._objects = objects

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return next((one for one in self.list(kind, namespace) if one["metadata"]["name"] == name), None)

    def list(self, kind: str, namespace: str = "") -> Sequence[Json]:
        return [
            one
            for one in self._objects
            if one["kind"] == kind and (not namespace or one["metadata"].get("namespace") == namespace)
        ]


def decide(
    obj: Json,
    *,
    kind: str = "",
    operation: str = CREATE,
    old: Json | None = None,
    user: User | None = None,
    subresource: str = "",
    world: World | None = None,
    architecture: str = "amd64",
    dry_run: bool = False,
    **configuration: Any,
) -> AdmissionResult:
    """Our decision; keyword arguments that are left are the cluster's configuration."""
    metadata = mapping(obj.get("metadata"))
    request = AdmissionRequest(
        operation=operation,
        kind=kind or obj.get("kind", ""),
        object=obj,
        new_uuid=lambda: UUID,
        now=NOW,
        namespace=metadata.get("namespace", "default"),
        name=metadata.get("name", "x"),
        old_object=old,
        user=user or User("jane"),
        dry_run=dry_run,
        subresource=subresource,
        related=world or World(),
    )
    return admit(request, ClusterConfig.of(configuration, architecture))


def gates(*names: str, off: Sequence[str] = ()) -> Json:
    """The configuration that switches feature gates."""
    return {"developerConfiguration": {"featureGates": list(names), "disabledFeatureGates": list(off)}}


def vmi(change: Change | None = None) -> Json:
    """A small valid VMI, changed."""
    made: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "guest", "namespace": "default"},
        "spec": {
            "domain": {
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
                "memory": {"guest": "128Mi"},
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "images/one:1"}}],
        },
    }
    if change is not None:
        change(made)
    return made


def vm(change: Change | None = None) -> Json:
    """A small valid VM, changed."""
    made: Json = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "machine", "namespace": "default"},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"app": "a"}}, "spec": vmi()["spec"]}},
    }
    if change is not None:
        change(made)
    return made


def put(path: str, value: Any) -> Change:
    """Set the value at a path; missing objects on the way are made."""

    def change(obj: Json) -> None:
        *holders, last = path.replace("[", ".[").split(".")
        holder: Any = obj
        for step in holders:
            holder = holder[int(step[1:-1])] if step.startswith("[") else holder.setdefault(step, {})
        if last.startswith("["):
            index = int(last[1:-1])
            holder[index:] = [clone(value), *holder[index + 1 :]]
        else:
            holder[last] = clone(value)

    return change


def drop(path: str) -> Change:
    """Remove what is at a path."""

    def change(obj: Json) -> None:
        *holders, last = path.replace("[", ".[").split(".")
        holder: Any = obj
        for step in holders:
            holder = holder[int(step[1:-1])] if step.startswith("[") else holder[step]
        del holder[last]

    return change


def both(*changes: Change) -> Change:
    """Several changes in order."""

    def change(obj: Json) -> None:
        for one in changes:
            one(obj)

    return change


def causes(result: AdmissionResult) -> set[tuple[str, str]]:
    """The causes as (field, type without its prefix)."""
    return {(cause.field, cause.type.removeprefix("FieldValue")) for cause in result.causes}
