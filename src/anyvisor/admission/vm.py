"""Admission of VirtualMachines."""

from anyvisor.admission import advice, hypervisor, matchers, shape, volume_requests
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.data_volumes import architecture_of_source, check_namespaces, check_templates
from anyvisor.admission.defaults.filler import Filler, child
from anyvisor.admission.defaults.spec import (
    fill_architecture,
    fill_common,
    fill_host_disks,
    fill_instance,
    fill_machine,
)
from anyvisor.admission.result import (
    CREATE,
    NOT_SUPPORTED,
    UPDATE,
    AdmissionRequest,
    AdmissionResult,
    Cause,
    Causes,
    refuse,
    refuse_with,
)
from anyvisor.admission.rules import coherent_gpu, metadata, network
from anyvisor.admission.rules import spec as spec_rules
from anyvisor.admission.rules.cpu import memory_growth_problem
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, integer, items, mapping, shown, text
from anyvisor.admission.view import Spec
from anyvisor.admission.vmi import check_run, fill_pci_topology

RUN_STRATEGIES = ("Always", "RerunOnFailure", "Manual", "Halted", "Once")

_AT = "spec.template.spec"
_RECEIVER = "WaitAsReceiver"


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Defaults and rules for a create, an update or an update of the status; a delete is always allowed."""
    if request.operation not in (CREATE, UPDATE):
        return AdmissionResult(allowed=True, object=request.object)
    if request.subresource == "status":
        return _admit_status(request, config)
    if mapping(request.object.get("metadata")).get("deletionTimestamp") is not None:
        return AdmissionResult(allowed=True, object=request.object)
    vm: Obj = clone(request.object)
    filler, warnings = Filler(), list[str]()
    _keep_hypervisor(vm, request, warnings)
    if _is_unchanged(vm, request):
        out = Causes()
        _fill(vm, request, config, filler)
        _check_state(vm, request, config, out)
        if out:
            return refuse(vm, out)
        return AdmissionResult(allowed=True, object=vm, warnings=warnings, defaults=filler.filled)
    refusal = _default(vm, request, config, filler) or _check(vm, request, config)
    if refusal is not None:
        return refusal
    spec = mapping(vm.get("spec"))
    template = mapping(mapping(spec.get("template")).get("spec"))
    warnings += advice.for_spec(Spec.of(template, _AT))
    warnings += _warnings_of_runs(template, config)
    if spec.get("running") is not None:
        warnings.append(advice.RUNNING_DEPRECATED)
    return AdmissionResult(allowed=True, object=vm, warnings=warnings, defaults=filler.filled)


def _old_spec(request: AdmissionRequest) -> Obj:
    return mapping(mapping(request.old_object).get("spec"))


def _keep_hypervisor(vm: Obj, request: AdmissionRequest, warnings: list[str]) -> None:
    if request.operation == UPDATE:
        spec, old = (
            mapping(mapping(one.get("template")).get("spec")) for one in (mapping(vm.get("spec")), _old_spec(request))
        )
        hypervisor.keep(_AT, spec, old, warnings)


def _is_unchanged(vm: Obj, request: AdmissionRequest) -> bool:
    """Whether an update leaves the spec as it is: what was once accepted is not judged anew."""
    return request.operation == UPDATE and equal(vm.get("spec"), _old_spec(request))


def _default(vm: Obj, request: AdmissionRequest, config: ClusterConfig, filler: Filler) -> AdmissionResult | None:
    """Check the shape and fill in the defaults of the VM itself."""
    spec, out = mapping(vm.get("spec")), Causes()
    shape.check_spec(_AT, mapping(mapping(spec.get("template")).get("spec")), out, complete=True)
    shape.check_data_volumes(spec, out)
    if out:
        return refuse(vm, out)
    causes = matchers.check(vm, mapping(request.old_object) if request.operation == UPDATE else None)
    if causes:
        return refuse(vm, causes)
    if type(spec.get("template")) is not dict:
        return refuse(vm, [_no_template()])
    if problem := matchers.infer(vm, request, filler):
        return refuse_with(vm, problem)
    _fill(vm, request, config, filler)
    shape.check_data_sources(spec, out)
    return refuse(vm, out) if out else None


def _warnings_of_runs(template: Obj, config: ClusterConfig) -> list[str]:
    """What its VMIs would be refused for, although the VM may be stored."""
    spec: Obj = clone(template)
    if fill_common(spec, _AT, config, Filler()):
        return []
    fill_instance(spec, _AT, config, Filler(), firmware_uuid="")
    out = Causes()
    check_run(Spec.of(spec, _AT), out)
    return [f"{cause.message}; the VM cannot start like this" for cause in out]


def _no_template() -> Cause:
    return Cause("FieldValueRequired", "spec.template", "spec.template is missing; describe the guest there")


def _fill(vm: Obj, request: AdmissionRequest, config: ClusterConfig, filler: Filler) -> None:
    template = child(child(vm, "spec"), "template")
    spec = child(template, "spec")
    if request.operation == CREATE:
        firmware = child(child(spec, "domain"), "firmware")
        for name in ("uuid", "serial"):
            if not text(firmware.get(name)):
                filler.set(firmware, name, request.new_uuid(), f"{_AT}.domain.firmware", "random")
    if not text(spec.get("architecture")):
        found, source = architecture_of_source(vm, request)
        if found:
            filler.set(spec, "architecture", found, _AT, source)
    fill_architecture(spec, _AT, config, filler)
    fill_machine(spec, _AT, config, filler)
    fill_host_disks(spec, _AT, filler)
    if request.operation == CREATE:
        fill_pci_topology(child(template, "metadata"), spec, "spec.template.metadata", filler)


def _check(vm: Obj, request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult | None:
    """The rules, in stages: a stage is reached when the one before it has found nothing."""
    checked: Obj = clone(mapping(mapping(vm.get("spec")).get("template")))
    spec, out = child(checked, "spec"), Causes()
    matchers.expand(vm, request, checked, out)
    if out:
        return refuse(vm, out)
    if problem := fill_common(spec, _AT, config, Filler()):
        return refuse_with(vm, problem)
    view = Spec.of(spec, _AT)
    if request.operation == CREATE:
        spec_rules.discontinued_gates(view, config, out)
        if not out:
            network.discontinued(view, out, told="spec")
    if not out:
        _check_spec(vm, checked, view, request, config, out)
    if not out:
        check_namespaces(vm, request, out)
    if not out:
        _check_state(vm, request, config, out)
    return refuse(vm, out) if out else None


def _check_state(vm: Obj, request: AdmissionRequest, config: ClusterConfig, out: Causes) -> None:
    """What the VM's status forbids at the moment, and what it asks for."""
    _check_locks(vm, request, out)
    if not out:
        volume_requests.check(vm, request, config, out)


def _check_spec(
    vm: Obj, template: Obj, view: Spec, request: AdmissionRequest, config: ClusterConfig, out: Causes
) -> None:
    spec, meta, at = mapping(vm.get("spec")), mapping(template.get("metadata")), "spec.template.metadata"
    metadata.check(at, meta, config, by_component=config.is_component(request.user), out=out)
    coherent_gpu.annotations(view, mapping(meta.get("annotations")), at, config, out)
    hypervisor.check(_AT, view.raw, out)
    spec_rules.check(view, config, out)
    check_templates(spec, view.volumes, out)
    _check_run_strategy(spec, config, out)
    if config.live_update:
        _check_growth(view, out)


def _check_run_strategy(spec: Obj, config: ClusterConfig, out: Causes) -> None:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    choices = ", ".join(RUN_STRATEGIES)
    if running is not None and strategy is not None:
        out.invalid("spec.running", "spec.running and spec.runStrategy exclude each other; keep runStrategy")
    if running is None and strategy is None:
        out.invalid("spec.running", f"spec.runStrategy is missing; use one of {choices}", "spec")
    if strategy is None or strategy in RUN_STRATEGIES:
        return
    at = "spec.runStrategy"
    if strategy != _RECEIVER:
        out.invalid(at, f"{at} is {shown(strategy)}; use one of {choices}")
    elif not config.on("DecentralizedLiveMigration"):
        out.invalid(at, f"{at} {_RECEIVER} needs the feature gate DecentralizedLiveMigration; enable it")


def _check_growth(view: Spec, out: Causes) -> None:
    sockets, limit = integer(view.cpu.get("sockets")), integer(view.cpu.get("maxSockets"))
    if limit and sockets > limit:
        at = f"{_AT}.domain.cpu.sockets"
        out.invalid(at, f"{at} ({sockets}) is more than maxSockets ({limit}); lower it or raise maxSockets")
    max_guest = view.memory.get("maxGuest")
    if max_guest is not None and (problem := memory_growth_problem(view, max_guest)):
        at = f"{_AT}.domain.memory"
        out.invalid(f"{at}.guest", f"{at}.maxGuest: {problem}; correct it or remove maxGuest")


def _check_locks(vm: Obj, request: AdmissionRequest, out: Causes) -> None:
    """A snapshot or restore in progress holds what it depends on."""
    if request.operation != UPDATE:
        return
    status, spec = mapping(vm.get("status")), mapping(vm.get("spec"))
    old = _old_spec(request)
    snapshot, restore = status.get("snapshotInProgress"), status.get("restoreInProgress")
    if snapshot is not None:
        volumes, before = (items(mapping(mapping(s.get("template")).get("spec")).get("volumes")) for s in (spec, old))
        if not equal(volumes, before):
            out.add(
                NOT_SUPPORTED,
                "spec",
                f"the volumes cannot change until the snapshot {shown(snapshot)} is done; wait for it",
            )
        elif not _same_run(spec, old):
            out.add(
                NOT_SUPPORTED,
                "spec",
                f"the VM cannot be started or stopped until the snapshot {shown(snapshot)} is done",
            )
    if restore is not None and not out and _strategy(spec) != _strategy(old):
        out.add(
            NOT_SUPPORTED,
            "spec",
            f"the run strategy cannot change until the restore {shown(restore)} is done; wait for it",
        )


def _same_run(spec: Obj, old: Obj) -> bool:
    for name in ("running", "runStrategy"):
        if spec.get(name) is not None and old.get(name) is not None:
            return spec[name] == old[name]
    return False


def _strategy(spec: Obj) -> str:
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        return "Unknown"
    if running is not None:
        return "Always" if running is True else "Halted"
    return text(strategy) or "Halted"


def _admit_status(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    out = Causes()
    volume_requests.check(request.object, request, config, out)
    if not out:
        _check_locks(request.object, request, out)
    return refuse(request.object, out) if out else AdmissionResult(allowed=True, object=request.object)
