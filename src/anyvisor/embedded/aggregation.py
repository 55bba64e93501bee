"""What the API server hands on: virtual machine subresources to the gateway, pod logs to the node's agent."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from anyvisor.api.meta import text_at, uid
from anyvisor.embedded.apiserver.config import Aggregated, AggregatedResource
from anyvisor.embedded.apiserver.identity import ApiRequest, ApiResponse, Identity
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.world import ServerWorld
from anyvisor.gateway.agents import AgentError, Agents
from anyvisor.gateway.routes import Route, routes
from anyvisor.gateway.service import Gateway

Json = dict[str, Any]
_LOG_PARAMETERS = (
    *("container", "follow", "tailLines", "limitBytes"),
    *("sinceSeconds", "sinceTime", "timestamps", "previous"),
)


class GatewayRoutes:
    """Hands requests of the aggregated groups to the gateway, which is set once the server that it uses exists."""

    def __init__(self) -> None:
        self.gateway: Gateway | None = None

    def all(self) -> Sequence[Aggregated]:
        """The group versions for the server's configuration."""
        return [_aggregated(route) for route in routes(self._ready)]

    def _ready(self) -> Gateway:
        if self.gateway is None:
            raise StatusError(503, "ServiceUnavailable", "the gateway is starting; try again in a second")
        return self.gateway


def _aggregated(route: Route) -> Aggregated:
    async def handle(request: ApiRequest) -> ApiResponse:
        reply = await route.handle(request.request)
        return ApiResponse(reply.status, dict(reply.headers), reply.body)

    async def stream(request: web.Request, _identity: Identity) -> web.StreamResponse:
        assert route.stream is not None
        return await route.stream(request)

    listed = [AggregatedResource(entry.name, entry.kind, verbs=entry.verbs) for entry in route.resources]
    return Aggregated(route.group, route.version, listed, handle, stream if route.stream is not None else None)


class PodLogs:
    """Answers `kubectl logs` by the agent of the pod's node."""

    def __init__(self, world: ServerWorld, agents: Agents) -> None:
        self._world = world
        self._agents = agents

    async def read(self, pod: Json, parameters: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The log's chunks; the first is awaited here, so that a refusal still is a Status."""
        node = text_at(pod, "spec", "nodeName")
        if not node:
            raise StatusError(400, "BadRequest", f"pod {text_at(pod, 'metadata', 'name')} has no node yet")
        endpoint = agent_endpoint(self._world, node)
        wanted = {name: parameters[name] for name in _LOG_PARAMETERS if name in parameters}
        chunks = self._agents.follow(endpoint, f"/v1/pods/{quote(uid(pod))}/log?{urlencode(wanted)}")
        try:
            first = await anext(chunks, b"")
        except AgentError as error:
            raise StatusError(500, "InternalError", str(error)) from error
        return _joined(first, chunks)


class NodeProxy:
    """Answers what may be asked of a node's agent through its Node: metrics, and what its machines use."""

    PATHS: Mapping[str, str] = {"metrics": "/metrics", "stats": "/v1/stats", "healthz": "/healthz"}

    def __init__(self, world: ServerWorld, agents: Agents) -> None:
        self._world = world
        self._agents = agents

    async def get(self, node: str, path: str, _query: str) -> ApiResponse:
        """One answer of the agent, as it is; raises a Status."""
        if path not in self.PATHS:
            raise StatusError(404, "NotFound", f"a node answers {', '.join(sorted(self.PATHS))} and nothing else")
        try:
            status, body, kind = await self._agents.ask(agent_endpoint(self._world, node), "GET", self.PATHS[path])
        except AgentError as error:
            raise StatusError(503, "ServiceUnavailable", str(error)) from error
        return ApiResponse(status, {"content-type": kind}, body)


def agent_endpoint(world: ServerWorld, node: str) -> str:
    """Where a node's agent answers; raises a Status when there is none."""
    endpoint = text_at(world.get("HypervisorNode", "", node) or {}, "status", "agent", "endpoint")
    if not endpoint:
        raise StatusError(503, "ServiceUnavailable", f"node {node} has no agent now; try again when it is back")
    return endpoint


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk
