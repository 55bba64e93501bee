"""Admission over HTTP: an AdmissionReview in, the verdict with all of its reasons out. Pure but for time and UUIDs.

The API: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
Nothing is written while a question is answered, so a dry run is answered like any other; what a decision asks to be
written (`effects`) is for the caller, who leaves it out of dry runs.
"""

import base64
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from anyvisor.admission.dispatch import ADMITTERS
from anyvisor.admission.result import AdmissionRequest, AdmissionResult, Effect, User
from anyvisor.api.meta import Json, object_at, text_at
from anyvisor.gateway import admission
from anyvisor.gateway.verdicts import World

MUTATE: Final = "/admission/mutate"
VALIDATE: Final = "/admission/validate"
_ACCOUNT: Final = "system:serviceaccount:"
_NODE: Final = "authentication.kubernetes.io/node-name"
_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    403: "Forbidden",
    422: "Invalid",
    429: "TooManyRequests",
}


class ReviewError(Exception):
    """What came is no AdmissionReview of `admission.k8s.io/v1`."""


@dataclass(frozen=True, slots=True)
class Components:
    """The service accounts of our own components, which the rules know by other names."""

    namespace: str = "anyvisor"
    controller: str = "anyvisor-controller"
    gateway: str = "anyvisor-gateway"
    agent: str = "anyvisor-agent"

    def user(self, info: Json) -> User:
        """Who asks. An agent is named by the node that its token is bound to: without one it is no node's agent."""
        name = text_at(info, "username")
        groups = [str(group) for group in info.get("groups") or ()]
        extra = {key: [str(value) for value in values] for key, values in object_at(info, "extra").items()}
        ours = f"{_ACCOUNT}{self.namespace}:"
        match name.removeprefix(ours) if name.startswith(ours) else "":
            case self.controller:
                name = "system:anyvisor:controller"
            case self.gateway:
                name = "system:anyvisor:gateway"
            case self.agent:
                name = f"system:anyvisor:agent:{(extra.get(_NODE) or [''])[0]}"
            case _:
                pass
        return User(name, groups, extra)


@dataclass(frozen=True, slots=True)
class Answer:
    """The AdmissionReview to send, and what the decision wants to be written elsewhere."""

    body: bytes
    effects: tuple[Effect, ...] = ()


def mutate(body: bytes, world: World, components: Components) -> Answer:
    """Answer the mutating webhook: defaults, and the planner's refusal. Raises ReviewError."""
    return _answer(body, world, components, admission.prepare, changing=True)


def validate(body: bytes, world: World, components: Components) -> Answer:
    """Answer the validating webhook. Raises ReviewError."""
    return _answer(body, world, components, admission.review, changing=False)


def _answer(
    body: bytes,
    world: World,
    components: Components,
    decide: Callable[[AdmissionRequest, World], AdmissionResult],
    *,
    changing: bool,
) -> Answer:
    asked = _read(body)
    kind, subresource = text_at(asked, "kind", "kind"), text_at(asked, "subResource")
    if kind not in ADMITTERS or subresource not in ("", "status", "eviction"):
        return _encode(asked, {"allowed": True})
    request = AdmissionRequest(
        operation=text_at(asked, "operation"),
        kind=kind,
        object=object_at(asked, "object"),
        new_uuid=lambda: str(uuid.uuid4()),
        now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        namespace=text_at(asked, "namespace"),
        name=text_at(asked, "name"),
        old_object=object_at(asked, "oldObject") or None,
        user=components.user(object_at(asked, "userInfo")),
        dry_run=asked.get("dryRun") is True,
        subresource=subresource,
        related=world,
    )
    result = decide(request, world)
    response: Json = {"allowed": result.allowed}
    if result.warnings:
        response["warnings"] = list(result.warnings)
    if not result.allowed:
        response["status"] = _status(result)
    elif changing and (patch := changes(request.object, result.object)):
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    effects = () if request.dry_run or kind != "Eviction" else tuple(result.effects)
    return _encode(asked, response, effects)


def _read(body: bytes) -> Json:
    try:
        review = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ReviewError(f"the body is no JSON object: {error}") from error
    asked = object_at(review, "request")
    if review.get("apiVersion") != "admission.k8s.io/v1" or not text_at(asked, "uid"):
        raise ReviewError("the body is no AdmissionReview of admission.k8s.io/v1 with a request")
    return asked


def _encode(asked: Json, response: Json, effects: tuple[Effect, ...] = ()) -> Answer:
    review: Json = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": text_at(asked, "uid"), **response},
    }
    return Answer(msgspec.json.encode(review), effects)


def _status(result: AdmissionResult) -> Json:
    status: Json = {
        "status": "Failure",
        "code": result.code,
        "reason": _REASONS.get(result.code, "Forbidden"),
        "message": result.message,
    }
    if result.causes:
        causes = [{"reason": one.type, "message": one.message, "field": one.field} for one in result.causes]
        status["details"] = {"causes": causes}
    return status


def changes(before: Json, after: Json) -> list[Json]:
    """The JSON patch from one object to another, by top-level fields: the server compares the whole anyway."""
    patch: list[Json] = [{"op": "remove", "path": f"/{_escaped(key)}"} for key in before.keys() - after.keys()]
    for key, value in after.items():
        if key not in before or before[key] != value:
            patch.append({"op": "add", "path": f"/{_escaped(key)}", "value": value})
    return patch


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
