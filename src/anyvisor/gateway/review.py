"""MachineReview: which hypervisor classes could run a machine, and if one cannot, why not and what would; pure.

Create-only, as a SubjectAccessReview is: a VirtualMachine or VirtualMachineInstance goes in, nothing is stored, and
a verdict of each class comes out, with counter-offers in the order of what they cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import AdmissionRequest, AdmissionResult, User
from anyvisor.api.meta import Json, StatusCause, StatusDetails, kind, list_at, object_at, text_at
from anyvisor.gateway.answers import JSON, Decision, Refused, bad_request, failure
from anyvisor.gateway.call import Call
from anyvisor.planning.classes import ClassError, candidates
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Policy, plan

GROUP: Final = "reviews.anyvisor.io"
VERSION: Final = "v1alpha1"
KIND: Final = "MachineReview"
PLURAL: Final = "machinereviews"
CLASSES_LIMIT: Final = 64
_PATH: Final = (GROUP, VERSION, PLURAL)

_COSTS: Final = ("nothing", "invisible", "visible", "change")
"""What an offer costs the guest: nothing, a change that it does not see, one that it does, or a change of its spec."""

_AS_CONTROLLER: Final = User("system:anyvisor:controller")
"""Whose VMI a VM's machine is; only with its rights may a VMI state all of its fields."""
_REFERENCE_TIME: Final = "2000-01-01T00:00:00Z"
_REFERENCE_UUID: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Offered:
    """What is installed: HypervisorClass and HypervisorDriver objects, and the facts of the nodes."""

    classes: Sequence[Mapping[str, Any]]
    drivers: Sequence[Mapping[str, Any]]
    nodes: Sequence[NodeFacts]
    config: ClusterConfig


def parse_review(method: str, path: str, body: bytes) -> Call:
    """Read a request to our group; raises Refused (404, 405)."""
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["apis", group, version, "namespaces", namespace, plural] if (group, version, plural) == _PATH:
            if method != "POST":
                why = f"a {KIND} is only created: it is answered at once and not stored"
                raise Refused(failure(405, "MethodNotAllowed", why))
            return Call(method, plural, namespace, "", KIND, body=body)
        case _:
            raise Refused(failure(404, "NotFound", "the server could not find the requested resource"))


def review(body: Json, namespace: str, offered: Offered) -> Decision:
    """Answer a MachineReview; raises Refused for one that cannot be judged."""
    if kind(body) not in ("", KIND):
        raise bad_request(f"the body must be a {KIND}, not a {kind(body)}")
    machine = object_at(body, "spec", "machine")
    if not machine:
        raise bad_request("spec.machine must hold a VirtualMachine or a VirtualMachineInstance")
    answer = _with_defaults(machine, namespace, offered.config)
    sources = {default.path: default.source for default in answer.defaults}
    spec = object_at(answer.object or {}, "spec")
    named = text_at(spec, "hypervisor")
    policy = Policy(namespace=namespace)
    verdicts: list[Json] = []
    plans: dict[str, Plan] = {}
    for name in _asked(body, offered):
        try:
            candidate = candidates(name, offered.classes, offered.drivers)[0]
        except ClassError as error:
            verdicts.append(_unusable(name, error))
            continue
        made = plan(spec, candidate.hypervisor_class, candidate.driver, offered.nodes, policy, defaulted=sources)
        plans[name] = made
        verdicts.append(_verdict(name, made))
    chosen = _chosen(named, offered, plans)
    status: Json = {"class": chosen, "classes": verdicts, "offers": _offers(chosen, plans)}
    status["verdict"] = plans[chosen].verdict if chosen in plans else "REFUSED"
    result = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"namespace": namespace, "creationTimestamp": None},
        "spec": object_at(body, "spec"),
        "status": status,
    }
    return Decision(201, result, JSON)


def _with_defaults(machine: Json, namespace: str, config: ClusterConfig) -> AdmissionResult:
    """Fill in what the machine would get at its creation; a machine that admission refuses is refused here, too."""
    holder = machine if kind(machine) == "VirtualMachineInstance" else object_at(machine, "spec", "template")
    if kind(machine) not in ("VirtualMachine", "VirtualMachineInstance"):
        raise bad_request(
            f"spec.machine.kind is {kind(machine)!r}: it must be VirtualMachine or VirtualMachineInstance"
        )
    question = AdmissionRequest(
        operation="CREATE",
        kind="VirtualMachineInstance",
        object={
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": "machine", "namespace": namespace},
            "spec": object_at(holder, "spec"),
        },
        new_uuid=lambda: _REFERENCE_UUID,
        now=_REFERENCE_TIME,
        namespace=namespace,
        name="machine",
        user=_AS_CONTROLLER,
        dry_run=True,
    )
    answer = admit(question, config)
    if not answer.allowed:
        causes = tuple(
            StatusCause(reason=cause.type, field=cause.location, message=cause.message) for cause in answer.causes
        )
        message = answer.message or "; ".join(cause.message for cause in answer.causes)
        why = f"the machine would be refused on any hypervisor: {message}"
        raise Refused(failure(422, "Invalid", why, StatusDetails(kind=KIND, group=GROUP, causes=causes)))
    return answer


def _asked(body: Json, offered: Offered) -> list[str]:
    names = [name for name in list_at(body, "spec", "classes") if isinstance(name, str)]
    if not names:
        names = sorted(text_at(entry, "metadata", "name") for entry in offered.classes)
    if len(names) > CLASSES_LIMIT:
        raise bad_request(f"spec.classes names {len(names)} classes: at most {CLASSES_LIMIT} are judged at once")
    return list(dict.fromkeys(names))


def _chosen(named: str, offered: Offered, plans: Mapping[str, Plan]) -> str:
    """The class that would be taken: as named, the default one, or the best that accepts (`auto`)."""
    try:
        names = [candidate.name for candidate in candidates(named, offered.classes, offered.drivers)]
    except ClassError:
        return named
    judged = [name for name in names if name in plans]
    return next((name for name in judged if plans[name].accepted), judged[0] if judged else names[0])


def _verdict(name: str, made: Plan) -> Json:
    return {
        "class": name,
        "driver": made.driver,
        "driverVersion": made.driver_version,
        "accelerator": made.accelerator,
        "verdict": made.verdict,
        "findings": msgspec.to_builtins(made.findings),
        "substitutions": msgspec.to_builtins(made.substitutions),
        "memoryBytes": made.resources.memory_bytes,
        "overheadBytes": made.resources.overhead_bytes,
    }


def _unusable(name: str, error: ClassError) -> Json:
    finding = {"code": error.reason, "severity": "error", "message": str(error), "field": "spec.hypervisor"}
    return {"class": name, "verdict": "REFUSED", "findings": [finding]}


def _offers(chosen: str, plans: Mapping[str, Plan]) -> list[Json]:
    """What would work instead, the cheapest first: another class, then a change that a finding names."""
    if chosen in plans and plans[chosen].accepted:
        return []
    found: list[tuple[int, Json]] = []
    for name, made in plans.items():
        if name != chosen and made.accepted:
            cost = _cost(made)
            found.append((cost, {"class": name, "cost": _COSTS[cost], "message": _told(name, made)}))
    if chosen in plans:
        for finding in plans[chosen].findings:
            if finding.severity == "error":
                found += [
                    (len(_COSTS) - 1, {"cost": _COSTS[-1], "field": finding.field, "message": remedy})
                    for remedy in finding.remedies
                ]
    return [offer for _, offer in sorted(found, key=lambda each: each[0])]


def _cost(made: Plan) -> int:
    if any(finding.severity == "warn" for finding in made.findings):
        return 2
    return 1 if made.substitutions else 0


def _told(name: str, made: Plan) -> str:
    warnings = [finding.message for finding in made.findings if finding.severity == "warn"]
    if warnings:
        return f"set hypervisor: {name}; {'; '.join(warnings)}"
    if made.substitutions:
        changed = ", ".join(change.field for change in made.substitutions)
        return f"set hypervisor: {name}; defaults are replaced: {changed}"
    return f"set hypervisor: {name}; nothing changes for the guest"
