"""Subresources other than status: scale, binding, eviction, log, token, finalize."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from anyvisor.embedded.apiserver import patch as patches
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.calls import Call, to_served
from anyvisor.embedded.apiserver.codec import decode_json, media_type
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.deletion import is_finished
from anyvisor.embedded.apiserver.entries import Entry
from anyvisor.embedded.apiserver.identity import ApiResponse
from anyvisor.embedded.apiserver.objects import JSON_PATCH, MERGE_PATCH, Ask
from anyvisor.embedded.apiserver.params import WriteOptions, delete_options
from anyvisor.embedded.apiserver.resource import Scale
from anyvisor.embedded.apiserver.respond import json_response
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.tokens import AUDIENCE, BINDABLE, MAX_SECONDS, MIN_SECONDS, Bound, Tokens
from anyvisor.embedded.apiserver.values import lookup
from anyvisor.embedded.apiserver.writes import Writer

Json = dict[str, Any]

CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


NOT_SET = -(1 << 31)
"""What the original shows to patches of a scale whose number is not there."""


class Actions:
    """Carries out the subresources that are no plain views of an object."""

    def __init__(self, state: State, writer: Writer, tokens: Tokens, config: ServerConfig) -> None:
        self._state = state
        self._writer = writer
        self._tokens = tokens
        self._pod_log = config.pod_log
        self._evict = config.evict
        self._node_proxy = config.node_proxy
        self._table: Mapping[tuple[str, str], Callable[[Ask], Awaitable[ApiResponse]]] = {
            ("pods", "binding"): self._bind,
            ("pods", "eviction"): self._evict_pod,
            ("pods", "log"): self._log,
            ("nodes", "proxy"): self._proxy,
            ("serviceaccounts", "token"): self._token,
            ("namespaces", "finalize"): self._finalize,
        }

    async def serve(self, ask: Ask) -> ApiResponse:
        """Answer one request. Raises a Status; 404 for a subresource that the kind does not have."""
        resource, name = ask.resource, ask.target.subresource
        if name == "scale" and resource.scale is not None:
            return await self._scale(ask, resource.scale)
        if name.startswith("proxy/"):
            name = "proxy"
        action = self._table.get((resource.plural, name)) if not resource.custom else None
        if action is None:
            raise st.no_such_path()
        verbs = {"log": ("get",), "proxy": ("get",), "finalize": ("update",)}.get(name, ("create",))
        if ask.verb not in verbs:
            raise st.method_not_allowed()
        return await action(ask)

    def _entry(self, ask: Ask) -> Entry:
        resource, target = ask.resource, ask.target
        entry = self._state.collection(resource.store).latest((target.namespace, target.name))
        if entry is None:
            raise st.not_found(resource.group, resource.plural, target.name)
        return entry

    async def _bind(self, ask: Ask) -> ApiResponse:
        body = ask.object_body()
        node = lookup(body, ("target", "name"))
        if not node:
            raise st.bad_request("target.name: Required value: a binding must name a node")
        name = ask.target.name

        def change(pod: Json) -> Json:
            spec: Json = pod["spec"]
            if spec.get("nodeName"):
                raise st.conflict(
                    "", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"'
                )
            if pod["metadata"].get("deletionTimestamp"):
                raise st.conflict(
                    "", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host"
                )
            spec["nodeName"] = node
            for part in ("annotations", "labels"):
                notes = lookup(body, ("metadata", part))
                if notes:
                    pod["metadata"].setdefault(part, {}).update(notes)
            _set_condition(pod, "PodScheduled", "True")
            return pod

        await self._writer.update(ask.call(), change)
        return json_response(CREATED, 201)

    async def _evict_pod(self, ask: Ask) -> ApiResponse:
        body = ask.object_body()
        entry = self._entry(ask)
        if self._evict is not None:
            why = await self._evict(entry.object(), body)
            if why:
                raise StatusError(429, "TooManyRequests", why, retry_after=10)
        options = delete_options(ask.query, body.get("deleteOptions") or {})
        call = Call(
            ask.resource,
            ask.request.identity,
            WriteOptions(dry_run=options.dry_run),
            ask.target.namespace,
            ask.target.name,
            warnings=ask.warnings,
        )
        await self._writer.delete(call, options)
        return json_response(CREATED, 201)

    async def _log(self, ask: Ask) -> ApiResponse:
        entry = self._entry(ask)
        if self._pod_log is None:
            raise StatusError(501, "NotImplemented", "this server keeps no pod logs")
        stream = await self._pod_log(entry.object(), ask.query)
        return ApiResponse(200, {"content-type": "text/plain"}, stream=stream)

    async def _proxy(self, ask: Ask) -> ApiResponse:
        self._entry(ask)
        if self._node_proxy is None:
            raise StatusError(501, "NotImplemented", "this server reaches no nodes")
        path = ask.target.subresource.removeprefix("proxy").strip("/")
        return await self._node_proxy(ask.target.name, path, ask.request.request.query)

    async def _token(self, ask: Ask) -> ApiResponse:
        entry = self._entry(ask)
        body = ask.object_body()
        spec: Json = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600
        if not isinstance(seconds, int) or not MIN_SECONDS <= seconds <= MAX_SECONDS:
            raise StatusError(
                422,
                "Invalid",
                f"spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes",
            )
        audiences = list(spec.get("audiences") or ()) or [AUDIENCE]
        bound, node = self._bound(ask, spec.get("boundObjectRef"))
        namespace, account = entry.key
        token, expires = self._tokens.issue(namespace, account, entry.uid, audiences, seconds, bound, node)
        stamp = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["spec"] = {**spec, "audiences": audiences, "expirationSeconds": seconds}
        body["status"] = {"token": token, "expirationTimestamp": stamp}
        body["metadata"] = {"name": account, "namespace": namespace, "creationTimestamp": None}
        return json_response(body, 201)

    def _bound(self, ask: Ask, reference: Json | None) -> tuple[Bound | None, Bound | None]:
        """What the token is bound to, and the node of that where it is a pod."""
        if not reference:
            return None, None
        kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
        if kind not in BINDABLE or reference.get("apiVersion") not in ("v1", "", None):
            told = f"{reference.get('apiVersion') or ''}, Kind={kind}"
            raise st.bad_request(f"cannot bind token to object of type {told}")
        entry = self._lasting(kind, ask.target.namespace, name)
        if entry is None:
            raise st.not_found("", BINDABLE[kind], name)
        node = self._node_of(entry.object(), ask.target.name) if kind == "Pod" else None
        uid = reference.get("uid")
        if uid and uid != entry.uid:
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record"
            raise st.conflict("", kind, name, f"{why}. The object might have been deleted and then recreated")
        return Bound(kind, name, entry.uid), node

    def _lasting(self, kind: str, namespace: str, name: str) -> Entry | None:
        return self._state.collection(BINDABLE[kind]).latest(("" if kind == "Node" else namespace, name))

    def _node_of(self, pod: Json, account: str) -> Bound | None:
        own = lookup(pod, ("spec", "serviceAccountName")) or "default"
        if own != account:
            raise st.bad_request(
                f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            )
        name = lookup(pod, ("spec", "nodeName"))
        entry = self._lasting("Node", "", str(name)) if name else None
        return Bound("Node", str(name), entry.uid) if entry is not None else None

    async def _finalize(self, ask: Ask) -> ApiResponse:
        entry = self._entry(ask)
        body = ask.object_body()
        obj = entry.object()
        obj["spec"] = {"finalizers": list(lookup(body, ("spec", "finalizers")) or ())}
        collection = self._state.collection(ask.resource.store)
        done = (
            self._state.remove(collection, obj, entry) if is_finished(obj) else self._state.put(collection, obj, entry)
        )
        return ApiResponse(200, {"content-type": "application/json"}, (await done).raw)

    # -- scale ----------------------------------------------------------------------------------------------

    async def _scale(self, ask: Ask, scale: Scale) -> ApiResponse:
        if ask.verb == "get":
            entry = self._state.collection(ask.resource.store).entries.get((ask.target.namespace, ask.target.name))
            if entry is None:
                raise st.not_found(ask.resource.group, ask.resource.plural, ask.target.name)
            obj = await to_served(ask.resource, entry.object())
            if ask.resource.custom and lookup(obj, scale.spec_replicas) is None:
                path = "." + ".".join(scale.spec_replicas)
                raise st.internal(f'the spec replicas field "{path}" does not exist')
            return json_response(scale_of(obj, scale))
        if ask.verb not in ("update", "patch"):
            raise st.method_not_allowed()
        kind = media_type(ask.request.request.headers)
        body = ask.body()
        if ask.verb == "update":
            _check_names(ask, ask.object_body())

        def change(obj: Json) -> Json:
            current = scale_of(obj, scale)
            if ask.resource.custom and lookup(obj, scale.spec_replicas) is None:
                current["spec"] = {"replicas": NOT_SET}
            if ask.verb == "update":
                wanted: Json = body
            elif kind == JSON_PATCH:
                try:
                    wanted = patches.json_patch(current, body)
                except patches.PatchError as error:
                    raise st.unpatchable(ask.resource.group, ask.resource.plural, ask.target.name, error) from error
            elif kind == MERGE_PATCH:
                wanted = patches.merge_patch(current, body)
            else:
                raise st.unsupported_media([JSON_PATCH, MERGE_PATCH])
            replicas = lookup(wanted, ("spec", "replicas"))
            if not isinstance(replicas, int):
                raise st.bad_request("spec.replicas must be a number")
            version = lookup(wanted, ("metadata", "resourceVersion"))
            if version:
                obj["metadata"]["resourceVersion"] = version
            if ask.resource.custom and replicas == NOT_SET:
                path = ".".join(scale.spec_replicas)
                raise st.bad_request(f'the spec replicas field ".{path}" cannot be empty')
            # As the original: nobody owns a zero, nor a number that was not there before.
            absent = lookup(obj, scale.spec_replicas) is None
            call.disowned = scale.spec_replicas if ask.resource.custom and (absent or not replicas) else ()
            _set(obj, scale.spec_replicas, replicas)
            return obj

        call = ask.call()
        call.subresource, call.through = "", "scale"
        outcome = await self._writer.update(call, change)
        return json_response(scale_of(await to_served(ask.resource, decode_json(outcome.raw)), scale))


def _check_names(ask: Ask, scale: Json) -> None:
    """Refuse a Scale of another object than the one that the URL names."""
    for what, wanted in (("name", ask.target.name), ("namespace", ask.target.namespace)):
        given = lookup(scale, ("metadata", what))
        if given and given != wanted:
            raise st.bad_request(f"the {what} of the object ({given}) does not match the {what} on the URL ({wanted})")


def scale_of(obj: Json, scale: Scale) -> Json:
    """Return the Scale of an object."""
    metadata: Json = obj["metadata"]
    status: Json = {"replicas": lookup(obj, scale.status_replicas) or 0}
    selector = lookup(obj, scale.selector) if scale.selector else None
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if name in metadata
        },
        "spec": {"replicas": wanted} if (wanted := lookup(obj, scale.spec_replicas)) else {},
        "status": status,
    }


def _set(obj: Json, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        obj = obj.setdefault(name, {})
    obj[path[-1]] = value


def _set_condition(pod: Json, kind: str, value: str) -> None:
    status: Json = pod.setdefault("status", {})
    conditions: list[Json] = [item for item in status.get("conditions") or () if item.get("type") != kind]
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions.append({"type": kind, "status": value, "lastTransitionTime": stamp, "lastProbeTime": None})
    status["conditions"] = conditions
