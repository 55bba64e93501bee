"""Admission of VirtualMachineInstanceMigrations."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.defaults.filler import Filler, add_finalizer, child
from anyvisor.admission.result import (
    CREATE,
    FORBIDDEN,
    UPDATE,
    AdmissionRequest,
    AdmissionResult,
    Causes,
    refuse,
    refuse_with,
)
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, items, mapping, text

FINALIZER = "kubevirt.io/migrationJobFinalize"
SELECTOR_LABEL = "kubevirt.io/vmi-name"
FINAL_PHASES = ("Succeeded", "Failed")

_GATE = "DecentralizedLiveMigration"
_DISKS = "DisksNotLiveMigratable"


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Defaults and rules for a create or update; a delete, which aborts the migration, is always allowed."""
    if request.operation == CREATE:
        return _create(request, config)
    if request.operation == UPDATE and not request.subresource:
        return _update(request)
    return AdmissionResult(allowed=True, object=request.object)


def _create(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    migration: Obj = clone(request.object)
    spec, filler = mapping(migration.get("spec")), Filler()
    name = text(spec.get("vmiName"))
    meta = child(migration, "metadata")
    labels = child(meta, "labels")
    if labels.get(SELECTOR_LABEL) != name:
        filler.set(labels, SELECTOR_LABEL, name, "metadata.labels", "spec.vmiName")
    add_finalizer(meta, FINALIZER)
    out = Causes()
    if not name:
        out.required("spec.vmiName", "spec.vmiName is missing; name the VirtualMachineInstance to migrate")
        return refuse(migration, out)
    if spec.get("priority") is not None and not config.is_controller(request.user):
        message = "spec.priority is set by the controller alone; remove it"
        out.add(FORBIDDEN, "spec.migrationPriority", message, "spec.priority")
        return refuse(migration, out)
    namespace = text(meta.get("namespace")) or request.namespace
    if problem := _problem(migration, name, namespace, request):
        return refuse_with(migration, problem)
    _check_decentralized(spec, config, out)
    if out:
        return refuse(migration, out)
    return AdmissionResult(allowed=True, object=migration, defaults=filler.filled)


def _problem(migration: Obj, name: str, namespace: str, request: AdmissionRequest) -> str:
    vmi = request.related.get("VirtualMachineInstance", namespace, name)
    if vmi is None:
        return f'the VMI "{namespace}/{name}" does not exist; correct spec.vmiName or start the VM'
    status = mapping(vmi.get("status"))
    if text(status.get("phase")) in FINAL_PHASES:
        return f"Cannot migrate VMI in finalized state: {namespace}/{name} is {status['phase']}; start it anew first"
    spec = mapping(migration.get("spec"))
    decentralized = spec.get("sendTo") is not None or spec.get("receive") is not None
    for condition in items(status.get("conditions")):
        if condition.get("type") != "LiveMigratable" or condition.get("status") != "False":
            continue
        reason = text(condition.get("reason"))
        if not (decentralized and reason == _DISKS):
            return f"Cannot migrate VMI, Reason: {reason}, Message: {text(condition.get('message'))}"
    for other in request.related.list("VirtualMachineInstanceMigration", namespace):
        labels = mapping(mapping(other.get("metadata")).get("labels"))
        if labels.get(SELECTOR_LABEL) != name or mapping(other.get("status")).get("phase") in FINAL_PHASES:
            continue
        uid = text(mapping(other.get("metadata")).get("uid"))
        return (
            f"in-flight migration detected. Active migration job ({uid}) is currently already in progress "
            f"for VMI {name}. Wait for its end, or delete it to abort it"
        )
    return ""


def _check_decentralized(spec: Obj, config: ClusterConfig, out: Causes) -> None:
    if spec.get("sendTo") is None and spec.get("receive") is None:
        return
    if not config.on(_GATE):
        out.unsupported("", f"spec.sendTo and spec.receive need the feature gate {_GATE}; enable it", "spec")
    elif spec.get("sendTo") is not None and spec.get("receive") is not None:
        ids = [text(mapping(spec[key]).get("migrationID")) for key in ("sendTo", "receive")]
        if ids[0] != ids[1]:
            out.invalid(
                "", f"spec.sendTo and spec.receive name two migrations ({ids[0]!r}, {ids[1]!r})", "spec.receive"
            )


def _update(request: AdmissionRequest) -> AdmissionResult:
    migration, old, out = request.object, mapping(request.old_object), Causes()
    if not equal(migration.get("spec"), old.get("spec")):
        out.unsupported("", "the spec of a migration cannot be changed; delete it and create another", "spec")
    elif mapping(migration.get("status")).get("phase") not in FINAL_PHASES:
        before = mapping(mapping(old.get("metadata")).get("labels"))
        labels = mapping(mapping(migration.get("metadata")).get("labels"))
        if SELECTOR_LABEL in before and labels.get(SELECTOR_LABEL) != before[SELECTOR_LABEL]:
            message = f"the label {SELECTOR_LABEL} cannot change while the migration is in flight; put it back"
            out.unsupported("", message, "metadata.labels")
    return refuse(migration, out) if out else AdmissionResult(allowed=True, object=migration)
