"""What a MachineReview says of a move: can the machine, as it is in the review, go to another class or node. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from anyvisor.api.meta import Json, condition_is, kind, list_at, object_at, text_at
from anyvisor.gateway.answers import bad_request
from anyvisor.planning.classes import ClassError, candidates, installed
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.moves import MoveAnswer, Running, Target, VolumeFacts, check_move, claims_of
from anyvisor.planning.planner import Driver, Policy

CLAIMS_LIMIT: Final = 64
_HOSTNAME: Final = "kubernetes.io/hostname"

Objects = Sequence[Mapping[str, Any]]


def wanted(body: Json) -> Json:
    """`spec.moveTo`; empty where no move is asked for. Raises Refused (400)."""
    asked = object_at(body, "spec").get("moveTo")
    if asked is None:
        return {}
    if not isinstance(asked, dict) or not (text_at(body, "spec", "moveTo", "class") or _node(body)):
        raise bad_request("spec.moveTo names a class, a node, or both")
    return object_at(body, "spec", "moveTo")


def _node(body: Json) -> str:
    return text_at(body, "spec", "moveTo", "node")


def claims(body: Json) -> list[str]:
    """The claims of which a move needs facts."""
    if not wanted(body):
        return []
    machine = object_at(body, "spec", "machine")
    holder = machine if kind(machine) == "VirtualMachineInstance" else object_at(machine, "spec", "template")
    return claims_of(object_at(holder, "spec"))[:CLAIMS_LIMIT]


def volume_facts(claim: Json, volume: Json | None) -> VolumeFacts:
    """Of a claim and the volume that it is bound to."""
    modes = [*list_at(claim, "status", "accessModes"), *list_at(claim, "spec", "accessModes")]
    terms = list_at(volume or {}, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
    nodes = [
        name
        for term in terms
        for rule in [*list_at(term, "matchExpressions"), *list_at(term, "matchFields")]
        if rule.get("key") in (_HOSTNAME, "metadata.name") and rule.get("operator") == "In"
        for name in list_at(rule, "values")
    ]
    return VolumeFacts(tuple(dict.fromkeys(map(str, modes))), tuple(map(str, nodes)) if nodes else None)


def answer(
    body: Json,
    spec: Json,
    defaulted: Mapping[str, str],
    now: str,
    offered: tuple[Objects, Objects, Sequence[NodeFacts]],
    volumes: Mapping[str, VolumeFacts],
    policy: Policy,
) -> Json:
    """`status.move`. `spec` has its defaults, `now` is the class that runs the machine, or would."""
    asked = wanted(body)
    classes, drivers, nodes = offered
    name = text_at(asked, "class") or now
    try:
        found = candidates(name, classes, drivers)[0]
        machine = _running(object_at(body, "spec", "machine"), spec, defaulted, now, offered, volumes)
    except ClassError as error:
        finding = {"code": error.reason, "severity": "error", "message": str(error), "field": "spec.moveTo.class"}
        return {"class": name, "node": text_at(asked, "node"), "how": "no", "findings": [{**finding, "bars": "cold"}]}
    target = Target(found.hypervisor_class, found.driver, nodes, text_at(asked, "node"), policy)
    return {"class": name, "node": target.node, **_told(check_move(machine, target))}


def _running(
    machine: Json,
    spec: Json,
    defaulted: Mapping[str, str],
    now: str,
    offered: tuple[Objects, Objects, Sequence[NodeFacts]],
    volumes: Mapping[str, VolumeFacts],
) -> Running:
    """What the object's status tells. Raises ClassError."""
    status = object_at(machine, "status")
    hypervisor = object_at(status, "hypervisor")
    driver = _driver_of(text_at(hypervisor, "driver"), now, offered)
    minor = hypervisor.get("hriMinor")
    return Running(
        spec=spec,
        driver=driver,
        version=text_at(hypervisor, "driverVersion") or driver.manifest.version,
        hri_minor=minor if isinstance(minor, int) else 0,
        node=text_at(status, "nodeName"),
        accelerator=text_at(hypervisor, "accelerator"),
        paused=condition_is(machine, "Paused"),
        volumes=volumes,
        defaulted=defaulted,
    )


def _driver_of(name: str, now: str, offered: tuple[Objects, Objects, Sequence[NodeFacts]]) -> Driver:
    classes, drivers, _ = offered
    present = next((each for each in drivers if text_at(each, "metadata", "name") == name), None)
    return installed(present) if present is not None else candidates(now, classes, drivers)[0].driver


def _told(found: MoveAnswer) -> Json:
    rows: list[Json] = []
    for bars, findings in (("cold", found.against_cold), ("live", found.against_live), ("nothing", found.notes)):
        rows += [{**msgspec.to_builtins(finding), "bars": bars} for finding in findings]
    return {"how": found.how, "findings": rows, "substitutions": msgspec.to_builtins(found.plan.substitutions)}
