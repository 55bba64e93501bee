"""API groups that outside backends answer (`apiregistration.k8s.io`): the request goes on with the user's name.

The backend proves itself by the APIService's bundle, this server by its front-proxy certificate; the identity
travels in the X-Remote headers, as a cluster's aggregation layer sends it.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.codec import decode_json
from anyvisor.embedded.apiserver.config import AggregatedResource, FrontProxy
from anyvisor.embedded.apiserver.endpoints import UnreachableError, resolve, tls_context
from anyvisor.embedded.apiserver.entries import Event
from anyvisor.embedded.apiserver.identity import ApiRequest, ApiResponse, Identity
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import StatusError, unavailable
from anyvisor.embedded.apiserver.values import as_list, as_object, lookup, objects_at
from anyvisor.kube.connector import Connector

log = logging.getLogger(__name__)
Json = dict[str, Any]

STORE = "apiregistration.k8s.io/apiservices"
PROBE_SECONDS = 5.0
CHUNK = 64 << 10
_HOP_HEADERS = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length",
     "authorization", "accept-encoding", "content-encoding"}
)  # fmt: skip


class Aggregator:
    """Sends requests on to the backends of APIServices."""

    def __init__(self, state: State, proxy: FrontProxy | None) -> None:
        self._state = state
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None
        self._resources: dict[str, tuple[AggregatedResource, ...]] = {}
        self._changed = asyncio.Event()
        state.listen(self._note)

    def _note(self, resource: str, event: Event) -> None:
        if resource in (STORE, "services", "endpoints", "discovery.k8s.io/endpointslices"):
            if event.deleted and resource == STORE:
                self._resources.pop(event.entry.key[1], None)
            self._changed.set()

    async def close(self) -> None:
        """Close the connections to backends."""
        if self._session is not None:
            await self._session.close()

    def service(self, group: str, version: str) -> Json | None:
        """Return the APIService of a group version that an outside backend answers."""
        entry = self._state.collection(STORE).entries.get(("", f"{version}.{group}"))
        if entry is None:
            return None
        found = entry.object()
        return found if lookup(found, ("spec", "service")) else None

    def served(self) -> list[tuple[str, str, tuple[AggregatedResource, ...]]]:
        """Return the groups and versions of the backends that answer, with what they serve."""
        found: list[tuple[str, str, tuple[AggregatedResource, ...]]] = []
        for entry in self._state.collection(STORE).range(None):
            resources = self._resources.get(entry.key[1])
            spec = object_at(entry.object(), "spec")
            if resources is not None and spec.get("service"):
                found.append((str(spec.get("group")), str(spec.get("version")), resources))
        return found

    # -- requests -------------------------------------------------------------------------------------------

    async def forward(self, service: Json, request: ApiRequest) -> ApiResponse:
        """Send a request on and return the answer as it comes. Raises a 503 Status."""
        asked = request.request
        headers = {name: value for name, value in asked.headers.items() if _may_pass(name)}
        query = f"?{asked.query}" if asked.query else ""
        try:
            response = await self._open(
                service, asked.method, asked.path + query, headers, request.identity, asked.body
            )
        except (UnreachableError, aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(service, error) from error
        kept = {name.lower(): value for name, value in response.headers.items() if name.lower() not in _HOP_HEADERS}
        return ApiResponse(response.status, kept, stream=_Body(response))

    async def _open(
        self, service: Json, method: str, path: str, headers: Mapping[str, str], identity: Identity, body: bytes
    ) -> aiohttp.ClientResponse:
        url, name, tls = self._address(service)
        sent = CIMultiDict(headers)
        for key, value in identity_headers(identity):
            sent.add(key, value)
        return await self._client().request(
            method,
            url + path,
            data=body or None,
            headers=sent,
            ssl=tls,
            server_hostname=name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=PROBE_SECONDS),
        )

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=Connector(), auto_decompress=True)
        return self._session

    def _address(self, service: Json) -> tuple[str, str, ssl.SSLContext | bool]:
        spec = object_at(service, "spec")
        reference = object_at(spec, "service")
        port = int(reference.get("port") or 443)
        endpoint = resolve(self._state, str(reference.get("namespace")), str(reference.get("name")), port)
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        pair = (str(self._proxy.certificate), str(self._proxy.key)) if self._proxy is not None else ("", "")
        if spec.get("insecureSkipTLSVerify"):
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            if self._proxy is not None:
                context.load_cert_chain(*pair)
            return f"https://{host}:{endpoint.port}", endpoint.server_name, context
        return (
            f"https://{host}:{endpoint.port}",
            endpoint.server_name,
            tls_context(str(spec.get("caBundle") or ""), *pair),
        )

    async def upgrade(self, service: Json, request: web.Request, identity: Identity) -> web.StreamResponse:
        """Join a client's websocket with the backend's. Raises a 503 Status."""
        url, name, tls = self._address(service)
        headers = CIMultiDict(
            {
                key: value
                for key, value in request.headers.items()
                if _may_pass(key.lower()) and "websocket" not in key.lower()
            }
        )
        for key, value in identity_headers(identity):
            headers.add(key, value)
        protocols = [item.strip() for item in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if item]
        connect = self._client().ws_connect(
            url + request.rel_url.raw_path_qs, headers=headers, protocols=protocols, ssl=tls, server_hostname=name
        )
        try:
            backend = await connect
        except (UnreachableError, aiohttp.ClientError, TimeoutError) as error:
            raise _no_answer(service, error) from error
        async with backend:
            front = web.WebSocketResponse(protocols=[backend.protocol] if backend.protocol else [])
            await front.prepare(request)
            await _join(front, backend)
            return front

    # -- availability ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the Available condition and the discovery of every APIService up to date, until cancelled."""
        while True:
            self._changed.clear()
            for entry in list(self._state.collection(STORE).range(None)):
                service = entry.object()
                if lookup(service, ("spec", "service")):
                    await self._probe(entry.key[1], service)
            waiting = [name for name in self._names() if name not in self._resources]
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS if waiting else None):
                    await self._changed.wait()

    def _names(self) -> list[str]:
        return [
            entry.key[1]
            for entry in self._state.collection(STORE).range(None)
            if lookup(entry.object(), ("spec", "service"))
        ]

    async def _probe(self, name: str, service: Json) -> None:
        spec = object_at(service, "spec")
        path = f"/apis/{spec.get('group')}/{spec.get('version')}"
        identity = Identity("system:kube-aggregator", ("system:masters",))
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                response = await self._open(service, "GET", path, {"accept": "application/json"}, identity, b"")
                body = await response.read()
            if response.status != 200:
                raise UnreachableError(f"{path} answered {response.status}")
            self._resources[name] = _resources(as_object(decode_json(body)))
            await self._report(name, True, "Passed", "all checks passed")
        except (UnreachableError, aiohttp.ClientError, OSError, ValueError) as error:
            self._resources.pop(name, None)
            await self._report(name, False, "FailedDiscoveryCheck", f"failing or missing response: {error}")

    async def _report(self, name: str, available: bool, reason: str, message: str) -> None:
        collection = self._state.collection(STORE)
        entry = collection.latest(("", name))
        if entry is None:
            return
        service = entry.object()
        status = "True" if available else "False"
        for condition in objects_at(service, "status", "conditions"):
            if condition.get("type") == "Available" and condition.get("status") == status:
                return
        condition = {"type": "Available", "status": status, "reason": reason, "message": message}
        service["status"] = {"conditions": [condition]}
        with suppress(StatusError):
            await self._state.put(collection, service, entry)


class _Body:
    """The body of a backend's answer, released when it ends."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._chunks = response.content.iter_chunked(CHUNK)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except aiohttp.ClientError as error:
            log.warning("the backend of an aggregated API broke off: %s", error)
            raise StopAsyncIteration from error

    async def aclose(self) -> None:
        """Drop the rest of the answer."""
        self._response.close()


def _may_pass(name: str) -> bool:
    return name not in _HOP_HEADERS and not name.startswith(("x-remote-", "impersonate-"))


def identity_headers(identity: Identity) -> list[tuple[str, str]]:
    """Return the headers that tell a backend who asks."""
    headers = [("X-Remote-User", identity.user)]
    if identity.uid:
        headers.append(("X-Remote-Uid", identity.uid))
    headers += [("X-Remote-Group", group) for group in identity.groups]
    headers += [
        (f"X-Remote-Extra-{quote(name, safe='')}", value) for name, values in identity.extra.items() for value in values
    ]
    return headers


def _no_answer(service: Json, error: Exception) -> StatusError:
    name = lookup(service, ("metadata", "name"))
    return unavailable(f"the backend of the APIService {name} cannot be reached: {error or type(error).__name__}")


def _resources(listing: Json) -> tuple[AggregatedResource, ...]:
    return tuple(
        AggregatedResource(
            str(item.get("name")),
            str(item.get("kind", "")),
            bool(item.get("namespaced")),
            tuple(str(verb) for verb in as_list(item.get("verbs"))),
            str(item.get("group", "")),
            str(item.get("version", "")),
            str(item.get("singularName", "")),
        )
        for item in objects_at(listing, "resources")
    )


async def _join(front: web.WebSocketResponse, backend: aiohttp.ClientWebSocketResponse) -> None:
    async def pump(source: Any, target: Any) -> None:
        async for message in source:
            if message.type is aiohttp.WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await target.send_bytes(message.data)
        await target.close(code=source.close_code or 1000)

    with suppress(ConnectionError):
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(front, backend))
            group.create_task(pump(backend, front))
