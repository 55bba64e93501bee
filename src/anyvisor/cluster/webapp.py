"""The gateway's HTTPS routes on a cluster: webhooks, the aggregated groups with their discovery, and probes."""

import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import web

from anyvisor.api.meta import Json, StatusDetails, status_json
from anyvisor.cluster.access import Attributes, Authorizer, Caller, Proxy, attributes
from anyvisor.cluster.metrics import GatewayMetrics
from anyvisor.cluster.world import ClusterWorld
from anyvisor.gateway import webhooks
from anyvisor.gateway.routes import Route
from anyvisor.gateway.webhooks import Answer, Components, ReviewError
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.errors import ApiError
from anyvisor.kube.resources import VMIS
from anyvisor.kube.transport import Request

log = logging.getLogger(__name__)

BODY_LIMIT: Final = 8 * 1024 * 1024
"""Bytes: an AdmissionReview holds the object twice."""
_REASONS: Final[Mapping[int, str]] = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable"}
_JSON: Final = "application/json"


@dataclass(slots=True)
class WebApp:
    """Everything that requests are answered from."""

    world: ClusterWorld
    client: Client
    routes: tuple[Route, ...]
    authorizer: Authorizer
    components: Components
    proxy: Callable[[], Proxy]
    """How the API server's proxy proves itself, as it is known now."""
    unready: Callable[[], list[str]]
    """What is missing before requests can be answered."""
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_post(webhooks.MUTATE, self._mutate)
        app.router.add_post(webhooks.VALIDATE, self._validate)
        app.router.add_get("/apis", self._groups)
        for group in {route.group for route in self.routes}:
            app.router.add_get(f"/apis/{group}", self._group)
        for route in self.routes:
            app.router.add_get(f"/apis/{route.group}/{route.version}", self._version(route))
            app.router.add_route("*", f"/apis/{route.group}/{route.version}/{{rest:.+}}", self._answer(route))
        return app

    # -- probes ---------------------------------------------------------------------------------------------

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _request: web.Request) -> web.Response:
        missing = self.unready()
        return web.Response(status=503 if missing else 200, text="\n".join(missing) or "ok")

    # -- webhooks -------------------------------------------------------------------------------------------

    async def _mutate(self, request: web.Request) -> web.Response:
        return await self._review(request, "mutate", webhooks.mutate)

    async def _validate(self, request: web.Request) -> web.Response:
        return await self._review(request, "validate", webhooks.validate)

    async def _review(
        self, request: web.Request, name: str, decide: Callable[[bytes, ClusterWorld, Components], Answer]
    ) -> web.Response:
        began = time.monotonic()
        missing = self.world.missing()
        if missing:
            raise web.HTTPServiceUnavailable(text=f"the gateway is starting: {'; '.join(missing)}\n")
        try:
            answer = decide(await request.read(), self.world, self.components)
        except ReviewError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        for effect in answer.effects:
            patch: list[Json] = [dict(step) for step in effect.patch]
            try:
                await self.client.patch(VMIS, effect.name, effect.namespace, patch, PatchType.JSON)
            except ApiError as error:
                log.warning("%s %s/%s: %s", effect.kind, effect.namespace, effect.name, error)
        self.metrics.admitted(name, time.monotonic() - began)
        return web.Response(body=answer.body, content_type=_JSON)

    # -- discovery ------------------------------------------------------------------------------------------

    async def _groups(self, _request: web.Request) -> web.Response:
        groups = [self._group_of(name) for name in sorted({route.group for route in self.routes})]
        return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    async def _group(self, request: web.Request) -> web.Response:
        return _json({"kind": "APIGroup", "apiVersion": "v1", **self._group_of(request.path.rpartition("/")[2])})

    def _group_of(self, name: str) -> Json:
        versions = [
            {"groupVersion": f"{name}/{route.version}", "version": route.version}
            for route in self.routes
            if route.group == name
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}

    def _version(self, route: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        resources = [
            {"name": one.name, "singularName": "", "namespaced": True, "kind": one.kind, "verbs": list(one.verbs)}
            for one in route.resources
        ]
        listed: Json = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{route.group}/{route.version}",
            "resources": resources,
        }

        async def answer(_request: web.Request) -> web.Response:
            return _json(listed)

        return answer

    # -- the aggregated groups ------------------------------------------------------------------------------

    def _answer(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            answered = await self._asked(route, request)
            self.metrics.answered(route.group, answered.status)
            return answered

        return answer

    async def _asked(self, route: Route, request: web.Request) -> web.StreamResponse:
        caller = self._caller(request)
        if caller is None:
            return _status(401, "only the API server's proxy may ask, and it names the user: call the API server")
        wanted = attributes(request.method, request.rel_url.raw_path)
        if wanted is None:
            return _status(404, "the server could not find the requested resource")
        try:
            refused = await self.authorizer.refusal(caller, wanted)
        except ApiError as error:
            return _status(503, f"the API server cannot be asked whether this is allowed: {error}")
        if refused:
            return _status(403, _forbidden(caller, wanted, refused), wanted)
        if route.stream is not None and "upgrade" in request.headers.get("Connection", "").lower():
            return await route.stream(request)
        path = request.rel_url.raw_path
        reply = await route.handle(
            Request(request.method, path, request.rel_url.raw_query_string, {}, await request.read())
        )
        return web.Response(status=reply.status, headers=dict(reply.headers), body=reply.body)

    def _caller(self, request: web.Request) -> Caller | None:
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        return self.proxy().caller(_common_name(tls), request.headers)


def _common_name(tls: ssl.SSLObject | None) -> str:
    """The CN of the client's certificate, which was verified; empty when there is none."""
    certificate = tls.getpeercert() if tls is not None else None
    for entries in (certificate or {}).get("subject", ()):
        for pair in entries:
            if isinstance(pair, tuple) and pair[0] == "commonName":
                return str(pair[1])
    return ""


def _forbidden(caller: Caller, wanted: Attributes, why: str) -> str:
    what = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    where = f' in the namespace "{wanted.namespace}"' if wanted.namespace else " at the cluster scope"
    name = f' "{wanted.name}"' if wanted.name else ""
    return (
        f'{what}.{wanted.group}{name} is forbidden: User "{caller.user}" cannot {wanted.verb} resource '
        f'"{what}" in API group "{wanted.group}"{where}: {why}'
    )


def _status(code: int, message: str, about: Attributes | None = None) -> web.Response:
    details = StatusDetails(group=about.group, kind=about.resource, name=about.name) if about is not None else None
    body = status_json(code=code, reason=_REASONS[code], message=message, details=details)
    return web.Response(status=code, body=msgspec.json.encode(body), content_type=_JSON)


def _json(body: Json) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type=_JSON)
