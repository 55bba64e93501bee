"""The verbs of the Kubernetes API over a `Transport`.

Objects go out as dicts and come back as dicts; a watch and `list_pages` give `CachedObject`s. Raises
`kube.errors`. A 429, or a 5xx that names `Retry-After`, is tried again a few times, as the server asked.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast
from urllib.parse import urlencode

import msgspec

from anyvisor.api.meta import Json
from anyvisor.kube import errors
from anyvisor.kube.lines import LineSplitter, LineTooLong
from anyvisor.kube.objects import CachedObject, parse_object
from anyvisor.kube.resources import Resource
from anyvisor.kube.transport import Request, Response, Transport

REQUEST_TIMEOUT = 30.0
"""Seconds for one request that is not a watch."""
RETRIES = 5
RETRY_AFTER_LIMIT = 10.0
"""Seconds; a server that asks for more gets its error handed to the caller."""
PAGE_SIZE = 500

Params = Mapping[str, str | None]


class PatchType(StrEnum):
    """The media type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What happens to the objects that the deleted one owns."""

    FOREGROUND = "Foreground"
    BACKGROUND = "Background"
    ORPHAN = "Orphan"


class EventType(StrEnum):
    """What a watch event says."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch; a BOOKMARK's object has nothing but its resourceVersion and annotations."""

    type: EventType
    object: CachedObject


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: tuple[CachedObject, ...]
    resource_version: str
    next: str
    """The continue token; empty on the last page."""


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_list = msgspec.json.Decoder(_List).decode


class Client:
    """One identity's access to one API server."""

    def __init__(self, transport: Transport, field_manager: str = "anyvisor") -> None:
        self._transport = transport
        self._field_manager = field_manager

    async def get(
        self, res: Resource, name: str, namespace: str | None = None, *, subresource: str | None = None
    ) -> Json:
        """Read one object (or a subresource of it)."""
        return await self._json("GET", res.path(namespace, name, subresource))

    async def list(
        self,
        res: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int | None = None,
        continue_token: str | None = None,
    ) -> Json:
        """Read one page of a collection (all of it without `limit`), as the server's List object."""
        params = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "limit": str(limit) if limit else None,
            "continue": continue_token,
        }
        return await self._json("GET", res.path(namespace), params)

    async def list_pages(
        self,
        res: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Page]:
        """Read a collection page by page; raises Gone when the snapshot expires on the way."""
        token = ""
        while True:
            params = {
                "labelSelector": labels,
                "fieldSelector": fields,
                "limit": str(page_size),
                "continue": token or None,
            }
            body = await self.call("GET", res.path(namespace), params)
            try:
                page = _decode_list(body)
                items = tuple(parse_object(raw) for raw in page.items or ())
            except msgspec.DecodeError as error:
                raise _unreadable(f"the list of {res.plural}", error) from error
            token = page.metadata.continue_token
            yield Page(items, page.metadata.resource_version, token)
            if not token:
                return

    async def create(
        self,
        res: Resource,
        obj: Json,
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Create an object, or POST to a subresource (`name`, `subresource`: a pod's binding or eviction)."""
        params = {"fieldManager": self._field_manager, "dryRun": "All" if dry_run else None}
        path = res.path(namespace or _namespace_of(obj), name, subresource)
        return await self._json("POST", path, params, _with_type(res, obj, subresource))

    async def update(self, res: Resource, obj: Json, *, subresource: str | None = None, dry_run: bool = False) -> Json:
        """Replace an object that was read as a dict; its resourceVersion guards against a lost update."""
        name = cast("str", obj["metadata"]["name"])
        params = {"fieldManager": self._field_manager, "dryRun": "All" if dry_run else None}
        path = res.path(_namespace_of(obj), name, subresource)
        return await self._json("PUT", path, params, _with_type(res, obj, subresource))

    async def patch(
        self,
        res: Resource,
        name: str,
        namespace: str | None,
        patch: "Json | list[Json]",
        type: PatchType = PatchType.MERGE,  # noqa: A002 - the API's word
        *,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Change an object; `force` (apply only) takes fields over from other managers."""
        params = {
            "fieldManager": field_manager or self._field_manager,
            "force": "true" if force else None,
            "dryRun": "All" if dry_run else None,
        }
        return await self._json("PATCH", res.path(namespace, name, subresource), params, patch, type.value)

    async def apply(
        self, res: Resource, obj: Json, *, subresource: str | None = None, field_manager: str | None = None
    ) -> Json:
        """Server-side apply `obj`, taking over its fields from other managers."""
        name = cast("str", obj["metadata"]["name"])
        return await self.patch(
            res,
            name,
            _namespace_of(obj),
            _with_type(res, obj, None),
            PatchType.APPLY,
            subresource=subresource,
            field_manager=field_manager,
            force=True,
        )

    async def delete(
        self,
        res: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        grace: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
    ) -> Json:
        """Delete one object; `uid` and `resource_version` are preconditions (Conflict when they differ)."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation is not None:
            options["propagationPolicy"] = propagation.value
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if dry_run:
            options["dryRun"] = ["All"]
        return await self._json("DELETE", res.path(namespace, name), None, options)

    async def watch(
        self,
        res: Resource,
        namespace: str | None = None,
        *,
        resource_version: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        timeout_seconds: int | None = None,
        initial_events: bool = False,
    ) -> AsyncGenerator[WatchEvent]:
        """Yield events until the server ends the watch; close the generator to end it from here.

        `initial_events` asks for a watch-list (KEP-3157). Raises the error of an ERROR event, Gone among
        them, and Unreachable when the stream breaks.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_seconds) if timeout_seconds else None,
            "sendInitialEvents": "true" if initial_events else None,
            "resourceVersionMatch": "NotOlderThan" if initial_events else None,
        }
        response = await self._send(self._request("GET", res.path(namespace), params))
        try:
            async for event in _events(response):
                yield event
        finally:
            await response.close()

    async def call(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send one request by path and return the body of a 2xx answer; for what has no verb of its own."""
        request = self._request(method, path, params, body, content_type)
        response = await self._send(request)
        async with _deadline(request):
            return await response.read()

    def _request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Request:
        query = urlencode({key: value for key, value in (params or {}).items() if value is not None})
        headers = {"accept": "application/json"}
        if body is None:
            return Request(method, path, query, headers)
        headers["content-type"] = content_type
        return Request(method, path, query, headers, msgspec.json.encode(body))

    async def _send(self, request: Request) -> Response:
        for attempt in range(RETRIES + 1):
            async with _deadline(request):
                response = await self._transport.send(request)
                if response.status < 300:
                    return response
                error = errors.from_response(response.status, await response.read(), _retry_after(response.headers))
            wait = error.retry_after
            asked = wait is not None and (error.status == 429 or error.status >= 500)
            if not asked or attempt == RETRIES or wait is None or wait > RETRY_AFTER_LIMIT:
                raise error
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    async def _json(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> Json:
        answer = await self.call(method, path, params, body, content_type)
        try:
            return msgspec.json.decode(answer, type=dict[str, Any]) if answer else {}
        except msgspec.DecodeError as error:
            raise _unreadable(f"{method} {path}", error) from error


async def _events(response: Response) -> AsyncGenerator[WatchEvent]:
    splitter = LineSplitter()
    async for chunk in response:
        try:
            events = [_event(line) for line in splitter.feed(chunk)]
        except (msgspec.DecodeError, LineTooLong, ValueError) as error:
            raise _unreadable("an event of a watch", error) from error
        for event in events:
            yield event


def _event(line: bytes) -> WatchEvent:
    parsed = _decode_line(line)
    if parsed.type == "ERROR":
        raise errors.from_status(parsed.object)
    return WatchEvent(EventType(parsed.type), parse_object(parsed.object))


@asynccontextmanager
async def _deadline(request: Request) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            yield
    except TimeoutError as late:
        what = f"{request.method} {request.path}"
        raise errors.Unreachable(f"{what}: no answer within {REQUEST_TIMEOUT:.0f} s") from late


def _unreadable(what: str, cause: Exception) -> errors.ServerError:
    error = errors.ServerError(500, "Unreadable", f"{what}: the server's answer could not be read: {cause}")
    error.__cause__ = cause
    return error


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _namespace_of(obj: Json) -> str | None:
    metadata = cast("Json", obj.get("metadata") or {})
    return cast("str | None", metadata.get("namespace"))


def _with_type(res: Resource, obj: Json, subresource: str | None) -> Json:
    if "kind" in obj or subresource is not None:
        return obj
    return {"apiVersion": res.api_version, "kind": res.kind, **obj}
