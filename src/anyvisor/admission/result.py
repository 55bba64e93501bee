"""What goes into an admission decision and what comes out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anyvisor.admission.values import Obj

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"

UNPROCESSABLE = 422
BAD_REQUEST = 400
FORBIDDEN_CODE = 403
TOO_MANY_REQUESTS = 429

_MESSAGE_MAX = 2048
_TOLD = 10
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a refusal, as in Kubernetes' StatusCause.

    `field` and `type` are the wire contract that clients of this API know; where that field is not the path at which
    a person finds the value, `path` is.
    """

    type: str
    field: str
    message: str
    path: str = ""

    @property
    def location(self) -> str:
        """The path in the object at which to look."""
        return self.path or self.field


def bounded(message: str) -> str:
    """The message without the middle of what a user made too long."""
    if len(message) <= _MESSAGE_MAX:
        return message
    return f"{message[: _MESSAGE_MAX - 300]} ... {message[-200:]}"


class Causes(list[Cause]):
    """The reasons collected so far, bounded in number and length, however much a user wrote."""

    def add(self, type_: str, at: str, message: str, path: str = "") -> None:
        """Add a reason of any type."""
        if len(self) < _MOST:
            self.append(Cause(type_, at, bounded(message), path))

    def invalid(self, at: str, message: str, path: str = "") -> None:
        """Add: the value is not one that may stand there."""
        self.add(INVALID, at, message, path)

    def required(self, at: str, message: str, path: str = "") -> None:
        """Add: a value is missing."""
        self.add(REQUIRED, at, message, path)

    def unsupported(self, at: str, message: str, path: str = "") -> None:
        """Add: the value or change is known but not possible here."""
        self.add(NOT_SUPPORTED, at, message, path)

    def duplicate(self, at: str, message: str, path: str = "") -> None:
        """Add: the value repeats one that must be unique."""
        self.add(DUPLICATE, at, message, path)


@dataclass(frozen=True, slots=True)
class Default:
    """A value that nobody wrote: where it was filled in and what gave it."""

    path: str
    source: str


@dataclass(frozen=True, slots=True)
class Effect:
    """A JSON patch that the server applies to another object as part of the decision."""

    kind: str
    namespace: str
    name: str
    patch: Sequence[Mapping[str, Any]]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. `extra` are the identity's extra attributes (for a node agent: its node)."""

    name: str = ""
    groups: Sequence[str] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


class Related(Protocol):
    """Looks up objects that a rule depends on."""

    def get(self, kind: str, namespace: str, name: str) -> Obj | None:
        """One object, or None when there is none."""
        ...

    def list(self, kind: str, namespace: str = "") -> Sequence[Obj]:
        """All objects of a kind, of one namespace unless that is empty."""
        ...


class Nothing:
    """A world without other objects."""

    def get(self, kind: str, namespace: str, name: str) -> Obj | None:
        """Always None."""
        del kind, namespace, name
        return None

    def list(self, kind: str, namespace: str = "") -> Sequence[Obj]:
        """Always empty."""
        del kind, namespace
        return ()


NOTHING = Nothing()
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One request. `object` is what the user sent; it is never changed.

    `new_uuid` gives a new random UUID as text at each call; `now` is the time as RFC 3339 text. Both are given by
    the caller so that decisions stay reproducible.
    """

    operation: str
    kind: str
    object: Obj
    new_uuid: Callable[[], str]
    now: str
    namespace: str = ""
    name: str = ""
    old_object: Obj | None = None
    user: User = User()
    dry_run: bool = False
    subresource: str = ""
    related: Related = NOTHING


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The decision: `object` is the object after defaults when allowed (or as far as defaults came)."""

    allowed: bool
    object: Obj
    causes: Sequence[Cause] = ()
    warnings: Sequence[str] = ()
    defaults: Sequence[Default] = ()
    effects: Sequence[Effect] = ()
    code: int = 200
    message: str = ""
    reviewed: bool = False
    """Whether the rules allow `object` as it is here, and would say so again."""


def refuse(obj: Obj, causes: Sequence[Cause], code: int = UNPROCESSABLE) -> AdmissionResult:
    """A refusal for the given reasons; its message joins the first ones."""
    told = [cause.message for cause in causes[:_TOLD]]
    if len(causes) > _TOLD:
        told.append(f"and {len(causes) - _TOLD} more")
    return AdmissionResult(allowed=False, object=obj, causes=tuple(causes), code=code, message="; ".join(told))


def refuse_with(obj: Obj, message: str, code: int = BAD_REQUEST) -> AdmissionResult:
    """A refusal that no single field causes."""
    return AdmissionResult(allowed=False, object=obj, code=code, message=message)
