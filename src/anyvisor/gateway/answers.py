"""What a call leads to: an answer, writes, a question to the node agent, or a stream; and refusals."""

from dataclasses import dataclass, field
from typing import Final

from anyvisor.api.meta import Json, StatusCause, StatusDetails, status_json
from anyvisor.kube.resources import Resource

GROUP: Final = "kubevirt.io"
"""The group that errors name: that of the object, not that of the subresource."""
VM: Final = "virtualmachine"
VMI: Final = "virtualmachineinstance"

JSON: Final = "application/json"
TEXT: Final = ""
"""Plain answers carry no content type, as clients of the reference expect them."""


@dataclass(frozen=True, slots=True)
class Write:
    """One request to the API server: a JSON patch of an object, or the creation of `body`."""

    resource: Resource
    namespace: str
    body: Json | list[Json]
    name: str | None = None
    """None creates."""
    subresource: str | None = None
    dry_run: bool = False
    undo: list[Json] | None = None
    """The JSON patch that takes it back if a later write of the same call fails."""


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A question to the agent of the node where the machine runs."""

    method: str
    verb: str
    body: Json | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of bytes of the machine that the agent opens; `query` goes along."""

    kind: str
    query: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class PortForward:
    """A connection to a port of the guest."""

    port: int
    protocol: str
    """"tcp" or "udp"."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A picture of the machine's display."""

    move_cursor: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about a call: the writes in order, then the agent, then the answer (or the stream)."""

    status: int
    body: Json | str | None = None
    content_type: str = TEXT
    writes: tuple[Write, ...] = ()
    agent: AgentCall | None = None
    stream: Stream | PortForward | None = None
    screenshot: Screenshot | None = None


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """The call is refused; `decision` is the answer, with the writes that were due before the refusal."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(message_of(decision))
        self.decision = decision


def message_of(decision: Decision) -> str:
    """Return the sentence of an answer that refuses."""
    body = decision.body
    return str(body.get("message", "")) if isinstance(body, dict) else body or ""


def accepted(*writes: Write) -> Decision:
    """Answer 202 once the writes are done."""
    return Decision(202, writes=writes)


def entity(body: Json, status: int = 200) -> Decision:
    """Answer with an object."""
    return Decision(status, body, JSON)


def text(status: int, message: str) -> Decision:
    """Answer with a sentence and no Status object."""
    return Decision(status, message, TEXT)


def failure(
    status: int, reason: str, message: str, details: StatusDetails | None = None, writes: tuple[Write, ...] = ()
) -> Decision:
    """Answer with a Status object."""
    return Decision(status, status_json(code=status, reason=reason, message=message, details=details), JSON, writes)


def not_found(kind: str, name: str, group: str = GROUP) -> Refused:
    """Refuse with 404: the object does not exist."""
    details = StatusDetails(group=group, kind=kind, name=name)
    return Refused(failure(404, "NotFound", f'{_qualified(kind, group)} "{name}" not found', details))


def conflict(kind: str, name: str, why: str, writes: tuple[Write, ...] = ()) -> Refused:
    """Refuse with 409: the object is not in the state that the call needs."""
    message = f'Operation cannot be fulfilled on {_qualified(kind, GROUP)} "{name}": {why}'
    details = StatusDetails(group=GROUP, kind=kind, name=name)
    return Refused(failure(409, "Conflict", message, details, writes))


def forbidden(kind: str, name: str, why: str) -> Refused:
    """Refuse with 403: not on this object."""
    message = f'{_qualified(kind, GROUP)} "{name}" is forbidden: {why}'
    details = StatusDetails(group=GROUP, kind=kind, name=name)
    return Refused(failure(403, "Forbidden", message, details))


def bad_request(why: str, causes: tuple[StatusCause, ...] = ()) -> Refused:
    """Refuse with 400: the call itself is wrong, or comes too early to be tried (clients try again)."""
    details = StatusDetails(causes=causes) if causes else None
    return Refused(failure(400, "BadRequest", why, details))


def internal(why: str) -> Refused:
    """Refuse with 500: something on our side failed."""
    details = StatusDetails(causes=(StatusCause(message=why),))
    return Refused(failure(500, "InternalError", f"Internal error occurred: {why}", details))


def _qualified(kind: str, group: str) -> str:
    return f"{kind}.{group}" if group else kind
