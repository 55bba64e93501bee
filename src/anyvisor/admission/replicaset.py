"""Admission of VirtualMachineInstanceReplicaSets: the rules for their template, which gets no defaults yet."""

from anyvisor.admission import advice, hypervisor, shape
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import CREATE, UPDATE, AdmissionRequest, AdmissionResult, Cause, Causes, refuse
from anyvisor.admission.rules import coherent_gpu
from anyvisor.admission.rules import spec as spec_rules
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, mapping, texts
from anyvisor.admission.view import Spec
from anyvisor.api.selectors import SelectorError, selector_of

_AT = "spec.template.spec"


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """The rules for a create or update; a delete, and an update of status or scale, is always allowed."""
    if request.operation not in (CREATE, UPDATE) or request.subresource:
        return AdmissionResult(allowed=True, object=request.object)
    replica_set: Obj = clone(request.object)
    spec = mapping(replica_set.get("spec"))
    if type(spec.get("template")) is not dict:
        missing = Cause("FieldValueRequired", "spec.template", "spec.template is missing; describe the guests there")
        return refuse(replica_set, [missing])
    template, warnings = mapping(spec["template"]), list[str]()
    if request.operation == UPDATE:
        old = mapping(mapping(mapping(mapping(request.old_object).get("spec")).get("template")).get("spec"))
        hypervisor.keep(_AT, mapping(template.get("spec")), old, warnings)
        if equal(spec, mapping(mapping(request.old_object).get("spec"))):
            return AdmissionResult(allowed=True, object=replica_set, warnings=warnings)
    view, out = Spec.of(mapping(template.get("spec")), _AT), Causes()
    shape.check_spec(_AT, view.raw, out, complete=False)
    if out:
        return refuse(replica_set, out)
    meta, at = mapping(template.get("metadata")), "spec.template.metadata"
    coherent_gpu.annotations(view, mapping(meta.get("annotations")), at, config, out)
    hypervisor.check(_AT, view.raw, out)
    spec_rules.check(view, config, out)
    _check_selector(spec, meta, out)
    if request.operation == CREATE:
        spec_rules.discontinued_gates(view, config, out)
    if out:
        return refuse(replica_set, out)
    return AdmissionResult(allowed=True, object=replica_set, warnings=warnings + advice.for_spec(view))


def _check_selector(spec: Obj, template_metadata: Obj, out: Causes) -> None:
    try:
        matches = selector_of(spec.get("selector")).matches(texts(template_metadata.get("labels")))
    except SelectorError as error:
        out.invalid("spec.selector", f"spec.selector cannot be read: {error}")
        return
    if not matches:
        out.invalid("spec.selector", "spec.selector does not match spec.template.metadata.labels; make them agree")
