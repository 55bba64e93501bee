"""What `kubectl get` shows of built-in kinds."""

from collections.abc import Callable, Mapping
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.resource import Column
from anyvisor.embedded.apiserver.values import as_list, lookup

Json = dict[str, Any]


def _at(path: str, default: Any = "") -> Callable[[Json], Any]:
    names = tuple(path.split("."))

    def read(obj: Json) -> Any:
        value = lookup(obj, names)
        return default if value is None else value

    return read


def _count(*names: str) -> Callable[[Json], Any]:
    return lambda obj: sum(len(obj.get(name) or ()) for name in names)


def column(name: str, path: str, *, default: Any = "", priority: int = 0, kind: str = "string") -> Column:
    return Column(name, _at(path, default), type=kind, priority=priority)


NAME = Column("Name", _at("metadata.name"), format="name")
AGE = Column("Age", _at("metadata.creationTimestamp", None), type="date")


def _containers(obj: Json) -> list[Json]:
    return lookup(obj, ("status", "containerStatuses")) or []


def _ready(obj: Json) -> str:
    total = len(lookup(obj, ("spec", "containers")) or ())
    return f"{sum(bool(status.get('ready')) for status in _containers(obj))}/{total}"


def _pod_status(obj: Json) -> str:
    if lookup(obj, ("metadata", "deletionTimestamp")):
        return "Terminating"
    reason = lookup(obj, ("status", "reason"))
    for status in _containers(obj):
        state: Json = status.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended and ended.get("reason"):
            reason = ended["reason"]
    return reason or lookup(obj, ("status", "phase")) or "Unknown"


def _restarts(obj: Json) -> str:
    return str(sum(int(status.get("restartCount") or 0) for status in _containers(obj)))


def _node_status(obj: Json) -> str:
    ready = "Unknown"
    for condition in lookup(obj, ("status", "conditions")) or ():
        if condition.get("type") == "Ready":
            ready = {"True": "Ready", "False": "NotReady"}.get(condition.get("status", ""), "Unknown")
    return f"{ready},SchedulingDisabled" if lookup(obj, ("spec", "unschedulable")) else ready


def _roles(obj: Json) -> str:
    prefix = "node-role.kubernetes.io/"
    labels: Json = lookup(obj, ("metadata", "labels")) or {}
    return ",".join(sorted(name.removeprefix(prefix) for name in labels if name.startswith(prefix))) or "<none>"


def _address(kind: str) -> Callable[[Json], str]:
    def read(obj: Json) -> str:
        for address in lookup(obj, ("status", "addresses")) or ():
            if address.get("type") == kind:
                return address.get("address", "")
        return "<none>"

    return read


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(*path: str) -> Callable[[Json], str]:
    return lambda obj: ",".join(_MODES.get(str(mode), str(mode)) for mode in as_list(lookup(obj, path)))


def _claim(obj: Json) -> str:
    claim = object_at(obj, "spec", "claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _claim_status(obj: Json) -> str:
    if lookup(obj, ("metadata", "deletionTimestamp")):
        return "Terminating"
    return lookup(obj, ("status", "phase")) or ""


def _ports(obj: Json) -> str:
    shown: list[str] = []
    for port in lookup(obj, ("spec", "ports")) or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or "<none>"


def _external(obj: Json) -> str:
    if lookup(obj, ("spec", "type")) == "ExternalName":
        return str(lookup(obj, ("spec", "externalName")))
    balanced = [str(each.get("ip") or each.get("hostname")) for each in _ingress(obj)]
    if addresses := [*balanced, *(lookup(obj, ("spec", "externalIPs")) or ())]:
        return ",".join(addresses)
    return "<pending>" if lookup(obj, ("spec", "type")) == "LoadBalancer" else "<none>"


def _ingress(obj: Json) -> list[Json]:
    return lookup(obj, ("status", "loadBalancer", "ingress")) or []


def _selector(obj: Json) -> str:
    found: Json = lookup(obj, ("spec", "selector")) or {}
    return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or "<none>"


def _event_object(obj: Json) -> str:
    target: Json = obj.get("involvedObject") or {}
    kind = str(target.get("kind", "")).lower()
    return f"{kind}/{target.get('name', '')}"


def _last_seen(obj: Json) -> Any:
    series: Json = obj.get("series") or {}
    return (
        series.get("lastObservedTime")
        or obj.get("lastTimestamp")
        or obj.get("eventTime")
        or lookup(obj, ("metadata", "creationTimestamp"))
    )


def _role_of_binding(obj: Json) -> str:
    role: Json = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _storage_class(obj: Json) -> str:
    name = lookup(obj, ("metadata", "name"))
    notes: Json = lookup(obj, ("metadata", "annotations")) or {}
    default = notes.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{name} (default)" if default else name


def _addresses(obj: Json) -> str:
    found = [address for item in obj.get("endpoints") or () for address in item.get("addresses") or ()]
    return ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or "<unset>"


def _available(obj: Json) -> str:
    for condition in lookup(obj, ("status", "conditions")) or ():
        if condition.get("type") == "Available":
            return condition["status"] if condition["status"] == "True" else f"False ({condition.get('reason')})"
    return "Unknown"


def _service(obj: Json) -> str:
    service: Json = lookup(obj, ("spec", "service")) or {}
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "": (NAME, AGE),
    "namespaces": (NAME, column("Status", "status.phase"), AGE),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _roles),
        AGE,
        column("Version", "status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", _address("InternalIP"), priority=1),
        Column("External-IP", _address("ExternalIP"), priority=1),
        column("OS-Image", "status.nodeInfo.osImage", default="<unknown>", priority=1),
        column("Kernel-Version", "status.nodeInfo.kernelVersion", default="<unknown>", priority=1),
        column("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", default="<unknown>", priority=1),
    ),
    "pods": (
        NAME,
        Column("Ready", _ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        AGE,
        column("IP", "status.podIP", default="<none>", priority=1),
        column("Node", "spec.nodeName", default="<none>", priority=1),
        column("Nominated Node", "status.nominatedNodeName", default="<none>", priority=1),
        Column("Readiness Gates", lambda _obj: "<none>", priority=1),
    ),
    "secrets": (NAME, column("Type", "type"), Column("Data", _count("data"), type="integer"), AGE),
    "configmaps": (NAME, Column("Data", _count("data", "binaryData"), type="integer"), AGE),
    "persistentvolumes": (
        NAME,
        column("Capacity", "spec.capacity.storage"),
        Column("Access Modes", _modes("spec", "accessModes")),
        column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
        Column("Status", _claim_status),
        Column("Claim", _claim),
        column("StorageClass", "spec.storageClassName"),
        column("VolumeAttributesClass", "spec.volumeAttributesClassName", default="<unset>"),
        column("Reason", "status.reason"),
        AGE,
        column("VolumeMode", "spec.volumeMode", default="<unset>", priority=1),
    ),
    "persistentvolumeclaims": (
        NAME,
        Column("Status", _claim_status),
        column("Volume", "spec.volumeName"),
        column("Capacity", "status.capacity.storage"),
        Column("Access Modes", _modes("status", "accessModes")),
        column("StorageClass", "spec.storageClassName"),
        column("VolumeAttributesClass", "spec.volumeAttributesClassName", default="<unset>"),
        AGE,
        column("VolumeMode", "spec.volumeMode", default="<unset>", priority=1),
    ),
    "services": (
        NAME,
        column("Type", "spec.type"),
        column("Cluster-IP", "spec.clusterIP", default="<none>"),
        Column("External-IP", _external),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector, priority=1),
    ),
    "endpointslices": (
        NAME,
        column("AddressType", "addressType"),
        Column("Ports", lambda obj: ",".join(str(p.get("port")) for p in obj.get("ports") or ()) or "<unset>"),
        Column("Endpoints", _addresses),
        AGE,
    ),
    "serviceaccounts": (NAME, AGE),
    "events": (
        Column("Last Seen", _last_seen, type="date"),
        column("Type", "type"),
        column("Reason", "reason"),
        Column("Object", _event_object),
        column("Subobject", "involvedObject.fieldPath", priority=1),
        column("Source", "source.component", priority=1),
        column("Message", "message"),
        column("First Seen", "firstTimestamp", priority=1, kind="date", default=None),
        column("Count", "count", priority=1, default=1, kind="integer"),
        column("Name", "metadata.name", priority=1),
    ),
    "leases": (NAME, column("Holder", "spec.holderIdentity"), AGE),
    "controllerrevisions": (
        NAME,
        Column(
            "Controller",
            lambda obj: next(
                (
                    f"{str(owner.get('kind', '')).lower()}/{owner.get('name')}"
                    for owner in lookup(obj, ("metadata", "ownerReferences")) or ()
                    if owner.get("controller")
                ),
                "<none>",
            ),
        ),
        column("Revision", "revision", kind="integer"),
        AGE,
    ),
    "storageclasses": (
        Column("Name", _storage_class, format="name"),
        column("Provisioner", "provisioner"),
        column("ReclaimPolicy", "reclaimPolicy"),
        column("VolumeBindingMode", "volumeBindingMode"),
        column("AllowVolumeExpansion", "allowVolumeExpansion", default=False),
        AGE,
    ),
    "priorityclasses": (
        NAME,
        column("Value", "value", kind="integer"),
        column("Global-Default", "globalDefault", default=False, kind="boolean"),
        AGE,
        column("PreemptionPolicy", "preemptionPolicy"),
    ),
    "poddisruptionbudgets": (
        NAME,
        column("Min Available", "spec.minAvailable", default="N/A"),
        column("Max Unavailable", "spec.maxUnavailable", default="N/A"),
        column("Allowed Disruptions", "status.disruptionsAllowed", default=0, kind="integer"),
        AGE,
    ),
    "roles": (NAME, column("Created At", "metadata.creationTimestamp")),
    "clusterroles": (NAME, column("Created At", "metadata.creationTimestamp")),
    "rolebindings": (NAME, Column("Role", _role_of_binding), AGE),
    "clusterrolebindings": (NAME, Column("Role", _role_of_binding), AGE),
    "customresourcedefinitions": (NAME, column("Created At", "metadata.creationTimestamp")),
    "apiservices": (NAME, Column("Service", _service), Column("Available", _available), AGE),
    "validatingwebhookconfigurations": (NAME, Column("Webhooks", _count("webhooks"), type="integer"), AGE),
    "mutatingwebhookconfigurations": (NAME, Column("Webhooks", _count("webhooks"), type="integer"), AGE),
    "resourcequotas": (NAME, AGE),
}
