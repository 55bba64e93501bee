"""The verbs on stored resources: from a request to the reader or the writer, and back to bytes."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anyvisor.embedded.apiserver import patch as patches
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.calls import Call, Change, Outcome
from anyvisor.embedded.apiserver.codec import OBJECT, decode_json, media_type, negotiate, read_body
from anyvisor.embedded.apiserver.identity import ApiRequest, ApiResponse
from anyvisor.embedded.apiserver.incoming import check_identity
from anyvisor.embedded.apiserver.params import (
    DeleteOptions,
    Target,
    WriteOptions,
    delete_options,
    write_options,
)
from anyvisor.embedded.apiserver.reads import Reader, selector_of
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.respond import View, json_response
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import Cause, StatusError
from anyvisor.embedded.apiserver.values import as_object
from anyvisor.embedded.apiserver.writes import Writer

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request on a resource, read but not yet carried out."""

    request: ApiRequest
    target: Target
    query: Mapping[str, str]
    resource: Resource
    verb: str
    warnings: list[str] = field(default_factory=list[str])

    @property
    def view(self) -> View:
        output = negotiate(self.request.request.headers.get("accept", ""))
        return View(self.resource, output, self.query.get("includeObject", "Metadata"))

    def options(self) -> WriteOptions:
        kind = {"create": "CreateOptions", "patch": "PatchOptions"}.get(self.verb, "UpdateOptions")
        return write_options(self.query, self.request.request.headers.get("user-agent", ""), kind)

    def call(self, options: WriteOptions | None = None) -> Call:
        return Call(
            self.resource,
            self.request.identity,
            options if options is not None else self.options(),
            self.target.namespace,
            self.target.name,
            self.target.subresource,
            self.warnings,
        )

    def body(self) -> Any:
        request = self.request.request
        return read_body(request.body, media_type(request.headers))

    def object_body(self) -> Json:
        """Return the body as an object. Raises a 400 Status when it is something else."""
        body = self.body()
        if not isinstance(body, dict):
            raise st.bad_request("the body of the request must be one object")
        return as_object(body)


class Objects:
    """Carries out the eight verbs, for objects and for their status."""

    def __init__(self, state: State, reader: Reader, writer: Writer) -> None:
        self._state = state
        self._reader = reader
        self._writer = writer

    async def serve(self, ask: Ask) -> ApiResponse:
        """Answer one request. Raises a Status for every refusal."""
        view = ask.view
        match ask.verb:
            case "get":
                return await self._get(ask, view)
            case "list":
                return await self._list(ask, view)
            case "watch":
                return self._watch(ask)
            case "create":
                return await self._written(ask, await self._writer.create(ask.call(), ask.object_body()))
            case "update":
                call, body = ask.call(), ask.object_body()
                check_identity(call, body)
                return await self._written(
                    ask, await self._writer.update(call, lambda _old: copy.deepcopy(body), replace=True)
                )
            case "patch":
                return await self._written(ask, await self._patch(ask))
            case "delete":
                return await self._delete(ask)
            case _:
                return await self._delete_many(ask)

    async def _get(self, ask: Ask, view: View) -> ApiResponse:
        target = ask.target
        entry = self._reader.get(ask.resource, target.namespace, target.name, ask.query)
        await view.prepare([entry.raw])
        return ApiResponse(200, {"content-type": view.output.content_type}, view.one(entry.raw))

    async def _list(self, ask: Ask, view: View) -> ApiResponse:
        namespace = ask.target.namespace or None if ask.resource.namespaced else None
        page = self._reader.page(ask.resource, namespace, ask.query)
        await view.prepare(page.items)
        body = await view.many(page.items, page.metadata)
        return ApiResponse(200, {"content-type": view.output.content_type}, body)

    def _watch(self, ask: Ask) -> ApiResponse:
        namespace = ask.target.namespace or None if ask.resource.namespaced else None
        stream = self._reader.watch(ask.view, namespace, ask.target.name or None, ask.query)
        return ApiResponse(200, {"content-type": "application/json"}, stream=stream)

    async def _written(self, ask: Ask, outcome: Outcome) -> ApiResponse:
        view = ask.view
        await view.prepare([outcome.raw])
        return ApiResponse(outcome.status, {"content-type": view.output.content_type}, view.one(outcome.raw))

    async def _patch(self, ask: Ask) -> Outcome:
        kind = media_type(ask.request.request.headers)
        _check_patch_type(ask.resource, kind)
        body = ask.body()
        call = ask.call()
        call.patch = ask.request.request.body.decode(errors="replace") if kind != APPLY else ""
        if kind == APPLY:
            if not isinstance(body, dict):
                raise st.bad_request("an applied configuration must be one object")
            if not ask.query.get("fieldManager"):
                raise _invalid_options(st.required("fieldManager", "is required for apply patch"))
            return await self._writer.apply(call, as_object(body))
        if call.options.force:
            raise _invalid_options(st.forbidden_field("force", "may not be specified for non-apply patch"))
        return await self._writer.update(call, self._change(ask.resource, kind, body, call.name))

    def _change(self, resource: Resource, kind: str, body: Any, name: str) -> Change:
        def change(old: Json) -> Json:
            try:
                if kind == JSON_PATCH:
                    return patches.json_patch(old, body)
                if kind == STRATEGIC:
                    return patches.strategic_merge(old, body, resource.schema)
                return patches.merge_patch(old, body)
            except patches.PatchError as error:
                raise st.unpatchable(resource.group, resource.plural, name, error) from error

        if kind != JSON_PATCH and not isinstance(body, dict):
            raise st.bad_request("a merge patch must be an object")
        return change

    async def _delete(self, ask: Ask) -> ApiResponse:
        options = self._delete_options(ask)
        call = ask.call(WriteOptions(dry_run=options.dry_run))
        outcome = await self._writer.delete(call, options)
        if outcome.deleted and not ask.resource.strategy.returns_deleted:
            return json_response(_deleted_status(ask, outcome))
        return await self._written(ask, outcome)

    def _delete_options(self, ask: Ask) -> DeleteOptions:
        body: Json = ask.object_body() if ask.request.request.body else {}
        return delete_options(ask.query, body)

    async def _delete_many(self, ask: Ask) -> ApiResponse:
        options = self._delete_options(ask)
        selector = selector_of(ask.resource, ask.query)
        namespace = ask.target.namespace or None if ask.resource.namespaced else None
        collection = self._state.collection(ask.resource.store)
        entries = [entry for entry in collection.range(namespace) if entry.matches(selector)]
        removed: list[bytes] = []
        for entry in entries:
            call = ask.call(WriteOptions(dry_run=options.dry_run))
            call.namespace, call.name = entry.key
            try:
                await self._writer.delete(call, options)
                removed.append(entry.raw)
            except StatusError as error:
                if error.code != 404:
                    raise
        metadata: Json = {"resourceVersion": str(self._state.visible)}
        view = View(ask.resource, OBJECT)
        await view.prepare(removed)
        return ApiResponse(200, {"content-type": "application/json"}, await view.many(removed, metadata))


def _check_patch_type(resource: Resource, kind: str) -> None:
    supported = [JSON_PATCH, MERGE_PATCH, APPLY] if resource.custom else [JSON_PATCH, MERGE_PATCH, STRATEGIC, APPLY]
    if kind not in supported:
        raise st.unsupported_media(supported)


def _deleted_status(ask: Ask, outcome: Outcome) -> Json:
    obj: Json = decode_json(outcome.raw)
    details: Json = {"name": obj["metadata"]["name"], "kind": ask.resource.plural, "uid": obj["metadata"]["uid"]}
    if ask.resource.group:
        details["group"] = ask.resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _invalid_options(cause: Cause) -> StatusError:
    return st.invalid("meta.k8s.io", "PatchOptions", "", [cause])
