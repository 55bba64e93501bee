"""Admission of pod evictions: an eviction of a guest's launcher pod asks for its evacuation instead.

Some sentences are read by programs: the descheduler looks for `Eviction triggered evacuation of VMI`.
"""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import (
    TOO_MANY_REQUESTS,
    AdmissionRequest,
    AdmissionResult,
    Effect,
    refuse_with,
)
from anyvisor.admission.values import Obj, items, mapping, strings, text

_APP_LABEL = "kubevirt.io"
_DOMAIN = "kubevirt.io/domain"
_SOURCE = "kubevirt.io/eviction-source"
_REQUESTED_BY = "requested-by"
_DESCHEDULER = "sigs.k8s.io/descheduler"
_FINISHED = ("Succeeded", "Failed")


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Whether the pod may be evicted; a refusal for an evacuation carries the patch of the VMI as its effect."""
    pod = request.related.get("Pod", request.namespace, request.name)
    if pod is None:
        return _allowed(request)
    app = mapping(mapping(pod.get("metadata")).get("labels")).get(_APP_LABEL)
    if app == "hotplug-disk" and len(items(mapping(pod.get("metadata")).get("ownerReferences"))) == 1:
        return _hotplug_pod(pod, request)
    if _is_live_launcher(pod):
        return _launcher_pod(pod, request, config)
    return _allowed(request)


def _allowed(request: AdmissionRequest) -> AdmissionResult:
    return AdmissionResult(allowed=True, object=request.object)


def _refused(request: AdmissionRequest, message: str) -> AdmissionResult:
    return refuse_with(request.object, message, TOO_MANY_REQUESTS)


def _is_live_launcher(pod: Obj) -> bool:
    label = mapping(mapping(pod.get("metadata")).get("labels")).get(_APP_LABEL)
    return label == "virt-launcher" and mapping(pod.get("status")).get("phase") not in _FINISHED


def _guest_of(pod: Obj) -> str:
    return text(mapping(mapping(pod.get("metadata")).get("annotations")).get(_DOMAIN))


def _hotplug_pod(pod: Obj, request: AdmissionRequest) -> AdmissionResult:
    owner_name = text(items(mapping(pod.get("metadata")).get("ownerReferences"))[0].get("name"))
    owner = request.related.get("Pod", request.namespace, owner_name)
    if owner is None or not _is_live_launcher(owner):
        return _allowed(request)
    guest = _guest_of(owner)
    if not guest or request.related.get("VirtualMachineInstance", request.namespace, guest) is None:
        return _allowed(request)
    return _refused(
        request,
        f"cannot evict hotplug pod: {request.name} associated with running vmi: {guest} "
        f"in namespace {request.namespace}; it goes when the VM's own pod goes",
    )


def _launcher_pod(pod: Obj, request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    name = _guest_of(pod)
    if not name:
        return _allowed(request)
    vmi = request.related.get("VirtualMachineInstance", request.namespace, name)
    if vmi is None:
        return _refused(request, f"the VMI {request.namespace}/{name} of this pod cannot be found; try again")
    migratable = any(
        c.get("type") == "LiveMigratable" and c.get("status") == "True"
        for c in items(mapping(vmi.get("status")).get("conditions"))
    )
    strategy = mapping(vmi.get("spec")).get("evictionStrategy") or config.eviction_strategy.value
    if strategy == "LiveMigrate" and not migratable:
        return _refused(
            request,
            f"VMI {name} is configured with an eviction strategy but is not live-migratable; "
            "stop the VM, or change its evictionStrategy",
        )
    if strategy == "External" or (migratable and strategy in ("LiveMigrate", "LiveMigrateIfPossible")):
        return _evacuate(vmi, pod, name, request)
    return _allowed(request)


def _evacuate(vmi: Obj, pod: Obj, name: str, request: AdmissionRequest) -> AdmissionResult:
    status, node = mapping(vmi.get("status")), text(mapping(pod.get("spec")).get("nodeName"))
    sentence = f'Eviction triggered evacuation of VMI "{request.namespace}/{name}"'
    if text(status.get("evacuationNodeName")):
        return _refused(request, f"Evacuation in progress: {sentence}")
    if text(status.get("nodeName")) != node:
        return _refused(request, "Eviction request for target Pod")
    patch: list[Obj] = [{"op": "add", "path": "/status/evacuationNodeName", "value": node}]
    requested_by = mapping(mapping(request.object.get("metadata")).get("annotations")).get(_REQUESTED_BY)
    if requested_by == _DESCHEDULER:
        patch.append(_source_patch(vmi))
    options = strings(mapping(request.object.get("deleteOptions")).get("dryRun"))
    effect = Effect(
        kind="VirtualMachineInstance",
        namespace=request.namespace,
        name=name,
        patch=patch,
        dry_run=request.dry_run or options[:1] == ["All"],
    )
    return AdmissionResult(
        allowed=False, object=request.object, code=TOO_MANY_REQUESTS, message=sentence, effects=(effect,)
    )


def _source_patch(vmi: Obj) -> Obj:
    if mapping(mapping(vmi.get("metadata")).get("annotations")):
        return {
            "op": "add",
            "path": "/metadata/annotations/" + _SOURCE.replace("/", "~1"),
            "value": "descheduler",
        }
    return {"op": "add", "path": "/metadata/annotations", "value": {_SOURCE: "descheduler"}}
