"""Admission webhooks: others' HTTPS endpoints that may change or refuse writes (`admission.k8s.io/v1`)."""

import asyncio
import base64
import binascii
import copy
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from anyvisor.api.meta import object_at
from anyvisor.api.selectors import EVERYTHING, Selector, SelectorError, selector_of
from anyvisor.embedded.apiserver import patch as patches
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.callout import Callout
from anyvisor.embedded.apiserver.cel import CelError
from anyvisor.embedded.apiserver.codec import decode_json
from anyvisor.embedded.apiserver.conditions import condition
from anyvisor.embedded.apiserver.endpoints import UnreachableError
from anyvisor.embedded.apiserver.reviews import user_info
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.values import as_list, objects_at

Json = dict[str, Any]

GROUP = "admissionregistration.k8s.io"
MAX_ANSWER = 4 << 20
DEFAULT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of one configuration."""

    name: str
    raw: Json

    @property
    def ignores_failure(self) -> bool:
        return self.raw.get("failurePolicy") == "Ignore"


class Webhooks:
    """The webhooks of one phase, as the objects of the server state them at each moment."""

    def __init__(self, state: State, callout: Callout, phase: Literal["mutating", "validating"]) -> None:
        self._callout = callout
        self.phase: Literal["mutating", "validating"] = phase
        self._state = state
        self._store = f"{GROUP}/{phase}webhookconfigurations"

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Ask every webhook that the request concerns; mutating ones in order, validating ones at once."""
        if request.resource.group == GROUP or not self._state.collection(self._store).entries:
            return ALLOWED
        concerned = [hook for hook in self._all() if self._concerns(hook, request)]
        if not concerned:
            return ALLOWED
        if self.phase == "mutating":
            return await self._mutate(concerned, request)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._ask(hook, request, request.object)) for hook in concerned]
        warnings = [warning for task in tasks for warning in task.result().warnings]
        refusals = [task.result() for task in tasks if task.result().denied]
        if not refusals:
            return AdmissionResult(warnings=warnings)
        first = refusals[0]
        return AdmissionResult(warnings=warnings, denied=first.denied, code=first.code, reason=first.reason)

    async def _mutate(self, hooks: Sequence[Webhook], request: AdmissionRequest) -> AdmissionResult:
        obj = request.object
        warnings: list[str] = []
        again: list[Webhook] = []
        for hook in hooks:
            result = await self._ask(hook, request, obj)
            warnings.extend(result.warnings)
            if result.denied:
                return AdmissionResult(warnings=warnings, denied=result.denied, code=result.code, reason=result.reason)
            if result.object is not None and result.object != obj:
                obj = result.object
                again = [item for item in hooks if item is not hook and _reinvoked(item)]
        for hook in again:
            result = await self._ask(hook, request, obj)
            if result.denied:
                return AdmissionResult(warnings=warnings, denied=result.denied, code=result.code, reason=result.reason)
            obj = result.object if result.object is not None else obj
        return AdmissionResult(object=obj if obj is not request.object else None, warnings=warnings)

    def _all(self) -> Iterator[Webhook]:
        for entry in self._state.collection(self._store).range(None):
            for raw in objects_at(entry.object(), "webhooks"):
                yield Webhook(str(raw.get("name")), raw)

    def _concerns(self, hook: Webhook, request: AdmissionRequest) -> bool:
        if not any(_rule_matches(rule, request) for rule in objects_at(hook.raw, "rules")):
            return False
        objects = [obj for obj in (request.object, request.old_object) if obj is not None]
        chosen = _selector(hook, "objectSelector")
        if not any(chosen.matches(object_at(obj, "metadata", "labels")) for obj in objects):
            return False
        return _selector(hook, "namespaceSelector").matches(self._namespace_labels(request))

    def _namespace_labels(self, request: AdmissionRequest) -> Json:
        name = request.namespace
        if request.resource.plural == "namespaces" and not request.resource.group:
            return object_at(request.object or request.old_object or {}, "metadata", "labels")
        entry = self._state.collection("namespaces").entries.get(("", name))
        return dict(entry.labels) if entry is not None else {}

    async def _ask(self, hook: Webhook, request: AdmissionRequest, obj: Json | None) -> AdmissionResult:
        if request.dry_run and hook.raw.get("sideEffects") not in ("None", "NoneOnDryRun"):
            return AdmissionResult(
                denied=f"admission webhook {hook.name!r} does not support dry run", code=400, reason="BadRequest"
            )
        review = _review(request, obj)
        try:
            if not _conditions_hold(hook, review["request"]):
                return ALLOWED
            answer = await self._call(hook, review)
            return _result(hook, review["request"]["uid"], answer, obj)
        except (UnreachableError, msgspec.DecodeError, StatusError) as error:
            if hook.ignores_failure:
                return ALLOWED
            reason = str(error) or type(error).__name__
            return AdmissionResult(
                denied=f'failed calling webhook "{hook.name}": {reason}', code=500, reason="InternalError"
            )

    async def _call(self, hook: Webhook, review: Json) -> Json:
        seconds = float(hook.raw.get("timeoutSeconds") or DEFAULT_SECONDS)
        return await self._callout.post(object_at(hook.raw, "clientConfig"), review, seconds, MAX_ANSWER)


def _reinvoked(hook: Webhook) -> bool:
    return hook.raw.get("reinvocationPolicy") == "IfNeeded"


def _conditions_hold(hook: Webhook, asked: Json) -> bool:
    """Evaluate `matchConditions`. Raises UnreachableError when one fails, as if the webhook had."""
    variables = {"object": asked["object"], "oldObject": asked["oldObject"], "request": asked}
    for item in objects_at(hook.raw, "matchConditions"):
        try:
            if not condition(str(item.get("expression"))).holds(variables):
                return False
        except CelError as error:
            raise UnreachableError(f"its match condition {item.get('name')!r} failed: {error}") from error
    return True


def _selector(hook: Webhook, name: str) -> Selector:
    """Read a selector of a webhook; one that cannot be read spares no object from being asked about."""
    try:
        return selector_of(object_at(hook.raw, name))
    except SelectorError:
        return EVERYTHING


def _rule_matches(rule: Json, request: AdmissionRequest) -> bool:
    resource = request.resource

    def has(name: str, value: str) -> bool:
        values = as_list(rule.get(name))
        return "*" in values or value in values

    full = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    wild = f"*/{request.subresource}" if request.subresource else "*"
    names = as_list(rule.get("resources"))
    named = full in names or wild in names or "*/*" in names or f"{resource.plural}/*" in names
    scope = rule.get("scope", "*")
    in_scope = scope in ("*", None, "") or (scope == "Namespaced") == resource.namespaced
    return (
        has("operations", request.operation)
        and has("apiGroups", resource.group)
        and has("apiVersions", resource.version)
        and named
        and in_scope
    )


def _review(request: AdmissionRequest, obj: Json | None) -> Json:
    resource = request.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    asked: Json = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        "name": request.name,
        "operation": request.operation,
        "userInfo": user_info(request.user),
        "object": obj if request.operation != "DELETE" else None,
        "oldObject": request.old_object,
        "dryRun": request.dry_run,
        "options": request.options,
    }
    if request.subresource:
        asked["subResource"] = asked["requestSubResource"] = request.subresource
    if request.namespace:
        asked["namespace"] = request.namespace
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def _result(hook: Webhook, uid: str, review: Json, obj: Json | None) -> AdmissionResult:
    response = object_at(review, "response")
    if response.get("uid") != uid:
        raise UnreachableError("its answer has another uid than the request")
    warnings = [str(item) for item in as_list(response.get("warnings"))]
    if not response.get("allowed"):
        status = object_at(response, "status")
        text = status.get("message") or status.get("reason") or "denied the request without explanation"
        said = f'admission webhook "{hook.name}" denied the request: {text}'
        return AdmissionResult(
            warnings=warnings,
            denied=said,
            code=int(status.get("code") or 403),
            reason=str(status.get("reason") or "Forbidden"),
        )
    encoded = response.get("patch")
    if not encoded or obj is None:
        return AdmissionResult(warnings=warnings)
    try:
        operations = decode_json(base64.b64decode(encoded, validate=True))
        changed = patches.json_patch(copy.deepcopy(obj), operations)
    except (binascii.Error, patches.PatchError) as error:
        raise UnreachableError(f"its patch cannot be applied: {error}") from error
    return AdmissionResult(object=changed, warnings=warnings)
