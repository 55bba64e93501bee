"""The planner's word on a machine that is to be created: refused here, with reasons, when no driver can run it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.matchers import expand
from anyvisor.admission.result import AdmissionRequest, AdmissionResult, Cause, Causes, Default, Related, User
from anyvisor.admission.values import Obj, clone
from anyvisor.api.meta import object_at, text_at
from anyvisor.planning.classes import ClassError, candidates, choose
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.plan import Finding
from anyvisor.planning.planner import Policy, effective

_AT = {"VirtualMachine": ("spec", "template", "spec"), "VirtualMachineInstance": ("spec",)}
_CONTROLLER = User("system:anyvisor:controller")


class World(Related, Protocol):
    """What admission looks up, and the configuration in force."""

    def config(self) -> ClusterConfig:
        """The effective configuration."""
        ...

    def nodes(self) -> tuple[NodeFacts, ...]:
        """What is known of the nodes: the same tuple until one of them changes."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the machine cannot run; or the object as it is to be stored, without defaults that its driver cannot meet."""

    object: Obj
    causes: Sequence[Cause] = ()
    warnings: Sequence[str] = ()
    as_asked: bool = True
    """Whether the rules, asked about `object`, judge what they have judged already: the same object, or one without
    some of the defaults, which they fill in again."""


def judge(world: World, request: AdmissionRequest, answer: AdmissionResult) -> Verdict:
    """Ask the planner about a VM or VMI that is created, or a VM whose machine is changed.

    `answer` is what the admission rules said of the request: the object with its defaults, and where those are.
    """
    at, obj = _AT.get(request.kind), answer.object
    if at is None or request.subresource or not _is_new(request, obj, at):
        return Verdict(obj)
    spec, prefix = object_at(obj, *at), ".".join(at)
    try:
        named = text_at(spec, "hypervisor")
        found = candidates(named, world.list("HypervisorClass"), world.list("HypervisorDriver"))
    except ClassError as error:
        return Verdict(obj, [Cause("FieldValueNotFound", f"{prefix}.hypervisor", str(error))])
    if request.kind == "VirtualMachine":
        expanded = _expanded(world, request, obj)
        if expanded is None:
            return Verdict(obj)
        spec, defaults = _as_machine(request, expanded, world.config())
    else:
        defaults = answer.defaults
    sources = {default.path: default.source for default in defaults}
    plan = choose(spec, found, world.nodes(), Policy(namespace=request.namespace), defaulted=sources)
    if not plan.accepted:
        return Verdict(obj, [_cause(finding, prefix) for finding in plan.findings if finding.severity == "error"])
    warnings = [finding.message for finding in plan.findings if finding.severity == "warn"]
    if request.kind == "VirtualMachineInstance" and plan.substitutions:
        defaults_only = all(one.to is None and f"spec.{one.field}" in sources for one in plan.substitutions)
        return Verdict({**obj, "spec": effective(spec, plan)}, warnings=warnings, as_asked=defaults_only)
    return Verdict(obj, warnings=warnings)


def _expanded(world: World, request: AdmissionRequest, vm: Obj) -> Obj | None:
    """The spec of the VM's template, with instance type and preference; None while one of them does not exist."""
    template = clone(object_at(vm, "spec", "template"))
    complete = expand(vm, replace(request, related=world), template, Causes())
    return object_at(template, "spec") if complete else None


def _is_new(request: AdmissionRequest, obj: Obj, at: Sequence[str]) -> bool:
    if request.operation == "CREATE":
        return True
    if request.operation != "UPDATE" or request.kind != "VirtualMachine" or request.old_object is None:
        return False
    return object_at(request.old_object, *at) != object_at(obj, *at)


def _cause(finding: Finding, prefix: str) -> Cause:
    field = finding.field.removeprefix("spec.")
    words = [finding.message, *finding.remedies]
    return Cause("FieldValueNotSupported", f"{prefix}.{field}" if field else prefix, "; ".join(words))


def _as_machine(request: AdmissionRequest, spec: Obj, config: ClusterConfig) -> tuple[Obj, Sequence[Default]]:
    """The spec of the VM's machine with the defaults that it will have, and where those are."""
    machine = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "machine", "namespace": request.namespace},
        "spec": spec,
    }
    question = replace(
        request, kind="VirtualMachineInstance", operation="CREATE", object=machine, old_object=None, user=_CONTROLLER
    )
    answer = admit(question, config)
    return object_at(answer.object, "spec"), answer.defaults
