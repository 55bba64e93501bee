"""Admission of VirtualMachineInstances."""

from anyvisor.admission import advice, hotplug, hyperv, hypervisor, presets, quantity, shape
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.defaults.filler import Filler, add_finalizer, child
from anyvisor.admission.defaults.spec import fill_common, fill_instance
from anyvisor.admission.result import (
    CREATE,
    UNPROCESSABLE,
    UPDATE,
    AdmissionRequest,
    AdmissionResult,
    Causes,
    refuse,
    refuse_with,
)
from anyvisor.admission.rules import architecture, coherent_gpu, metadata, network, volumes
from anyvisor.admission.rules import spec as spec_rules
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, items, mapping, text
from anyvisor.admission.view import Spec

FINALIZER = "kubevirt.io/foregroundDeleteVirtualMachine"
PCI_TOPOLOGY = "kubevirt.io/pci-topology-version"

_PCI_TOPOLOGY_VERSION = "v3"
_PARITY = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity"
_QUOTE_SOCKET = "kubevirt.io/qgs-socket-path"
_RUNTIME_USER = 107
_AT = "spec"


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Defaults and rules for a create, update or delete (which is always allowed)."""
    if request.operation == CREATE:
        return _create(request, config)
    if request.operation == UPDATE:
        return _update(request, config)
    return AdmissionResult(allowed=True, object=request.object)


def _create(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    vmi: Obj = clone(request.object)
    filler, out = Filler(), Causes()
    shape.check_spec(_AT, mapping(vmi.get("spec")), out, complete=True)
    if out:
        return refuse(vmi, out)
    if problem := presets.apply(vmi, request, filler):
        return refuse_with(vmi, problem, UNPROCESSABLE)
    if problem := _fill(vmi, request, config, filler):
        return refuse_with(vmi, problem)
    check_created(vmi, config, by_component=config.is_component(request.user), out=out)
    if out:
        return refuse(vmi, out)
    warnings = advice.for_spec(Spec.of(mapping(vmi.get("spec")), _AT))
    if presets.was_applied(vmi):
        warnings.append(presets.DEPRECATION)
    return AdmissionResult(allowed=True, object=vmi, warnings=warnings, defaults=filler.filled)


def check_created(vmi: Obj, config: ClusterConfig, *, by_component: bool, out: Causes) -> None:
    """The rules for a new VMI after its defaults."""
    spec = Spec.of(mapping(vmi.get("spec")), _AT)
    spec_rules.discontinued_gates(spec, config, out)
    network.discontinued(spec, out)
    hypervisor.check(_AT, spec.raw, out)
    spec_rules.check(spec, config, out)
    meta = mapping(vmi.get("metadata"))
    metadata.check("metadata", meta, config, by_component=by_component, out=out)
    coherent_gpu.annotations(spec, mapping(meta.get("annotations")), "metadata", config, out)
    check_run(spec, out)


def check_run(spec: Spec, out: Causes) -> None:
    """What a spec must fulfil to run, beyond what a template must to be stored; all defaults are in it."""
    volumes.volumes_are_used(spec, out)
    _check_memory_is_given(spec, out)
    hyperv.check(spec, out)
    architecture.per_architecture(spec, out)


def _check_memory_is_given(spec: Spec, out: Causes) -> None:
    given = spec.memory.get("guest") is not None or spec.memory.get("hugepages") is not None
    if not given and not quantity.value(spec.requests.get("memory")):
        path = f"{spec.at}.domain.memory.guest"
        out.required("", f"{path} is missing; say how much memory the guest has, such as 1Gi", f"{spec.at}.domain")


def fill_pci_topology(meta: Obj, spec: Obj, at: str, filler: Filler) -> None:
    """Mark new guests with PCIe slots as laid out in the newest way; `at` is the path of the metadata."""
    machine = text(mapping(mapping(spec.get("domain")).get("machine")).get("type"))
    arch = text(spec.get("architecture"))
    if arch not in ("", "amd64", "arm64") or not ("q35" in machine or machine.startswith("virt")):
        return
    annotations = child(meta, "annotations")
    if PCI_TOPOLOGY not in annotations:
        filler.set(annotations, PCI_TOPOLOGY, _PCI_TOPOLOGY_VERSION, f"{at}.annotations")


def _fill(vmi: Obj, request: AdmissionRequest, config: ClusterConfig, filler: Filler) -> str:
    spec, meta = child(vmi, "spec"), child(vmi, "metadata")
    if problem := fill_common(spec, _AT, config, filler):
        return problem
    fill_instance(spec, _AT, config, filler, request.new_uuid())
    fill_pci_topology(meta, spec, "metadata", filler)
    domain = mapping(spec.get("domain"))
    cpu = mapping(domain.get("cpu"))
    if cpu.get("isolateEmulatorThread") is True and _PARITY in config.annotations and config.on("AlignCPUs"):
        filler.set(child(meta, "annotations"), _PARITY, "", "metadata.annotations", "annotation of the KubeVirt object")
    if mapping(domain.get("launchSecurity")).get("tdx") is not None and config.quote_socket:
        filler.set(child(meta, "annotations"), _QUOTE_SOCKET, config.quote_socket, "metadata.annotations")
    add_finalizer(meta, FINALIZER)
    _fill_status(child(vmi, "status"), domain, request.now, root=config.on("Root"))
    return ""


def _fill_status(status: Obj, domain: Obj, now: str, *, root: bool) -> None:
    guest = mapping(domain.get("memory")).get("guest")
    if guest is not None:
        status["memory"] = {"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest}
    cpu = mapping(domain.get("cpu"))
    if status.get("currentCPUTopology") is None:
        status["currentCPUTopology"] = {name: cpu[name] for name in ("cores", "sockets", "threads") if cpu.get(name)}
    if not root:
        status["runtimeUser"] = _RUNTIME_USER
    status["phase"] = "Pending"
    transitions = items(status.get("phaseTransitionTimestamps"))
    if not transitions or transitions[-1].get("phase") != "Pending":
        status["phaseTransitionTimestamps"] = [*transitions, {"phase": "Pending", "phaseTransitionTimestamp": now}]


def _update(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    vmi: Obj = clone(request.object)
    old = mapping(request.old_object)
    warnings: list[str] = []
    hypervisor.keep(_AT, mapping(vmi.get("spec")), mapping(old.get("spec")), warnings)
    by_component = config.is_component(request.user)
    if not by_component and not equal(vmi.get("status"), old.get("status")):
        # The kind has no status subresource, so what users send for it is put back.
        vmi["status"] = clone(mapping(old.get("status")))
    out = Causes()
    changed = not equal(vmi.get("spec"), old.get("spec"))
    if changed:
        shape.check_spec(_AT, mapping(vmi.get("spec")), out, complete=False)
        if out:
            return refuse(vmi, out)
    _check_node(vmi, old, request, config, out)
    if not out and changed:
        _check_spec_change(vmi, old, config, by_component=by_component, out=out)
    if not out and not by_component:
        _check_label_change(vmi, old, out)
    if out:
        return refuse(vmi, out)
    return AdmissionResult(allowed=True, object=vmi, warnings=warnings)


def _check_spec_change(vmi: Obj, old: Obj, config: ClusterConfig, *, by_component: bool, out: Causes) -> None:
    if not by_component:
        out.unsupported(
            "",
            "the spec of a VirtualMachineInstance is not changed directly; change its VirtualMachine, "
            "or use a subresource such as addvolume",
            _AT,
        )
        return
    hypervisor.check(_AT, mapping(vmi.get("spec")), out)
    if not out:
        hotplug.check(vmi, old, config, out)


def _check_label_change(vmi: Obj, old: Obj, out: Causes) -> None:
    now, before = (metadata.reserved_labels(mapping(obj.get("metadata"))) for obj in (vmi, old))
    if now != before:
        changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
        out.unsupported("", f"the labels {', '.join(changed)} are set by the control plane alone", "metadata.labels")


def _check_node(vmi: Obj, old: Obj, request: AdmissionRequest, config: ClusterConfig, out: Causes) -> None:
    """A node's agent writes only VMIs that run on its node or move to it."""
    if not config.on("NodeRestriction") or not config.is_agent(request.user):
        return
    node, status = config.agent_node(request.user), mapping(old.get("status"))
    target = text(mapping(status.get("migrationState")).get("targetNode"))
    if not node:
        out.invalid("", f"{request.user.name} does not say which node it is of; its token must be bound to a node")
    elif node not in (text(status.get("nodeName")), target):
        out.invalid("", f"the agent of node {node} may write only VMIs that run on this node or move to it")
    else:
        state = mapping(mapping(vmi.get("status")).get("migrationState"))
        if not target and text(state.get("targetNode")):
            out.invalid("", "the target node of a migration is set by the controller, not by a node's agent")
