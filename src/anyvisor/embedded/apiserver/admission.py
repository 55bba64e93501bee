"""The plug point for admission: in-process calls instead of webhooks, with the same questions and answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from anyvisor.embedded.apiserver.calls import Call
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.schema import prune, set_defaults
from anyvisor.embedded.apiserver.status import Cause, StatusError, forbidden, invalid

Json = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One write that asks to be admitted. Plugins must not change the objects; they return new ones."""

    operation: Operation
    resource: Resource
    subresource: str
    namespace: str
    name: str
    object: Json | None
    old_object: Json | None
    user: Identity
    dry_run: bool = False
    options: Json | None = None
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """What a plugin leaves for its later turn in the same write."""


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """What a plugin says; the default is "allowed, unchanged"."""

    object: Json | None = None
    """The changed object, if the plugin changed it."""
    warnings: Sequence[str] = ()
    causes: Sequence[Cause] = ()
    """Mistakes of the object: the request is refused with 422."""
    denied: str = ""
    """A refusal that is no mistake of a field: answered with 403, or with `code`."""
    code: int = 403
    reason: str = ""


ALLOWED = AdmissionResult()


class AdmissionPlugin(Protocol):
    """Something that may change or refuse writes.

    `mutating` plugins run before the schema is checked, `validating` ones after it, each in the given order.
    """

    @property
    def phase(self) -> Literal["mutating", "validating"]: ...

    async def admit(self, request: AdmissionRequest) -> AdmissionResult: ...


def refusal(request: AdmissionRequest, result: AdmissionResult) -> StatusError | None:
    """Return the error of a result that refuses the request."""
    resource = request.resource
    if result.denied:
        if result.code == 403 and not result.reason:
            return forbidden(resource.group, resource.plural, request.name, result.denied)
        details: Json = {"causes": [cause.to_json() for cause in result.causes]} if result.causes else {}
        return StatusError(result.code, result.reason or "Forbidden", result.denied, details)
    if result.causes:
        return invalid(resource.group, resource.kind, request.name, result.causes)
    return None


class Chain:
    """The plugins of a server, asked in their order about each write."""

    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self._mutating = [plugin for plugin in plugins if plugin.phase == "mutating"]
        self._validating = [plugin for plugin in plugins if plugin.phase == "validating"]

    async def mutate(self, call: Call, operation: Operation, obj: Json, old: Json | None) -> Json:
        """Return the object as the mutating plugins leave it. Raises the Status of a refusal."""
        for plugin in self._mutating:
            result = await _ask(plugin, call, operation, obj, old)
            if result.object is not None:
                obj = result.object
                prune(call.resource.schema, obj)
                set_defaults(call.resource.schema, obj)
        return obj

    async def review(self, call: Call, operation: Operation, obj: Json | None, old: Json | None) -> None:
        """Ask the validating plugins. Raises the Status of a refusal."""
        for plugin in self._validating:
            await _ask(plugin, call, operation, obj, old)


async def _ask(
    plugin: AdmissionPlugin, call: Call, operation: Operation, obj: Json | None, old: Json | None
) -> AdmissionResult:
    request = AdmissionRequest(
        operation,
        call.resource,
        call.subresource,
        call.namespace,
        call.name,
        obj,
        old,
        call.identity,
        call.options.dry_run,
        notes=call.notes,
    )
    result = await plugin.admit(request)
    call.warnings.extend(result.warnings)
    error = refusal(request, result)
    if error is not None:
        raise error
    return result
