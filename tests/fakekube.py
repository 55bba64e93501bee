"""A small Kubernetes API server on loopback: real HTTP, objects in dicts, watches with a history.

It is written from the API's documentation, not from our client, and can be told to misbehave.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from aiohttp import web

Obj = dict[str, Any]


class FakeServer:
    """State and knobs; `url` is set while it serves."""

    def __init__(self) -> None:
        self.url = ""
        self.rv = 100
        self.objects: dict[str, dict[str, Obj]] = defaultdict(dict)
        self.history: dict[str, list[tuple[int, Obj]]] = defaultdict(list)
        self.changed = asyncio.Event()
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.called = asyncio.Event()
        self.compacted = 0
        """Watches from an older resourceVersion are answered 410."""
        self.gone_as_event = False
        self.watch_list = True
        self.ignore_watch_list = False
        self.watches = 0
        self.drop_watches = asyncio.Event()
        self.failures: list[tuple[int, Obj, dict[str, str]]] = []
        """Answers to give, in order, instead of the right ones."""
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self.handle
        """Answers requests; may be replaced by what answers some of them otherwise."""
        self.garbage: bytes | None = None
        """Sent on the next watch instead of events."""

    def put(self, plural: str, name: str, namespace: str = "default", **fields: Any) -> Obj:
        """Store an object and tell the watchers."""
        self.rv += 1
        old = self.objects[plural].get(f"{namespace}/{name}")
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **fields.pop("metadata", {})}
        obj = {"metadata": {**metadata, "resourceVersion": str(self.rv)}, **fields}
        self.objects[plural][f"{namespace}/{name}"] = obj
        self._emit(plural, "MODIFIED" if old else "ADDED", obj)
        return obj

    def remove(self, plural: str, name: str, namespace: str = "default", *, silent: bool = False) -> None:
        """Delete an object; `silent` = no watcher hears of it (as over a broken watch)."""
        self.rv += 1
        obj = self.objects[plural].pop(f"{namespace}/{name}")
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.rv)}}
        if not silent:
            self._emit(plural, "DELETED", obj)

    def bookmark(self, plural: str) -> None:
        self.rv += 1
        self._emit(plural, "BOOKMARK", {"metadata": {"resourceVersion": str(self.rv)}})

    def cut(self) -> None:
        """End every watch once what happened is sent."""
        self.drop_watches.set()
        self.drop_watches = asyncio.Event()
        self.changed.set()
        self.changed = asyncio.Event()

    def _emit(self, plural: str, kind: str, obj: Obj) -> None:
        self.history[plural].append((self.rv, {"type": kind, "object": obj}))
        self.changed.set()
        self.changed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.calls.append((request.method, request.path, dict(request.query), json.loads(body) if body else None))
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        self.called.set()
        if self.failures:
            code, status, headers = self.failures.pop(0)
            return web.json_response(status, status=code, headers=headers)
        parts = request.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        plural, name = rest[0], rest[1] if len(rest) > 1 else None
        if request.query.get("watch") == "true":
            return await self._watch(request, plural)
        if request.method == "GET" and name is None:
            return self._list(request, plural)
        if rest[-1] == "binding":
            return self._bind(request, str(name), json.loads(body))
        return self._object(request, plural, name, body)

    def _object(self, request: web.Request, plural: str, name: str | None, body: bytes) -> web.Response:
        namespace = request.path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in request.path else ""
        data: Any = json.loads(body) if body else {}
        name = name or data.get("metadata", {}).get("name")
        key = f"{namespace}/{name}"
        stored = self.objects[plural].get(key)
        if request.method == "POST":
            if stored:
                return _status(409, "AlreadyExists", f"{plural} {name!r} already exists")
            meta = data.pop("metadata", {})
            return web.json_response(self.put(plural, str(name), namespace, metadata=meta, **data), status=201)
        if stored is None:
            return _status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "DELETE":
            self.remove(plural, str(name), namespace)
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.method == "PUT":
            version = data["metadata"].get("resourceVersion")
            if version and version != stored["metadata"]["resourceVersion"]:
                return _status(409, "Conflict", "the object has been modified")
            meta = data.pop("metadata")
            return web.json_response(self.put(plural, str(name), namespace, metadata=meta, **data))
        if request.method == "PATCH":
            merged = merge(stored, cast("Obj", data)) if isinstance(data, dict) else stored
            meta = merged.pop("metadata")
            return web.json_response(self.put(plural, str(name), namespace, metadata=meta, **merged))
        return web.json_response(stored)

    def _bind(self, request: web.Request, name: str, binding: Obj) -> web.Response:
        namespace = request.path.split("/namespaces/")[1].split("/")[0]
        stored = self.objects["pods"].get(f"{namespace}/{name}")
        if stored is None:
            return _status(404, "NotFound", f"pods {name!r} not found")
        if stored.get("spec", {}).get("nodeName"):
            return _status(409, "Conflict", "pod is already assigned to a node")
        meta = stored["metadata"]
        spec = {**stored.get("spec", {}), "nodeName": binding["target"]["name"]}
        self.put("pods", name, namespace, metadata=meta, **{**_rest(stored), "spec": spec})
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    def _list(self, request: web.Request, plural: str) -> web.Response:
        items = sorted(self.objects[plural].values(), key=lambda obj: obj["metadata"]["name"])
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 500)
        page = items[start : start + limit]
        more = str(start + limit) if start + limit < len(items) else ""
        return web.json_response(
            {"kind": "List", "metadata": {"resourceVersion": str(self.rv), "continue": more}, "items": page}
        )

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        self.watches += 1
        version = request.query.get("resourceVersion") or ""
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and not self.watch_list:
            return _status(422, "Invalid", "sendInitialEvents is forbidden for watch")
        if version and int(version) < self.compacted and not self.gone_as_event:
            return _status(410, "Expired", "too old resource version")
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        if self.garbage is not None:
            await response.write(self.garbage)
            self.garbage = None
            return response
        if version and int(version) < self.compacted:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await _send(response, {"type": "ERROR", "object": status})
            return response
        seen = int(version) if version else self.rv
        if initial and not self.ignore_watch_list:
            await self._initial(response, plural)
            seen = self.rv
        await self._follow(response, plural, seen)
        return response

    async def _initial(self, response: web.StreamResponse, plural: str) -> None:
        for obj in sorted(self.objects[plural].values(), key=lambda o: o["metadata"]["resourceVersion"], reverse=True):
            await _send(response, {"type": "ADDED", "object": obj})
        mark = {"resourceVersion": str(self.rv), "annotations": {"k8s.io/initial-events-end": "true"}}
        await _send(response, {"type": "BOOKMARK", "object": {"metadata": mark}})

    async def _follow(self, response: web.StreamResponse, plural: str, seen: int) -> None:
        drop = self.drop_watches
        while True:
            changed, last = self.changed, drop.is_set()
            for rv, event in list(self.history[plural]):
                if rv > seen:
                    seen = rv
                    await _send(response, event)
            if last:
                return
            await changed.wait()

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait for the requests that make `predicate()` hold."""
        async with asyncio.timeout(5):
            while not predicate():
                self.called.clear()
                await self.called.wait()


def _rest(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key not in ("metadata", "spec")}


async def _send(response: web.StreamResponse, event: Obj) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)


def merge(target: Obj, patch: Obj) -> Obj:
    """RFC 7386."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(old := result.get(key), dict):
            result[key] = merge(cast("Obj", old), cast("Obj", value))
        else:
            result[key] = value
    return result


@asynccontextmanager
async def serve(server: FakeServer) -> AsyncGenerator[FakeServer]:
    """Serve on a free loopback port."""
    app = web.Application()

    async def answer(request: web.Request) -> web.StreamResponse:
        return await server.answer(request)

    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        server.cut()
        await runner.cleanup()
