"""Turn stored objects into the bytes that a client asked for: object, table or metadata, in the served version."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anyvisor.embedded.apiserver import table as tables
from anyvisor.embedded.apiserver.codec import Output, decode_json, encode_json, to_yaml
from anyvisor.embedded.apiserver.entries import Entry, Event
from anyvisor.embedded.apiserver.identity import ApiResponse
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.status import StatusError

Json = dict[str, Any]

_HEAD = b'{"apiVersion":"'
TURN = 64
"""Objects of a list that are shaped before others have their turn: a millisecond or two."""
BOOKMARK_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class View:
    """How one client sees one resource."""

    resource: Resource
    output: Output
    include: str = "Metadata"

    def raw(self, stored: bytes) -> bytes:
        """Return the served form of a stored object's bytes."""
        resource = self.resource
        if resource.converter is not None:
            return resource.converter.form(stored, resource.api_version)
        if resource.from_stored is not None:
            return encode_json(resource.from_stored(decode_json(stored)))
        end = stored.index(b'"', len(_HEAD))
        version = resource.api_version.encode()
        return stored if stored[len(_HEAD) : end] == version else _HEAD + version + stored[end:]

    async def prepare(self, stored: Iterable[bytes]) -> None:
        """Get ready to show stored objects: convert them where a webhook does that. Raises a 500 Status."""
        if self.resource.converter is not None:
            await self.resource.converter.prepare(stored, self.resource.api_version)

    def lines(self, made: Iterable[bytes]) -> Iterable[bytes]:
        """Lines of a watch that are made as they are needed, unless a webhook converts: what is prepared is not kept
        while others have their turns."""
        return made if self.resource.converter is None else list(made)

    async def prepare_events(self, events: Sequence[tuple[str, Event]]) -> None:
        """Get ready to show changes. Raises a 500 Status."""
        if self.resource.converter is not None:
            await self.prepare([_shown(kind, event).raw for kind, event in events])

    def one(self, stored: bytes) -> bytes:
        """Return one object as the client wants it."""
        raw = self.raw(stored)
        if self.output.shape == "object":
            return to_yaml(decode_json(raw)) if self.output.yaml else raw
        return self._encode(self._shaped(stored, raw))

    def _shaped(self, stored: bytes, raw: bytes, *, definitions: bool = True) -> Json:
        obj = decode_json(raw)
        if self.output.shape == "metadata":
            return tables.partial_metadata(obj, self.output.version)
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        row = decode_json(stored) if self.resource.from_stored is not None else obj
        return tables.table(
            self.resource.columns,
            [row],
            metadata,
            _now(),
            include=self.include,
            version=self.output.version,
            definitions=definitions,
        )

    def _encode(self, obj: Json) -> bytes:
        return to_yaml(obj) if self.output.yaml else encode_json(obj)

    async def many(self, items: Sequence[bytes], metadata: Json) -> bytes:
        """Return a list of objects as the client wants it. Other requests have their turns meanwhile."""
        match self.output.shape:
            case "table":
                head = tables.table(self.resource.columns, (), metadata, _now(), version=self.output.version)
                body = _list_of(head, "rows", await self._each(items, self._rows))
            case "metadata":
                kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{self.output.version}"
                head = {"kind": kind, "apiVersion": version, "metadata": metadata}
                shown = [self.raw(item) for item in items]
                body = _list_of(head, "items", await self._each(shown, self._metadata))
            case _:
                resource = self.resource
                head = {"apiVersion": resource.api_version, "kind": resource.list_kind, "metadata": metadata}
                body = _list_of(head, "items", [self.raw(item) for item in items])
        return to_yaml(decode_json(body)) if self.output.yaml else body

    async def _each(self, items: Sequence[bytes], shape: Callable[[Sequence[bytes]], list[Json]]) -> list[bytes]:
        """The shaped objects, encoded. Thousands of them take long enough to hold up every other request."""
        made: list[bytes] = []
        for start in range(0, len(items), TURN):
            if start:
                await asyncio.sleep(0)
            made.append(encode_json(shape(items[start : start + TURN]))[1:-1])
        return made

    def _rows(self, items: Sequence[bytes]) -> list[Json]:
        now, version = _now(), self.output.version
        return [tables.row(self.resource.columns, decode_json(item), now, self.include, version) for item in items]

    def _metadata(self, items: Sequence[bytes]) -> list[Json]:
        return [tables.partial_metadata(decode_json(item), self.output.version) for item in items]

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.resource.api_version, self.output.shape, self.output.version, self.include)

    def event(self, kind: str, event: Event) -> bytes:
        """Return one watch event; all watchers with the same view share the bytes."""
        key = (kind, *self.key)
        found = event.encoded.get(key)
        if found is None:
            found = event.encoded[key] = self._event(kind, event)
        return found

    def _event(self, kind: str, event: Event) -> bytes:
        shown = _shown(kind, event)
        return self.watch_line(kind, shown.raw, 0 if shown is event.entry else event.rv)

    def watch_line(self, kind: str, stored: bytes, rv: int = 0) -> bytes:
        """Return one line; `rv` is the version to show where it is not the object's own."""
        raw = self.raw(stored)
        if rv:
            last: Json = decode_json(raw)
            last["metadata"]["resourceVersion"] = str(rv)
            raw = encode_json(last)
        if self.output.shape != "object":
            raw = encode_json(self._shaped(stored, raw))
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), raw)

    def bookmark(self, rv: int, *, initial_end: bool = False) -> bytes:
        metadata: Json = {"resourceVersion": str(rv), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {BOOKMARK_END: "true"}
        resource = self.resource
        obj: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        if self.output.shape == "metadata":
            obj = tables.partial_metadata(obj, self.output.version)
        elif self.output.shape == "table":
            partial = tables.partial_metadata(obj, self.output.version)
            obj = tables.table((), [], {"resourceVersion": str(rv)}, _now())
            obj["rows"] = [{"cells": [], "object": partial}]
        return encode_json({"type": "BOOKMARK", "object": obj}) + b"\n"


def _now() -> datetime:
    return datetime.now(UTC)


def _list_of(head: Json, name: str, parts: Sequence[bytes]) -> bytes:
    """The head with a member `name`: the list of these encoded parts."""
    rest = {key: value for key, value in head.items() if key != name}
    return b'%s,"%s":[%s]}' % (encode_json(rest)[:-1], name.encode(), b",".join(parts))


def _shown(kind: str, event: Event) -> Entry:
    """Return the version that an event shows: the last one that was selected, of an object that left the selection."""
    left = kind == "DELETED" and not event.deleted and event.previous is not None
    return event.previous if left and event.previous is not None else event.entry


def error_line(error: StatusError) -> bytes:
    """Return the ERROR event that ends a watch."""
    return encode_json({"type": "ERROR", "object": error.to_json()}) + b"\n"


def json_response(obj: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> ApiResponse:
    return ApiResponse(status, {"content-type": "application/json", **(headers or {})}, encode_json(obj))


def error_response(error: StatusError) -> ApiResponse:
    headers: dict[str, str] = {}
    if "retryAfterSeconds" in error.details:
        headers["retry-after"] = str(error.details["retryAfterSeconds"])
    if error.code == 401:
        headers["www-authenticate"] = 'Bearer realm="anyvisor"'
    return json_response(error.to_json(), error.code, headers)
