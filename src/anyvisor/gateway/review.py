"""MachineReview: which hypervisor classes could run a machine, and if one cannot, why not and what would; pure.

Create-only, as a SubjectAccessReview is: a VirtualMachine or VirtualMachineInstance goes in, nothing is stored, and
a verdict of each class comes out, with counter-offers in the order of what they cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit_machine
from anyvisor.admission.result import AdmissionResult
from anyvisor.api.meta import Json, StatusCause, StatusDetails, kind, list_at, object_at, text_at
from anyvisor.gateway import moves
from anyvisor.gateway.answers import JSON, Decision, Refused, bad_request, failure
from anyvisor.gateway.call import Call
from anyvisor.planning.classes import ClassError, candidates
from anyvisor.planning.evidence import standing
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.moves import VolumeFacts
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Policy
from anyvisor.planning.review import Option, Question, counter_offers
from anyvisor.planning.values import is_map

GROUP: Final = "reviews.anyvisor.io"
VERSION: Final = "v1alpha1"
KIND: Final = "MachineReview"
PLURAL: Final = "machinereviews"
CLASSES_LIMIT: Final = 64
_PATH: Final = (GROUP, VERSION, PLURAL)

_REFERENCE_UUID: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Offered:
    """What is installed: HypervisorClass and HypervisorDriver objects, and the facts of the nodes."""

    classes: Sequence[Mapping[str, Any]]
    drivers: Sequence[Mapping[str, Any]]
    nodes: Sequence[NodeFacts]
    config: ClusterConfig
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict[str, VolumeFacts])
    """Of the claims that a move needs facts of (`moves.claims`)."""


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
    question = Question(spec, sources, offered.nodes, Policy(namespace=namespace))
    verdicts: list[Json] = []
    plans: dict[str, Plan] = {}
    options: list[Option] = []
    for name in _asked(body, offered):
        try:
            candidate = candidates(name, offered.classes, offered.drivers)[0]
        except ClassError as error:
            verdicts.append(_unusable(name, error))
            continue
        option = Option(candidate.hypervisor_class, candidate.driver)
        options.append(option)
        plans[name] = question.on(option).plan
        verdicts.append(_verdict(name, plans[name]) | _evidence(plans[name], option, offered))
    chosen = _chosen(named, offered, plans)
    status: Json = {"class": chosen, "classes": verdicts, "offers": _offers(chosen, question, options, plans)}
    status["verdict"] = plans[chosen].verdict if chosen in plans else "REFUSED"
    if moves.wanted(body):
        status["move"] = _move(body, question, chosen, offered)
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
    answer = admit_machine(object_at(holder, "spec"), config, namespace=namespace, uuid=_REFERENCE_UUID)
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


def _evidence(made: Plan, option: Option, offered: Offered) -> Json:
    """What the machine needs of the driver, and which of it no conformance result proves."""
    driver = option.driver
    present = [one for one in offered.drivers if text_at(one, "metadata", "name") == driver.manifest.driver]
    results = [result for one in present for result in list_at(one, "spec", "evidence") if is_map(result)]
    worths = standing(driver.manifest, driver.digest, results)
    return {"confirmed": list(made.confirmed), "claimed": [one for one in made.confirmed if worths[one] == "claimed"]}


def _move(body: Json, question: Question, chosen: str, offered: Offered) -> Json:
    now = text_at(body, "spec", "machine", "status", "hypervisor", "class") or chosen
    installed = (offered.classes, offered.drivers, offered.nodes)
    spec, sources = dict(question.spec), question.defaulted
    return moves.answer(body, spec, sources, now, installed, offered.volumes, question.policy)


def _unusable(name: str, error: ClassError) -> Json:
    finding = {"code": error.reason, "severity": "error", "message": str(error), "field": "spec.hypervisor"}
    return {"class": name, "verdict": "REFUSED", "findings": [finding]}


def _offers(chosen: str, question: Question, options: Sequence[Option], plans: Mapping[str, Plan]) -> list[Json]:
    """What would work instead, the cheapest first; nothing where the chosen class accepts the machine."""
    if chosen in plans and plans[chosen].accepted:
        return []
    return [
        {
            "class": offer.hypervisor,
            "cost": offer.cost,
            "message": offer.message,
            "patch": list(offer.patch),
            "changes": [
                {"field": change.field, "value": change.value, "cost": change.cost} for change in offer.changes
            ],
        }
        for offer in counter_offers(question, options, chosen)
    ]
