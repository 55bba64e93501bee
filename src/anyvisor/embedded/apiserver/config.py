"""What a server is made of: its database, the parts that others plug in, and its limits."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from anyvisor.embedded.apiserver.admission import AdmissionPlugin
from anyvisor.embedded.apiserver.identity import ApiRequest, ApiResponse, Identity

Json = dict[str, Any]

PodLog = Callable[[Json, Mapping[str, str]], Awaitable[AsyncIterator[bytes]]]
"""Answers `kubectl logs`: gets the Pod and the query parameters, returns the chunks of the log."""

Evict = Callable[[Json, Json], Awaitable[str]]
"""Asked before a pod is evicted: gets the Pod and the Eviction; a sentence refuses it with 429."""


NodeProxy = Callable[[str, str, str], Awaitable[ApiResponse]]
"""Answers `GET nodes/NODE/proxy/PATH`: gets the node's name, the path and the query."""

Exporter = Callable[[], Awaitable[bytes]]
"""More metrics for `/metrics`, in Prometheus' text form."""


class Pages(Protocol):
    """Pages for browsers, beside the API."""

    def token(self, request: web.BaseRequest) -> str:
        """The bearer token that a browser's request carries otherwise than in its header; empty = none."""
        ...

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request below `PAGES`, which needs no authentication."""
        ...


PAGES = "/ui/"


@dataclass(frozen=True, slots=True)
class AggregatedResource:
    """What discovery lists of an aggregated group; a name with a slash is a subresource."""

    name: str
    kind: str = ""
    namespaced: bool = True
    verbs: tuple[str, ...] = ()
    group: str = ""
    version: str = ""
    singular: str = ""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """A group version that somebody else answers, after authorization.

    `handle` gets plain requests; `stream` gets those that ask for an upgrade (websockets).
    """

    group: str
    version: str
    resources: Sequence[AggregatedResource]
    handle: Callable[[ApiRequest], Awaitable[ApiResponse]]
    stream: Callable[[web.Request, Identity], Awaitable[web.StreamResponse]] | None = None


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The client certificate that aggregated backends trust to name users."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of one server."""

    database: Path
    """The SQLite file; its folder is created with mode 0700."""
    admission: Sequence[AdmissionPlugin] = ()
    aggregated: Sequence[Aggregated] = ()
    crds: Sequence[Json] = ()
    """CustomResourceDefinitions that are installed, or brought up to date, at start."""
    objects: Sequence[Json] = ()
    """Objects of any kind that are created at start where they are missing (roles, classes)."""
    namespace_objects: Sequence[Json] = ()
    """Objects without a namespace that every namespace gets, and gets back when they are deleted."""
    static_tokens: Mapping[str, Identity] = field(default_factory=dict[str, Identity])
    front_proxy: FrontProxy | None = None
    pod_log: PodLog | None = None
    evict: Evict | None = None
    service_network: IPv4Network = field(default_factory=lambda: IPv4Network("10.96.0.0/22"))
    """Where Services get their cluster IPs from."""
    node_proxy: NodeProxy | None = None
    exporters: Sequence[Exporter] = ()
    pages: Callable[[Callable[[str], bool]], Pages] | None = None
    """Makes the pages; gets what tells whether a token is valid."""
    git_version: str = "v1.37.0+anyvisor"
    audit: Callable[[Json], None] | None = None
    """Gets one metadata-level audit event for each request, when given."""
    max_requests_per_user: int = 1024
    """Requests, watches apart, that one user may have in progress."""
    max_running: int = 32
    """Requests, watches apart, that are carried out at once; more wait, and users take turns."""
    max_watches: int = 10_000
    """Of all users; one may have half of them."""
    request_seconds: float = 60.0
