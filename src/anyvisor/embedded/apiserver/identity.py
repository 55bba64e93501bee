"""Who asks, and the request as the handler sees it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from anyvisor.kube.transport import Request

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated user: what authorization, admission and audit see."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def with_authenticated(self) -> "Identity":
        """Return the identity with the group that every known user has."""
        if AUTHENTICATED in self.groups:
            return self
        return Identity(self.user, (*self.groups, AUTHENTICATED), self.uid, self.extra)


ANONYMOUS = Identity("system:anonymous", (UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request with its proven identity."""

    request: Request
    identity: Identity


@dataclass(slots=True)
class ApiResponse:
    """An answer: a whole body, or a stream of chunks (a watch, a log)."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None
