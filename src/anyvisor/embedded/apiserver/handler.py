"""The API server without a socket: one request in, one answer out.

Order of each request: who (already proven by the shell), may they, what do they want, do it. Every refusal is a
Status object; nothing but the health paths is answered to someone unknown.
"""

import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from anyvisor.embedded.apiserver import discovery, openapi_v2
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.actions import Actions
from anyvisor.embedded.apiserver.aggregator import Aggregator
from anyvisor.embedded.apiserver.codec import encode_json
from anyvisor.embedded.apiserver.config import Aggregated, ServerConfig
from anyvisor.embedded.apiserver.discovery import Route
from anyvisor.embedded.apiserver.identity import ANONYMOUS, ApiRequest, ApiResponse, Identity
from anyvisor.embedded.apiserver.impersonation import impersonated
from anyvisor.embedded.apiserver.objects import Ask, Objects
from anyvisor.embedded.apiserver.openapi import Documents
from anyvisor.embedded.apiserver.params import Target, flag, parse_path, parse_query
from anyvisor.embedded.apiserver.rbac import Attributes, Authorizer
from anyvisor.embedded.apiserver.resource import Registry, Resource
from anyvisor.embedded.apiserver.respond import error_response, json_response
from anyvisor.embedded.apiserver.reviews import Reviews
from anyvisor.embedded.apiserver.status import StatusError

log = logging.getLogger(__name__)
Json = dict[str, Any]

OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
_POLICIES = frozenset(
    {
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    }
)
_METHOD_VERBS: Mapping[str, str] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "HEAD": "get",
}


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """Return the verb of a request on a resource."""
    if method == "GET":
        if flag(query, "watch"):
            return "watch"
        return "get" if target.name else "list"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _METHOD_VERBS.get(method, method.lower())


class Handler:
    """Answers every request of one server."""

    def __init__(
        self,
        config: ServerConfig,
        registry: Registry,
        authorizer: Authorizer,
        objects: Objects,
        actions: Actions,
        reviews: Reviews,
        aggregator: Aggregator,
        metrics_text: Callable[[], Awaitable[bytes]],
        may_read: Callable[[Identity, Attributes], bool],
    ) -> None:
        self._config = config
        self._registry = registry
        self._authorizer = authorizer
        self._objects = objects
        self._actions = actions
        self._reviews = reviews
        self._aggregator = aggregator
        self._metrics_text = metrics_text
        self._may_read = may_read
        self._documents = Documents()
        self._v2: dict[bool, tuple[int, bytes]] = {}
        self.ready = False
        self.note = ""
        """What whoever runs the server should know; `/readyz?verbose` shows it."""

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer a request; never raises but for cancellation."""
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return error_response(error)
        except Exception:
            incident = uuid.uuid4().hex[:12]
            log.exception("incident %s: %s %s", incident, request.request.method, request.request.path)
            return error_response(
                StatusError(500, "InternalError", f"an internal error occurred (incident {incident}; see the log)")
            )

    async def _dispatch(self, request: ApiRequest) -> ApiResponse:
        path = request.request.path
        if path in OPEN_PATHS or path.startswith(("/livez/", "/readyz/")):
            return self._health(path, parse_query(request.request.query))
        if request.identity.user == ANONYMOUS.user:
            raise st.unauthorized()
        request = self._act_as(request)
        target = parse_path(path)
        query = parse_query(request.request.query)
        if not target.resource:
            self.authorize(request.identity, Attributes(request.request.method.lower(), path=path))
            if path == "/metrics" and request.request.method == "GET":
                return ApiResponse(200, {"content-type": "text/plain; version=0.0.4"}, await self._metrics_text())
            outside = self._outside(path)
            if outside is not None:
                return await self._aggregator.forward(outside, request)
            return self._document(request, path, query)
        verb = verb_of(request.request.method, target, query)
        self.authorize(request.identity, attributes(verb, target))
        return await self._resource(request, target, query, verb)

    def _act_as(self, request: ApiRequest) -> ApiRequest:
        identity = impersonated(request.identity, request.request.headers, self.authorize)
        return request if identity is request.identity else ApiRequest(request.request, identity)

    def authorize(self, identity: Identity, asked: Attributes) -> None:
        """Raise a 403 Status unless the user may do what is asked."""
        if self._authorizer.allowed(identity, asked) and self._may_read(identity, asked):
            return
        if asked.path:
            raise StatusError(
                403, "Forbidden", f'forbidden: User "{identity.user}" cannot {asked.verb} path "{asked.path}"'
            )
        what = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        raise st.forbidden(
            asked.group,
            asked.resource,
            asked.name,
            f'User "{identity.user}" cannot {asked.verb} resource "{what}" in API group "{asked.group}" {where}',
        )

    async def _resource(self, request: ApiRequest, target: Target, query: Mapping[str, str], verb: str) -> ApiResponse:
        aggregated = self.aggregated(target.group, target.version)
        if aggregated is not None:
            return await aggregated.handle(request)
        outside = self._aggregator.service(target.group, target.version)
        if outside is not None:
            return await self._aggregator.forward(outside, request)
        resource = self._registry.find(target.group, target.version, target.resource)
        if resource is None and target.group == "admissionregistration.k8s.io":
            raise _policy_not_served(target)
        if resource is None or (resource.namespaced and not target.namespace and target.name):
            raise st.no_such_path()
        if not resource.namespaced and target.namespace:
            raise st.no_such_path()
        if resource.namespaced and not target.namespace and verb == "create" and resource.store:
            raise st.method_not_allowed()
        ask = Ask(request, target, query, resource, verb)
        if resource.warning:
            ask.warnings.append(resource.warning)
        try:
            response = await self._serve(ask)
        except StatusError as error:
            response = error_response(error)
        for warning in dict.fromkeys(ask.warnings):
            _add_warning(response, warning)
        return response

    async def _serve(self, ask: Ask) -> ApiResponse:
        resource, target = ask.resource, ask.target
        if not resource.store:
            return self._reviews.serve(ask)
        if target.subresource == "status":
            if not resource.has_status or ask.verb not in ("get", "update", "patch"):
                raise st.no_such_path()
            return await self._objects.serve(ask)
        if target.subresource:
            return await self._actions.serve(ask)
        if ask.verb == "create" and resource.terminating:
            raise st.method_not_allowed("create not allowed while custom resource definition is terminating")
        if ask.verb == "create" and target.name:
            raise st.method_not_allowed()
        if ask.verb in ("update", "patch") and not target.name:
            raise st.method_not_allowed()
        if ask.verb not in resource.verbs:
            raise st.method_not_allowed()
        return await self._objects.serve(ask)

    def aggregated(self, group: str, version: str) -> Aggregated | None:
        """Return who else answers a group version."""
        for item in self._config.aggregated:
            if item.group == group and item.version == version:
                return item
        return None

    def _outside(self, path: str) -> Json | None:
        """Return the APIService whose backend answers a discovery path."""
        parts = path.strip("/").split("/")
        return self._aggregator.service(parts[1], parts[2]) if len(parts) == 3 and parts[0] == "apis" else None

    def _routes(self) -> list[Route]:
        """Return what discovery lists of groups that others answer, in process or outside."""
        inside = [Route(item.group, item.version, tuple(item.resources)) for item in self._config.aggregated]
        return inside + [Route(*item) for item in self._aggregator.served()]

    def _health(self, path: str, query: Mapping[str, str]) -> ApiResponse:
        ok = self.ready or not path.startswith("/readyz")
        text = "ok" if ok else "not ready"
        if "verbose" in query:
            mark = "[+]" if ok else "[-]"
            note = f"[!]store {self.note}\n" if self.note else ""
            text = f"{mark}store {text}\n{note}{path.strip('/')} check {'passed' if ok else 'failed'}\n"
        return ApiResponse(200 if ok else 500, {"content-type": "text/plain; charset=utf-8"}, text.encode())

    def _document(self, request: ApiRequest, path: str, query: Mapping[str, str]) -> ApiResponse:
        if request.request.method not in ("GET", "HEAD"):
            raise st.no_such_path()
        parts = path.strip("/").split("/")
        match parts:
            case ["version"]:
                return json_response(self._version())
            case ["api"] | ["apis"]:
                return self._discovery(request, core=parts == ["api"])
            case ["apis", group]:
                return _found(self._group(group))
            case ["apis", group, version]:
                return _found(self._resource_list(group, version))
            case ["api", version]:
                return _found(self._resource_list("", version))
            case ["openapi", "v3", *rest]:
                return self._openapi(rest, query, request.request.headers)
            case ["openapi", "v2"]:
                return self._openapi_v2(request.request.headers)
            case [""]:
                return json_response({"paths": sorted(["/api", "/apis", "/healthz", "/openapi/v3", "/version"])})
            case _:
                raise st.no_such_path()

    def _openapi_v2(self, headers: Mapping[str, str]) -> ApiResponse:
        protobuf = openapi_v2.PROTOBUF in headers.get("accept", "")
        made = self._v2.get(protobuf)
        if made is None or made[0] != self._registry.generation:
            document = openapi_v2.document(self._resources())
            body = openapi_v2.encode(document) if protobuf else encode_json(document)
            made = self._v2[protobuf] = (self._registry.generation, body)
        kind = openapi_v2.PROTOBUF_ANSWER if protobuf else "application/json"
        return ApiResponse(200, {"content-type": kind}, made[1])

    def _version(self) -> Json:
        version = self._config.git_version
        major, minor = version.removeprefix("v").split(".")[:2]
        return {
            "major": major,
            "minor": minor,
            "gitVersion": version,
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": "linux/amd64",
        }

    def _resources(self) -> list[Resource]:
        return self._registry.all()

    def _discovery(self, request: ApiRequest, *, core: bool) -> ApiResponse:
        accept = request.request.headers.get("accept", "")
        if "g=apidiscovery.k8s.io" in accept and "v=v2;" in accept.replace(" ", "") + ";":
            document = discovery.aggregated(self._resources(), core=core)
            if not core:
                document["items"].extend(discovery.aggregated_items(self._routes()))
            return json_response(document, headers={"content-type": discovery.AGGREGATED, "vary": "Accept"})
        if core:
            return json_response(discovery.core_versions())
        listing = discovery.group_list(self._resources())
        listing["groups"].extend(discovery.aggregated_groups(self._routes()))
        return json_response(listing)

    def _group(self, group: str) -> Json | None:
        found = discovery.single_group(self._resources(), group)
        return found if found is not None else discovery.aggregated_group(self._routes(), group)

    def _resource_list(self, group: str, version: str) -> Json | None:
        aggregated = self.aggregated(group, version)
        if aggregated is not None:
            route = Route(group, version, tuple(aggregated.resources))
            return discovery.aggregated_resource_list(route)
        return discovery.resource_list(self._resources(), group, version)

    def _openapi(self, rest: Sequence[str], query: Mapping[str, str], headers: Mapping[str, str]) -> ApiResponse:
        generation = self._registry.generation
        match rest:
            case []:
                return json_response(self._documents.index(self._resources(), generation))
            case ["api", version]:
                found = self._documents.get(self._resources(), generation, "", version)
            case ["apis", group, version]:
                found = self._documents.get(self._resources(), generation, group, version)
            case _:
                found = None
        if found is None:
            raise st.no_such_path()
        body, digest = found
        answer = {"content-type": "application/json", "etag": f'"{digest}"'}
        if "hash" in query:
            answer["cache-control"] = "public, immutable, max-age=31536000"
        if headers.get("if-none-match") == f'"{digest}"':
            return ApiResponse(304, answer)
        return ApiResponse(200, answer, body)


def _policy_not_served(target: Target) -> StatusError:
    """A policy that is taken and not enforced would be worse than none."""
    if target.resource not in _POLICIES:
        return st.no_such_path()
    return StatusError(
        404,
        "NotFound",
        f"{target.resource}.{target.group} are not served by this API server, so no policy would be enforced; "
        "use a ValidatingWebhookConfiguration or MutatingWebhookConfiguration",
        {"group": target.group, "kind": target.resource},
    )


def attributes(verb: str, target: Target) -> Attributes:
    """Return what authorization is asked about a request on a resource; a port or a path is no part of its name."""
    first, _, _ = target.subresource.partition("/")
    subresource = first if first in ("portforward", "proxy") else target.subresource
    return Attributes(verb, target.group, target.resource, subresource, target.namespace, target.name)


def _found(document: Json | None) -> ApiResponse:
    if document is None:
        raise st.no_such_path()
    return json_response(document)


def _add_warning(response: ApiResponse, warning: str) -> None:
    text = warning.replace("\\", "\\\\").replace('"', '\\"')
    clean = "".join(char if char.isprintable() else " " for char in text)
    value = f'299 - "{clean}"'
    before = response.headers.get("warning")
    response.headers["warning"] = f"{before}, {value}" if before else value
