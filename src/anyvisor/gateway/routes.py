"""What an API server has to know to send requests here: group versions, discovery, handlers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from anyvisor.gateway.call import GROUP, VERSIONS
from anyvisor.gateway.decide import VERBS
from anyvisor.gateway.service import Gateway, Reply
from anyvisor.kube.transport import Request

OPEN: Final = ("version", "guestfs", "healthz")
"""Calls on the group that need no permission."""


@dataclass(frozen=True, slots=True)
class Route:
    """One group version; `resources` are the names that discovery lists, all of them in namespaces."""

    group: str
    version: str
    resources: tuple[str, ...]
    handle: Callable[[Request], Awaitable[Reply]]
    """Answers a request whose caller is authorized."""
    stream: Callable[[web.Request], Awaitable[web.StreamResponse]]
    """Answers a request for an upgrade, likewise."""


def resources() -> tuple[str, ...]:
    """Return the names that discovery lists."""
    return tuple(f"{plural}/{verb}".lstrip("/") for (plural, verb), how in VERBS.items() if how.listed)


def routes(gateway: Gateway) -> tuple[Route, ...]:
    """Return the group versions that `gateway` answers; the first is preferred."""
    return tuple(Route(GROUP, version, resources(), gateway.handle, gateway.stream) for version in VERSIONS)
