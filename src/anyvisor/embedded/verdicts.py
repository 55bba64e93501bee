"""The planner's word on a machine that is to be created: refused here, with reasons, when no driver can run it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import AdmissionRequest, Cause, User
from anyvisor.api.meta import object_at, text_at
from anyvisor.embedded.world import ServerWorld
from anyvisor.planning.classes import ClassError, candidates, choose
from anyvisor.planning.facts import node_facts
from anyvisor.planning.plan import Finding
from anyvisor.planning.planner import Policy

_AT = {"VirtualMachine": ("spec", "template", "spec"), "VirtualMachineInstance": ("spec",)}
_CONTROLLER = User("system:anyvisor:controller")


def causes(world: ServerWorld, request: AdmissionRequest, obj: Mapping[str, Any]) -> Sequence[Cause]:
    """Why the machine of a VM or VMI that is created, or whose description is changed, cannot run."""
    at = _AT.get(request.kind)
    if at is None or request.operation not in ("CREATE", "UPDATE") or request.subresource:
        return ()
    spec = object_at(obj, *at)
    if request.old_object is not None and object_at(request.old_object, *at) == spec:
        return ()
    prefix = ".".join(at)
    classes, drivers = world.list("HypervisorClass"), world.list("HypervisorDriver")
    try:
        found = candidates(text_at(spec, "hypervisor"), classes, drivers)
    except ClassError as error:
        return (Cause("FieldValueNotFound", f"{prefix}.hypervisor", str(error)),)
    full, defaulted = _defaulted(request, spec, world.config())
    nodes = [node_facts(node) for node in world.list("HypervisorNode")]
    plan = choose(full, found, nodes, Policy(namespace=request.namespace), defaulted=defaulted)
    if plan.verdict != "REFUSED":
        return ()
    return [_cause(finding, prefix) for finding in plan.findings if finding.severity == "error"]


def _cause(finding: Finding, prefix: str) -> Cause:
    field = finding.field.removeprefix("spec.")
    words = [finding.message, *finding.remedies]
    return Cause("FieldValueNotSupported", f"{prefix}.{field}" if field else prefix, "; ".join(words))


def _defaulted(
    request: AdmissionRequest, spec: Mapping[str, Any], config: ClusterConfig
) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The spec as the machine will have it, and which of its paths nobody wrote."""
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "machine", "namespace": request.namespace},
        "spec": dict(spec),
    }
    question = replace(
        request, kind="VirtualMachineInstance", operation="CREATE", object=machine, old_object=None, user=_CONTROLLER
    )
    answer = admit(question, config)
    sources = {default.path: default.source for default in answer.defaults}
    return object_at(answer.object, "spec"), sources
