"""What stands before the handler for every request: limits, deadline, metrics and audit.

Limits are per user: one who has too much in progress gets 429, and what everybody has in progress is carried out in
turns (`fair`), so that one who misbehaves only makes itself wait. Watches are counted apart, since they last.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import prometheus_client as prometheus

from anyvisor.embedded.apiserver.config import Exporter, ServerConfig
from anyvisor.embedded.apiserver.fair import FairQueue
from anyvisor.embedded.apiserver.handler import verb_of
from anyvisor.embedded.apiserver.identity import ANONYMOUS, ApiRequest, ApiResponse
from anyvisor.embedded.apiserver.objectmeta import new_uid
from anyvisor.embedded.apiserver.params import Target, parse_path, parse_query
from anyvisor.embedded.apiserver.respond import error_response
from anyvisor.embedded.apiserver.reviews import user_info
from anyvisor.embedded.apiserver.status import StatusError

Json = dict[str, Any]
Handle = Callable[[ApiRequest], Awaitable[ApiResponse]]

VERBS = frozenset(
    {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head"}
)
"""What may be a label: names that a client makes up must not fill the memory of the metrics."""
COMPONENTS = "system:anyvisor:"
"""Users of ours: they wait for no turn, since requests of others wait for theirs (aggregated ones, for example)."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30, 60)


class Metrics:
    """The server's own measurements."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.requests = prometheus.Counter(
            "apiserver_request", "Requests answered", ("verb", "group", "resource", "code"), registry=self.registry
        )
        self.seconds = prometheus.Histogram(
            "apiserver_request_duration_seconds",
            "Time to answer, watches apart",
            ("verb",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.watches = prometheus.Gauge("apiserver_registered_watchers", "Open watches", registry=self.registry)
        self.in_flight = prometheus.Gauge(
            "apiserver_current_inflight_requests", "Requests in progress, watches apart", registry=self.registry
        )
        self.rejected = prometheus.Counter(
            "apiserver_rejected_requests", "Requests refused by a limit", registry=self.registry
        )

    async def text(self, others: Sequence[Exporter]) -> bytes:
        """Return the exposition in Prometheus' text format, with that of others."""
        return prometheus.generate_latest(self.registry) + b"".join([await other() for other in others])


class Front:
    """Applies the limits of a configuration to a handler."""

    def __init__(self, config: ServerConfig, handle: Handle, metrics: Metrics) -> None:
        self._config = config
        self._handle = handle
        self._metrics = metrics
        self._running: Counter[str] = Counter()
        self._watches: Counter[str] = Counter()
        self._turns = FairQueue(config.max_running, max(1, config.max_running // 2))

    async def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer a request within the limits."""
        started = time.perf_counter()
        target, verb = describe(request)
        audit_id = request.request.headers.get("audit-id") or new_uid()
        response = await self._limited(request, verb)
        response.headers["audit-id"] = audit_id
        metrics = self._metrics
        shown = verb if verb in VERBS else "other"
        known = target if response.status < 400 else Target("")
        metrics.requests.labels(shown, known.group, known.resource, str(response.status)).inc()
        if response.stream is None:
            metrics.seconds.labels(shown).observe(time.perf_counter() - started)
        if self._config.audit is not None:
            self._config.audit(_audit_event(request, target, verb, response.status, audit_id))
        return response

    async def _limited(self, request: ApiRequest, verb: str) -> ApiResponse:
        user = request.identity.user
        if verb == "watch":
            return await self._watch(request, user)
        if request.identity is not ANONYMOUS and self._running[user] >= self._config.max_requests_per_user:
            return self._refuse(f"user {user!r} has {self._running[user]} requests in progress; try again later")
        self._running[user] += 1
        self._metrics.in_flight.inc()
        try:
            async with asyncio.timeout(self._config.request_seconds):
                return await self._in_turn(request, user)
        except TimeoutError:
            error = StatusError(
                504,
                "Timeout",
                f"the request was not finished within {self._config.request_seconds:g} seconds; "
                "it may have been carried out: read the object before trying again",
            )
            return error_response(error)
        finally:
            self._metrics.in_flight.dec()
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]

    async def _in_turn(self, request: ApiRequest, user: str) -> ApiResponse:
        if request.identity is ANONYMOUS or user.startswith(COMPONENTS):
            return await self._handle(request)
        async with self._turns.seat(user):
            return await self._handle(request)

    async def _watch(self, request: ApiRequest, user: str) -> ApiResponse:
        most = self._config.max_watches
        if self._watches.total() >= most:
            return self._refuse(f"the server has {most} open watches; try again later")
        if self._watches[user] >= max(1, most // 2):
            return self._refuse(f"user {user!r} has {self._watches[user]} open watches; end some of them")
        response = await self._handle(request)
        if response.stream is not None:
            response.stream = _Counted(response.stream, self, user)
        return response

    def _refuse(self, why: str) -> ApiResponse:
        self._metrics.rejected.inc()
        return error_response(StatusError(429, "TooManyRequests", why, retry_after=1))

    def count_watch(self, user: str, change: int) -> None:
        """Note that a watch began or ended."""
        self._watches[user] += change
        if not self._watches[user]:
            del self._watches[user]
        self._metrics.watches.inc(change)


class _Counted:
    """A stream that counts as an open watch until it ends."""

    def __init__(self, stream: AsyncIterator[bytes], front: Front, user: str) -> None:
        self._stream = stream
        self._front = front
        self._user = user
        self._open = True
        front.count_watch(user, 1)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._open:
            self._open = False
            self._front.count_watch(self._user, -1)

    async def aclose(self) -> None:
        """End the stream."""
        self._end()
        close = getattr(self._stream, "aclose", None)
        if close is not None:
            await close()


def describe(request: ApiRequest) -> tuple[Target, str]:
    """Return what a request is about; malformed queries are refused later, by the handler."""
    target = parse_path(request.request.path)
    try:
        query = parse_query(request.request.query)
    except StatusError:
        query = {}
    return target, verb_of(request.request.method, target, query) if target.resource else request.request.method.lower()


def _audit_event(request: ApiRequest, target: Target, verb: str, status: int, audit_id: str) -> Json:
    event: Json = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": audit_id,
        "stage": "ResponseComplete",
        "requestURI": request.request.path + (f"?{request.request.query}" if request.request.query else ""),
        "verb": verb,
        "user": user_info(request.identity),
        "userAgent": request.request.headers.get("user-agent", ""),
        "responseStatus": {"metadata": {}, "code": status},
        "stageTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    if "impersonate-user" in request.request.headers:
        event["impersonatedUser"] = {"username": request.request.headers["impersonate-user"]}
    if target.resource:
        reference = {
            "resource": target.resource,
            "namespace": target.namespace,
            "name": target.name,
            "apiGroup": target.group,
            "apiVersion": target.version,
            "subresource": target.subresource,
        }
        event["objectRef"] = {name: value for name, value in reference.items() if value}
    return event
