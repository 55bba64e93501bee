"""Get, list and watch."""

import asyncio
import base64
import hashlib
import hmac
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from anyvisor.embedded.apiserver import selectors
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.entries import Entry, Event, Key, classify
from anyvisor.embedded.apiserver.params import flag, number
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.respond import View, error_line
from anyvisor.embedded.apiserver.selectors import Selector
from anyvisor.embedded.apiserver.state import Collection, State
from anyvisor.embedded.apiserver.status import StatusError, bad_request
from anyvisor.embedded.apiserver.watcher import Watcher

Json = dict[str, Any]

BOOKMARK_SECONDS = 60.0
WATCH_SECONDS = (1800, 3600)
CHUNK_BYTES = 256 << 10
PLACE = ("metadata.name", "metadata.namespace")
"""The fields that can be selected for every kind."""


def selector_of(resource: Resource, query: Mapping[str, str]) -> Selector:
    """Read both selectors of a request."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return selectors.EVERYTHING
    return selectors.parse(labels, fields, {*PLACE, *resource.selectable})


_MATCH = "resourceVersionMatch"


def _options(causes: list[st.Cause]) -> StatusError:
    return st.invalid("meta.k8s.io", "ListOptions", "", causes)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list."""

    items: list[bytes]
    metadata: Json


class _Token(msgspec.Struct):
    v: int
    n: str
    k: str


class Reader:
    """Answers reads from the state; `secret` signs continue tokens."""

    def __init__(self, state: State, secret: bytes) -> None:
        self._state = state
        self._secret = secret

    def get(self, resource: Resource, namespace: str, name: str, query: Mapping[str, str]) -> Entry:
        self._version(query)
        entry = self._state.collection(resource.store).entries.get((namespace, name))
        if entry is None:
            raise st.not_found(resource.group, resource.plural, name)
        return entry

    def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Page:
        """List objects. Raises a 400 or 410 Status."""
        selectors.read(query.get("labelSelector", ""), query.get("fieldSelector", ""))  # its form is judged first
        limit = number(query, "limit")
        version = self._version(query)
        selector = selector_of(resource, query)
        collection = self._state.collection(resource.store)
        match = query.get("resourceVersionMatch", "")
        start: Key | None = None
        if query.get("continue"):
            if version > 0:
                raise bad_request("specifying resource version is not allowed when using continue")
            version, start = self._read_token(query["continue"])
            entries = self._snapshot(collection, version, namespace, start, continued=True)
        elif match == "Exact":
            if version <= 0:
                raise _options([st.forbidden_field(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"')])
            entries = self._snapshot(collection, version, namespace, None, continued=False)
        else:
            version = self._state.visible
            entries = list(collection.range(namespace))
        return self._page(entries, selector, limit, version)

    def _page(self, entries: list[Entry], selector: Selector, limit: int, version: int) -> Page:
        found: list[bytes] = []
        metadata: Json = {"resourceVersion": str(version)}
        for index, entry in enumerate(entries):
            if not entry.matches(selector):
                continue
            if limit > 0 and len(found) == limit:
                metadata["continue"] = self._write_token(version, entry.key)
                if not selector:
                    metadata["remainingItemCount"] = len(entries) - index
                break
            found.append(entry.raw)
        return Page(found, metadata)

    def _snapshot(
        self, collection: Collection, version: int, namespace: str | None, start: Key | None, *, continued: bool
    ) -> list[Entry]:
        if version == self._state.visible:
            return list(collection.range(namespace, start))
        try:
            return collection.snapshot(version, namespace, start)
        except StatusError as error:
            if continued:
                raise st.expired(
                    "The provided continue parameter is too old to display a consistent list result. "
                    "You must start a new list without the continue parameter."
                ) from error
            raise

    def _version(self, query: Mapping[str, str]) -> int:
        text = query.get("resourceVersion", "")
        match = query.get(_MATCH, "")
        causes: list[st.Cause] = []
        if match and not text and not flag(query, "sendInitialEvents"):
            causes.append(st.forbidden_field(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if match not in ("", "Exact", "NotOlderThan"):
            causes.append(st.unsupported_value(_MATCH, f'"{match}"', ("Exact", "NotOlderThan", "")))
        if causes:
            raise _options(causes)
        if not text:
            return 0
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise bad_request(f'invalid resource version "{text}": it must be a number')
        version = int(text)
        if version > self._state.visible:
            error = StatusError(
                504,
                "Timeout",
                f"Too large resource version: {version}, current: {self._state.visible}",
                {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
                retry_after=1,
            )
            raise error
        return version

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, hashlib.sha256)[:12]

    def _write_token(self, version: int, key: Key) -> str:
        payload = msgspec.json.encode(_Token(version, *key))
        return base64.urlsafe_b64encode(self._sign(payload) + payload).decode()

    def _read_token(self, text: str) -> tuple[int, Key]:
        try:
            data = base64.urlsafe_b64decode(text)
            if not hmac.compare_digest(data[:12], self._sign(data[12:])):
                raise bad_request("continue key is not valid: it was not issued by this server")
            token = msgspec.json.decode(data[12:], type=_Token)
        except (ValueError, msgspec.DecodeError) as error:
            raise bad_request("continue key is not valid: start a new list without it") from error
        return token.v, (token.n, token.k)

    # -- watch ----------------------------------------------------------------------------------------------

    def watch(
        self, view: View, namespace: str | None, name: str | None, query: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """Start a watch; the result yields encoded events. Raises a Status before it starts."""
        resource = view.resource
        selector = selector_of(resource, query)
        initial = self._wants_initial(query)
        version = self._watch_version(query)
        collection = self._state.collection(resource.store)
        pinned = name or selector.required("metadata.name")
        where = selector.required("metadata.namespace") if namespace is None else namespace
        rest = selector.without(PLACE)
        watcher = Watcher(where, pinned, rest)
        first: list[tuple[str, Event]] | None = None
        entries: list[Entry] = []
        if initial is not False and (version == 0 or initial):
            entries = [entry for entry in collection.range(where) if _concerns(watcher, entry) and entry.matches(rest)]
        elif version > 0:
            first = [
                (kind, event)
                for event in collection.since(version)
                if _concerns(watcher, event.entry) and (kind := classify(event, rest)) is not None
            ]
        collection.watch(watcher)
        at = self._state.visible
        stream = _told(self._stream(view, collection, watcher, query, entries, first, at, end_mark=bool(initial)))
        return _Closing(stream, lambda: collection.unwatch(watcher))

    def _wants_initial(self, query: Mapping[str, str]) -> bool | None:
        if "sendInitialEvents" not in query:
            return None
        wanted = flag(query, "sendInitialEvents")
        if query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise _options([st.forbidden_field(_MATCH, why)])
        if wanted and not flag(query, "allowWatchBookmarks"):
            raise bad_request("sendInitialEvents needs allowWatchBookmarks, which marks the end of the initial events")
        return wanted

    def _watch_version(self, query: Mapping[str, str]) -> int:
        try:
            return self._version({**query, "resourceVersionMatch": ""})
        except StatusError as error:
            if error.code == 504:
                raise st.expired(
                    "the resourceVersion of the watch is newer than this server's data; list again"
                ) from error
            raise

    async def _stream(
        self,
        view: View,
        collection: Collection,
        watcher: Watcher,
        query: Mapping[str, str],
        entries: list[Entry],
        first: list[tuple[str, Event]] | None,
        at: int,
        *,
        end_mark: bool,
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        seconds = number(query, "timeoutSeconds") or random.randint(*WATCH_SECONDS)  # noqa: S311 - jitter
        end = loop.time() + seconds
        marks = flag(query, "allowWatchBookmarks")
        await view.prepare([entry.raw for entry in entries])
        for chunk in _chunks(view.lines(view.watch_line("ADDED", entry.raw) for entry in entries)):
            yield chunk
            await asyncio.sleep(0)
        if end_mark:
            yield view.bookmark(at, initial_end=True)
        if first:
            await view.prepare_events(first)
            for chunk in _chunks(view.lines(view.event(kind, event) for kind, event in first)):
                yield chunk
                await asyncio.sleep(0)
        mark_at = loop.time() + BOOKMARK_SECONDS
        while loop.time() < end:
            batch = await watcher.wait(min(end, mark_at) if marks else end)
            if watcher.cut_off:
                yield error_line(st.expired("the watch was too slow or its resource changed; list and watch again"))
                return
            if batch:
                await view.prepare_events(batch)
                for chunk in _chunks(view.lines(view.event(kind, event) for kind, event in batch)):
                    yield chunk
            elif marks:
                yield view.bookmark(self._state.visible)
            if loop.time() >= mark_at:
                mark_at = loop.time() + BOOKMARK_SECONDS


async def _told(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """End a watch that fails with an ERROR event that says why."""
    try:
        async for chunk in stream:
            yield chunk
    except StatusError as error:
        yield error_line(error)


def _concerns(watcher: Watcher, entry: Entry) -> bool:
    namespace, name = watcher.bucket
    return (namespace is None or entry.key[0] == namespace) and (name is None or entry.key[1] == name)


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines in chunks that are worth a write. They are made as they are needed."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        part.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


class _Closing:
    """An async iterator that runs a callback when it ends, also when it was never started."""

    def __init__(self, stream: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        self._stream = stream
        self._close = close

    def __aiter__(self) -> "AsyncIterator[bytes]":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._close()
            raise

    async def aclose(self) -> None:
        """End the watch."""
        self._close()
        closer = getattr(self._stream, "aclose", None)
        if closer is not None:
            await closer()
