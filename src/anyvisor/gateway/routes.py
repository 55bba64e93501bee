"""What an API server has to know to send requests here: group versions, discovery, handlers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from anyvisor.gateway import review
from anyvisor.gateway.call import GROUP, VERSIONS
from anyvisor.gateway.decide import VERBS
from anyvisor.gateway.service import Gateway, Reply
from anyvisor.kube.transport import Request


@dataclass(frozen=True, slots=True)
class Listed:
    """A name that discovery lists; subresources have neither kind nor verbs, as the reference lists them."""

    name: str
    kind: str = ""
    verbs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """One group version; all its resources are namespaced."""

    group: str
    version: str
    resources: tuple[Listed, ...]
    handle: Callable[[Request], Awaitable[Reply]]
    """Answers a request whose caller is authorized."""
    stream: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    """Answers a request for an upgrade, likewise."""


def resources() -> tuple[str, ...]:
    """Return the subresources that discovery lists."""
    return tuple(f"{plural}/{verb}".lstrip("/") for (plural, verb), how in VERBS.items() if how.listed)


def routes(gateway: Callable[[], Gateway]) -> tuple[Route, ...]:
    """Return the group versions that the gateway answers, the preferred version of a group first.

    `gateway` is asked at each request, as a server knows its routes before its gateway runs; it may raise.
    """

    async def handle(request: Request) -> Reply:
        return await gateway().handle(request)

    async def stream(request: web.Request) -> web.StreamResponse:
        return await gateway().stream(request)

    async def create_review(request: Request) -> Reply:
        return await gateway().review(request)

    listed = tuple(Listed(name) for name in resources())
    subresources = (Route(GROUP, version, listed, handle, stream) for version in VERSIONS)
    machine = Listed(review.PLURAL, review.KIND, ("create",))
    return (*subresources, Route(review.GROUP, review.VERSION, (machine,), create_review))
