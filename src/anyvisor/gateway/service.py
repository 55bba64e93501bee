"""Carries out what `decide` says: reads the world, writes, asks the node agent, splices streams."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from anyvisor.admission.config import ClusterConfig
from anyvisor.api.meta import Json, annotations, object_at, status_json, text_at, uid
from anyvisor.gateway import cluster, moves
from anyvisor.gateway.agents import (
    MESSAGE_HEADER,
    MESSAGE_HEADER_LIMIT,
    AgentError,
    Agents,
    StreamRefused,
    machine_path,
)
from anyvisor.gateway.answers import (
    JSON,
    VM,
    VMI,
    Decision,
    PortForward,
    Refused,
    Screenshot,
    Stream,
    Write,
    bad_request,
    conflict,
    failure,
    internal,
    message_of,
    not_found,
    text,
)
from anyvisor.gateway.call import Call, options, parse_call
from anyvisor.gateway.decide import decide, verb_of
from anyvisor.gateway.picture import PictureError, take_picture
from anyvisor.gateway.relay import relay, unreachable
from anyvisor.gateway.review import Offered, parse_review, review
from anyvisor.gateway.splice import End, WebsocketEnd, splice, upgrade
from anyvisor.gateway.world import Listing, Need, World
from anyvisor.kube import errors
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.informer import Informer
from anyvisor.kube.resources import (
    CLASSES,
    CLUSTER_INSTANCETYPES,
    CLUSTER_PREFERENCES,
    DRIVERS,
    HYPERVISOR_NODES,
    INSTANCETYPES,
    KUBEVIRTS,
    NODES,
    PODS,
    PREFERENCES,
    PVCS,
    PVS,
    VMIS,
    VMS,
    Resource,
)
from anyvisor.kube.transport import Request
from anyvisor.planning.facts import node_facts
from anyvisor.planning.moves import VolumeFacts

log = logging.getLogger(__name__)


START_TIMEOUT: Final = 10.0
"""Seconds that a call waits for the gateway's own caches after a start."""

_INSTANCETYPES: Final = (INSTANCETYPES, CLUSTER_INSTANCETYPES, PREFERENCES, CLUSTER_PREFERENCES)
_NEEDED: Final[Mapping[str, Resource]] = {each.plural: each for each in (NODES, PODS, PVCS, *_INSTANCETYPES)}
_KINDS: Final = {VMS.plural: VM, VMIS.plural: VMI}
_TEST_FAILED: Final = "the server rejected our request due to an error in our request"
"""What a JSON patch whose test fails says; clients know the sentence and try again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


class Gateway:
    """One gateway; any number may run. Use as `async with Gateway(client, agents):`."""

    def __init__(self, client: Client, agents: Agents) -> None:
        self._client = client
        self._agents = agents
        self._configurations = Informer(client, KUBEVIRTS)
        self._nodes = Informer(client, HYPERVISOR_NODES)
        self._classes = Informer(client, CLASSES)
        self._drivers = Informer(client, DRIVERS)
        self._planning = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._config = ClusterConfig.of()
        self._config_version = ""

    async def __aenter__(self) -> Self:
        for cache in self._caches():
            await self._stack.enter_async_context(cache)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def handle(self, request: Request) -> Reply:
        """Answer a request that asks for no upgrade."""
        try:
            call = parse_call(request.method, request.path, request.query, request.body)
            if not call.namespace:
                return _reply(await self._of_cluster(call))
            return await self._carry_out(call)
        except Refused as refused:
            return _reply(refused.decision)

    async def review(self, request: Request) -> Reply:
        """Answer a MachineReview that is created in a namespace."""
        try:
            call = parse_review(request.method, request.path, request.body)
            await self._ready()
            body = options(call, required=True)
            offered = Offered(
                [one.json() for one in self._classes.values()],
                [one.json() for one in self._drivers.values()],
                [node_facts(one.json()) for one in self._nodes.values()],
                self._configuration(),
                await self._volumes(call.namespace, moves.claims(body)),
            )
            # Planning for many classes takes long enough to hold up consoles: one at a time, beside the loop.
            async with self._planning:
                return _reply(await asyncio.to_thread(review, body, call.namespace, offered))
        except Refused as refused:
            return _reply(refused.decision)

    async def _volumes(self, namespace: str, claims: Sequence[str]) -> dict[str, VolumeFacts]:
        """Facts of the claims that exist; no volume is looked at that the caller's namespace has no claim on."""
        found: dict[str, VolumeFacts] = {}
        for name in claims:
            claim = await self._read(PVCS, namespace, name)
            if claim is not None:
                bound = text_at(claim, "spec", "volumeName")
                volume = await self._read(PVS, None, bound) if bound else None
                found[name] = moves.volume_facts(claim, volume)
        return found

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for a websocket: splice it, or refuse before the upgrade."""
        path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        try:
            call = parse_call(request.method, path, query, upgrade=True)
            world = await self._world(call)
            decision = decide(call, world)
            if decision.stream is None:
                return _stream_refused(decision)
            other = await self._connect(decision.stream, world)
        except Refused as refused:
            return _stream_refused(refused.decision)
        client = await upgrade(request)
        await splice(client, other)
        return client

    async def _of_cluster(self, call: Call) -> Decision:
        await self._ready()
        return await cluster.answer(call, self._client, self._configuration_version())

    async def _carry_out(self, call: Call) -> Reply:
        world = await self._world(call)
        decision = decide(call, world)
        await self._write(call, decision.writes)
        if decision.screenshot is not None:
            return await self._picture(decision.screenshot, world)
        if decision.agent is None:
            return _reply(decision)
        path = machine_path(uid(world.vmi or {}), decision.agent.verb)
        try:
            status, body, _ = await self._agents.ask(
                self._endpoint(world.vmi), decision.agent.method, path, decision.agent.body
            )
        except AgentError as error:
            return _reply(unreachable(decision, str(error)))
        return _reply(relay(decision, status, body, call.name))

    async def _picture(self, wanted: Screenshot, world: World) -> Reply:
        """Take a frame as one more viewer, who sends nobody away."""
        try:
            display = await self._connect(Stream("vnc", {"shared": "true"}), world)
            picture = await take_picture(display, move_cursor=wanted.move_cursor)
        except Refused as refused:
            raise Refused(text(500, message_of(refused.decision))) from refused
        except PictureError as error:
            raise Refused(text(500, str(error))) from error
        return Reply(200, {"content-type": "image/png"}, picture)

    async def _world(self, call: Call) -> World:
        await self._ready()
        verb = verb_of(call)
        vm = await self._read(VMS, call.namespace, call.name) if verb.vm else None
        vmi = await self._read(VMIS, call.namespace, call.name) if verb.vmi else None
        world = World(vm, vmi, bool(self._endpoint(vmi)), self._configuration())
        needs = verb.needs(call, world)
        lists = verb.listings(call, world)
        if not needs and not lists:
            return world
        return replace(world, others=await self._others(needs), listed=await self._listed(call.namespace, lists))

    async def _others(self, needs: Sequence[Need]) -> dict[Need, Json]:
        found: dict[Need, Json] = {}
        for need in needs:
            plural, namespace, name = need
            obj = await self._read(_NEEDED[plural], namespace, name)
            if obj is not None:
                found[need] = obj
        return found

    async def _listed(self, namespace: str, lists: Sequence[Listing]) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = {}
        for wanted in lists:
            pages = self._client.list_pages(_NEEDED[wanted.plural], namespace, labels=wanted.labels)
            try:
                found[wanted.plural] = [one.json() async for page in pages for one in page.items]
            except errors.ApiError as error:
                raise internal(f"the {wanted.plural} could not be listed: {error}") from error
        return found

    async def _read(self, resource: Resource, namespace: str | None, name: str) -> Json | None:
        try:
            return await self._client.get(resource, name, namespace)
        except errors.NotFound:
            return None
        except (errors.ApiError, ValueError) as error:
            raise internal(f"{resource.kind} {name!r} could not be read: {error}") from error

    async def _write(self, call: Call, writes: Sequence[Write]) -> None:
        done: list[Write] = []
        for write in writes:
            try:
                await self._send(write)
            except errors.ApiError as error:
                await self._take_back(done)
                raise _refused(call, write, error) from error
            done.append(write)

    async def _send(self, write: Write) -> None:
        if write.name is None:
            assert isinstance(write.body, dict)
            await self._client.create(write.resource, write.body, write.namespace, dry_run=write.dry_run)
            return
        await self._client.patch(
            write.resource,
            write.name,
            write.namespace,
            write.body,
            PatchType.JSON,
            subresource=write.subresource,
            dry_run=write.dry_run,
        )

    async def _take_back(self, done: Sequence[Write]) -> None:
        for write in done:
            if write.undo is None or write.dry_run:
                continue
            try:
                await self._send(replace(write, body=write.undo))
            except errors.ApiError as error:
                log.warning("%s %s: not taken back: %s", write.resource.kind, write.name, error)

    async def _connect(self, wanted: Stream | PortForward, world: World) -> End:
        query = _query(wanted)
        kind = wanted.kind if isinstance(wanted, Stream) else "portforward"
        path = machine_path(uid(world.vmi or {}), f"streams/{kind}") + (f"?{query}" if query else "")
        endpoint = self._endpoint(world.vmi)
        try:
            if not endpoint:
                raise StreamRefused(404)
            return WebsocketEnd(await self._agents.open(endpoint, path))
        except StreamRefused as refused:
            raise _stream_refusal(world, kind, refused) from refused
        except AgentError as error:
            raise internal(str(error)) from error

    def _endpoint(self, vmi: Json | None) -> str:
        """The endpoint of the agent on the VMI's node, or an empty string."""
        node = self._nodes.get(None, text_at(vmi or {}, "status", "nodeName"))
        return text_at(node.json(), "status", "agent", "endpoint") if node is not None else ""

    def _configuration(self) -> ClusterConfig:
        version = self._configuration_version()
        if version != self._config_version:
            found = next(iter(self._configurations.values()), None)
            obj = found.json() if found is not None else {}
            self._config = ClusterConfig.of(object_at(obj, "spec", "configuration"), annotations=annotations(obj))
            self._config_version = version
        return self._config

    def _configuration_version(self) -> str:
        found = next(iter(self._configurations.values()), None)
        return found.meta.resource_version if found is not None else ""

    def _caches(self) -> tuple[Informer, ...]:
        return (self._configurations, self._nodes, self._classes, self._drivers)

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT):
                for cache in self._caches():
                    await cache.synced.wait()
        except TimeoutError as error:
            cause = next((cache.last_error for cache in self._caches() if cache.last_error), None)
            why = f"the gateway has not read its configuration yet: {cause or 'no answer'}; try again"
            raise Refused(failure(503, "ServiceUnavailable", why)) from error


def _query(wanted: Stream | PortForward) -> str:
    if isinstance(wanted, Stream):
        return urlencode(wanted.query)
    return urlencode({"port": wanted.port, "protocol": wanted.protocol})


def _stream_refusal(world: World, kind: str, refused: StreamRefused) -> Refused:
    said = str(refused)
    match refused.status:
        case 404:
            return bad_request(said or f"the node agent does not have the {kind} of this VMI yet; try again")
        case 409:
            return conflict(VMI, text_at(world.vmi or {}, "metadata", "name"), said or f"the {kind} is in use")
        case 429 | 503:
            return Refused(failure(503, "ServiceUnavailable", said or f"the {kind} is in use"))
        case 501:
            return bad_request(said or f"the hypervisor of this VMI offers no {kind}")
        case _:
            return internal(said or f"the node agent refused the {kind} with {refused.status}")


def _refused(call: Call, write: Write, error: errors.ApiError) -> Refused:
    """Answer with the API server's own refusal; a lost race is a conflict, where clients do not know better."""
    kind = _KINDS.get(write.resource.plural, write.resource.kind.lower())
    if isinstance(error, errors.NotFound) and write.name is not None:
        return not_found(kind, write.name)
    lost = isinstance(error, errors.Conflict) or (isinstance(error, errors.Invalid) and not error.causes)
    if lost and call.verb not in ("addvolume", "removevolume", "memorydump", "removememorydump"):
        return conflict(kind, write.name or call.name, "the object was changed meanwhile; try again")
    if lost:
        return Refused(failure(422, "Invalid", _TEST_FAILED))
    if error.status < 400 or error.status >= 500:
        return internal(error.message)
    body = status_json(code=error.status, reason=error.reason, message=error.message)
    return Refused(Decision(error.status, {**body, "details": error.details}, JSON))


def _reply(decision: Decision) -> Reply:
    if decision.body is None:
        return Reply(decision.status)
    if isinstance(decision.body, str):
        return Reply(decision.status, {"content-type": "text/plain; charset=utf-8"}, decision.body.encode())
    return Reply(decision.status, {"content-type": JSON}, msgspec.json.encode(decision.body))


def _stream_refused(decision: Decision) -> web.Response:
    """Answer in the place of an upgrade; the header is for clients that do not get to read the body."""
    response = _response(_reply(decision))
    line = " ".join(message_of(decision).encode("ascii", "replace").decode().split())
    response.headers[MESSAGE_HEADER] = line[:MESSAGE_HEADER_LIMIT]
    return response


def _response(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
