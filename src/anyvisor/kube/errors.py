"""Errors of the Kubernetes API, by meaning.

    ApiError
    +-- BadRequest          400
    +-- Unauthorized        401
    +-- Forbidden           403
    +-- NotFound            404
    +-- MethodNotAllowed    405
    +-- Conflict            409  resourceVersion or field manager conflict
    |   +-- AlreadyExists   409  reason AlreadyExists
    +-- Gone                410  the resourceVersion or continue token is too old
    +-- Invalid             422
    +-- TooManyRequests     429
    +-- ServerError         500 and above
    +-- Unreachable         no answer at all (connection, TLS, time-out)

Callers decide by type; `reason`, `message` and `details` are those of the server's Status object.
"""

from typing import Any, cast

import msgspec

MESSAGE_LIMIT = 4096
"""Bytes of a foreign error body that may enter a message."""


class ApiError(Exception):
    """The API server refused a request; the Status it sent is kept."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details or {}
        self.retry_after = retry_after
        """Seconds that the server asked to wait, if it did."""

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})"

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The `details.causes` entries that are objects (field, reason, message)."""
        raw = self.details.get("causes")
        if not isinstance(raw, list):
            return []
        entries = cast("list[Any]", raw)
        return [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]


class BadRequest(ApiError):  # noqa: N818 - the names are those of Kubernetes' reasons
    """400: the server could not read the request."""


class Unauthorized(ApiError):  # noqa: N818
    """401: the server does not know who asks."""


class Forbidden(ApiError):  # noqa: N818
    """403: not allowed, or refused by an admission check."""


class NotFound(ApiError):  # noqa: N818
    """404: no such object or resource."""


class MethodNotAllowed(ApiError):  # noqa: N818
    """405: the resource does not support the verb."""


class Conflict(ApiError):  # noqa: N818
    """409: the object changed meanwhile, or another field manager owns a field."""


class AlreadyExists(Conflict):
    """409 with reason AlreadyExists: the name is taken."""


class Gone(ApiError):  # noqa: N818
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):  # noqa: N818
    """422: the object breaks a rule; `causes` says which."""


class TooManyRequests(ApiError):  # noqa: N818
    """429: wait `retry_after` seconds."""


class ServerError(ApiError):
    """500 and above: the server failed."""


class Unreachable(ApiError):  # noqa: N818
    """No answer came: `__cause__` is the connection error. The request may have been carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}

_REASON_OF_STATUS: dict[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
}


class _Status(msgspec.Struct, frozen=True):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def from_response(status: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """Build the error for an HTTP answer of `status`; a body that is no Status becomes the message."""
    try:
        parsed = _decode_status(body)
    except msgspec.DecodeError:
        text = body[:MESSAGE_LIMIT].decode(errors="replace").strip()
        parsed = _Status(message=text or None)
    return _build(parsed, status, retry_after)


def from_status(status: bytes | msgspec.Raw) -> ApiError:
    """Build the error from a Status object, as an ERROR event of a watch carries it."""
    try:
        parsed = _decode_status(status)
    except msgspec.DecodeError:
        parsed = _Status(message="the server sent an error event that is no Status object")
    return _build(parsed, parsed.code or 500, None)


def _build(parsed: _Status, status: int, retry_after: float | None) -> ApiError:
    reason = parsed.reason or _REASON_OF_STATUS.get(status, "InternalError")
    message = parsed.message or f"the server answered {status} without a message"
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    if retry_after is None and parsed.details:
        seconds = parsed.details.get("retryAfterSeconds")
        retry_after = float(seconds) if isinstance(seconds, int | float) else None
    return kind(status, reason, message, parsed.details, retry_after=retry_after)
