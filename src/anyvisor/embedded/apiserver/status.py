"""Refusals as Kubernetes' Status objects, with the texts and reasons that clients match on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One `details.causes` entry: which field, which kind of mistake, and the sentence about it."""

    field: str
    reason: str
    message: str

    def to_json(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(path: str, what: str = "") -> Cause:
    return Cause(path, "FieldValueRequired", f"Required value{': ' + what if what else ''}")


def invalid_value(path: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def forbidden_field(path: str, why: str) -> Cause:
    return Cause(path, "FieldValueForbidden", f"Forbidden: {why}")


class StatusError(Exception):
    """A request that is answered with a failure Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        *,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Json = dict(details or {})
        self._has_details = details is not None
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def to_json(self) -> Json:
        """Return the Status object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details or self._has_details:
            status["details"] = self.details
        return status


def qualified(group: str, plural: str) -> str:
    """Return the `plural.group` form that Kubernetes' messages use."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def not_found(group: str, plural: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', _details(group, plural, name))


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(group: str, plural: str, name: str, *, deleting: bool = False) -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f'{"object is being deleted: " if deleting else ""}{qualified(group, plural)} "{name}" already exists',
        _details(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}',
        _details(group, plural, name),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def modified(group: str, plural: str, name: str) -> StatusError:
    """The optimistic lock's refusal, in the words that client-go's retry helpers expect."""
    return conflict(group, plural, name, MODIFIED)


def apply_conflict(causes: Sequence[Cause]) -> StatusError:
    named = [f"{cause.message}: {cause.field}" for cause in causes]
    found = f"conflict: {named[0]}" if len(named) == 1 else "\n- ".join(["conflicts:", *named])
    text = f"Apply failed with {len(named)} {found}"
    return StatusError(409, "Conflict", text, {"causes": [cause.to_json() for cause in causes]})


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> StatusError:
    messages = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = _details(group, kind, name)
    details["causes"] = [cause.to_json() for cause in causes]
    return StatusError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    subject = f'{qualified(group, plural)} "{name}"' if name else f"{qualified(group, plural)}"
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(group, plural, name))


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def unpatchable(group: str, plural: str, name: str, error: Exception) -> StatusError:
    return StatusError(
        422,
        "Invalid",
        f"the server rejected our request due to an error in our request: {error}",
        {"name": name, "group": group, "kind": plural},
    )


def method_not_allowed(
    message: str = "the server does not allow this method on the requested resource",
) -> StatusError:
    return StatusError(405, "MethodNotAllowed", message, {})


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large(what: str, limit: int) -> StatusError:
    return StatusError(
        413, "RequestEntityTooLarge", f"{what} is larger than the limit of {limit} bytes; send a smaller one"
    )


def unsupported_media(allowed: Sequence[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(allowed)}",
    )


def not_acceptable(available: Sequence[str]) -> StatusError:
    text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
    return StatusError(406, "NotAcceptable", text, {})


def unsupported_value(path: str, value: str, supported: Sequence[str]) -> Cause:
    options = ", ".join(f'"{item}"' for item in supported)
    return Cause(path, "FieldValueNotSupported", f"Unsupported value: {value}: supported values: {options}")


def internal(why: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, retry_after=1)
