"""One API server: its parts put together, started and stopped."""

import asyncio
import copy
import hashlib
import hmac
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from anyvisor.embedded.apiserver import backup, bootstrap, crd_rules
from anyvisor.embedded.apiserver.actions import Actions
from anyvisor.embedded.apiserver.admission import AdmissionPlugin
from anyvisor.embedded.apiserver.aggregator import Aggregator
from anyvisor.embedded.apiserver.builtin import built_in, reviews
from anyvisor.embedded.apiserver.callout import Callout
from anyvisor.embedded.apiserver.calls import Call
from anyvisor.embedded.apiserver.component_roles import component_roles
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.controllers import Controllers
from anyvisor.embedded.apiserver.definitions import NamesCheck
from anyvisor.embedded.apiserver.escalation import EscalationCheck
from anyvisor.embedded.apiserver.front import Front, Metrics
from anyvisor.embedded.apiserver.furnishing import Furnishing
from anyvisor.embedded.apiserver.handler import Handler, attributes, verb_of
from anyvisor.embedded.apiserver.http import Shell, lower_headers
from anyvisor.embedded.apiserver.identity import ANONYMOUS, MASTERS, Identity
from anyvisor.embedded.apiserver.impersonation import impersonated
from anyvisor.embedded.apiserver.inprocess import InProcessTransport
from anyvisor.embedded.apiserver.nodes import NodeRestriction, may_read
from anyvisor.embedded.apiserver.objects import Objects
from anyvisor.embedded.apiserver.params import WriteOptions, parse_path, parse_query
from anyvisor.embedded.apiserver.quota import LimitRanger, QuotaCheck
from anyvisor.embedded.apiserver.rbac import Authorizer
from anyvisor.embedded.apiserver.reads import Reader
from anyvisor.embedded.apiserver.resource import Registry, Resource
from anyvisor.embedded.apiserver.respond import error_response
from anyvisor.embedded.apiserver.reviews import Reviews
from anyvisor.embedded.apiserver.service_addresses import ServiceAddresses
from anyvisor.embedded.apiserver.state import Collection, Listener, State
from anyvisor.embedded.apiserver.status import StatusError, unauthorized
from anyvisor.embedded.apiserver.store import Store
from anyvisor.embedded.apiserver.tokens import AUDIENCE, BINDABLE, Tokens, identity_of, load_key
from anyvisor.embedded.apiserver.webhooks import Webhooks
from anyvisor.embedded.apiserver.writes import Writer

Json = dict[str, Any]

LOOPBACK = Identity("system:apiserver", (MASTERS,)).with_authenticated()
"""The server's own identity, for what it installs at start."""


class ApiServer:
    """An async context manager: inside it, the server answers in-process requests and may listen on sockets.

    Nothing is opened and no thread runs before it is entered, so it may be made before a fork.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._config = replace(config, crds=())
        self._crds = config.crds
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        store = Store(self._config.database)
        store.open()
        key = load_key(self._config.database.with_name("signing.key"))
        self._assemble(store, key)
        self._state.load()
        self._controllers.load()
        self._state.start()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._running = [
            self._tasks.create_task(self._controllers.run(), name="apiserver-controllers"),
            self._tasks.create_task(self._controllers.expire_events(), name="apiserver-event-expiry"),
            self._tasks.create_task(self._aggregator.run(), name="apiserver-aggregator"),
        ]
        await self._shell.start()
        await self._install()
        self._handler.ready = True
        self._handler.note = store.note
        return self

    def _assemble(self, store: Store, key: bytes) -> None:
        config = self._config
        self._state = State(store)
        self._registry = Registry()
        for resource in [*built_in(), *reviews()]:
            self._registry.add(resource)
            if resource.selectable and resource.store:
                self._state.register_fields(resource.store, resource.read_fields)
        self._authorizer = Authorizer(self._state)
        self._callout = Callout(self._state)
        self._webhooks = [Webhooks(self._state, self._callout, phase) for phase in ("mutating", "validating")]
        self._writer = Writer(self._state, self._plugins())
        self._controllers = Controllers(
            self._state,
            self._registry,
            self._writer,
            Furnishing(config.namespace_objects, self._state, self._registry, self._writer),
            self._callout,
        )
        self._tokens = Tokens(key)
        self._aggregator = Aggregator(self._state, config.front_proxy)
        metrics = Metrics()
        self._handler = Handler(
            config,
            self._registry,
            self._authorizer,
            Objects(self._state, Reader(self._state, hmac.digest(key, b"continue", hashlib.sha256)), self._writer),
            Actions(self._state, self._writer, self._tokens, config),
            Reviews(self._authorizer, self.lookup_token),
            self._aggregator,
            partial(metrics.text, config.exporters),
            partial(may_read, self._state),
        )
        self._front = Front(config, self._handler.handle, metrics)
        pages = config.pages(lambda token: self.lookup_token(token) is not None) if config.pages is not None else None
        self._shell = Shell(self._front.handle, self._upgrade, self.lookup_token, pages)

    def _plugins(self) -> list[AdmissionPlugin]:
        return [
            NamesCheck(self._registry),
            *self._config.admission,
            ServiceAddresses(self._state, self._config.service_network),
            LimitRanger(self._state),
            NodeRestriction(),
            EscalationCheck(self._authorizer),
            *self._webhooks,
            QuotaCheck(self._state, self._registry.stored),
        ]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handler.ready = False
        await self._shell.close()
        assert self._tasks is not None
        for task in self._running:
            task.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._aggregator.close()
        await self._callout.close()
        await self._state.close()

    async def serve(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a bound socket. For client certificates `tls` must ask for them (CERT_OPTIONAL)."""
        await self._shell.listen(sock, tls)

    def inprocess(self, identity: Identity) -> InProcessTransport:
        """Return a transport that sends requests as `identity`."""
        return InProcessTransport(self._front.handle, identity)

    @property
    def handler(self) -> Handler:
        """The handler without its HTTP shell."""
        return self._handler

    def stored(self, store: str) -> Collection:
        """Return the objects of one resource (`group/plural`) as they are now, for lookups in process."""
        return self._state.collection(store)

    @property
    def version(self) -> int:
        """Counts every change of every object, those that are on their way to the disk included."""
        return self._state.assigned

    def listen(self, listener: Listener) -> None:
        """Have every visible change told, for controllers in process."""
        self._state.listen(listener)

    async def backup(self, target: Path) -> None:
        """Write a consistent copy of all objects to a new file, while requests go on. Raises StoreError."""
        await asyncio.get_running_loop().run_in_executor(None, backup.take, self._config.database, target)

    def lookup_token(self, token: str) -> Identity | None:
        """Return the user of a bearer token; None when it is not valid any more."""
        for known, identity in self._config.static_tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return identity.with_authenticated()
        claims = self._tokens.check(token)
        if claims is None or AUDIENCE not in claims.audiences:
            return None
        account = self._state.collection("serviceaccounts").latest((claims.namespace, claims.account))
        if account is None or account.uid != claims.uid:
            return None
        bound = claims.bound
        if bound is not None:
            namespace = "" if bound.kind == "Node" else claims.namespace
            holder = self._state.collection(BINDABLE[bound.kind]).latest((namespace, bound.name))
            if holder is None or holder.uid != bound.uid:
                return None
        return identity_of(claims)

    async def _upgrade(self, request: web.Request, identity: Identity) -> web.StreamResponse | None:
        """Hand an upgrade to the aggregated group that serves it, once it is authorized."""
        target = parse_path(request.rel_url.raw_path)
        route = self._handler.aggregated(target.group, target.version)
        outside = self._aggregator.service(target.group, target.version)
        if outside is None and (route is None or route.stream is None):
            return None
        verb = verb_of(request.method, target, parse_query(request.rel_url.raw_query_string))
        try:
            if identity is ANONYMOUS:
                raise unauthorized()
            identity = impersonated(identity, lower_headers(request), self._handler.authorize)
            self._handler.authorize(identity, attributes(verb, target))
            if outside is not None:
                return await self._aggregator.upgrade(outside, request, identity)
        except StatusError as error:
            answer = error_response(error)
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        assert route is not None
        assert route.stream is not None
        return await route.stream(request, identity)

    # -- what is installed at start -------------------------------------------------------------------------

    async def _install(self) -> None:
        await self._ensure(bootstrap.namespaces())
        await self._ensure([*bootstrap.default_roles(), *component_roles()])
        await self.install_crds(self._crds)
        self._crds = ()  # megabytes, and now stored
        await self._ensure(self._config.objects)
        await self._controllers.aggregate_roles()

    async def install_crds(self, crds: Sequence[Json]) -> None:
        """Create the given CustomResourceDefinitions, or bring those that exist up to date."""
        resource = self._registry.find(crd_rules.GROUP, "v1", crd_rules.PLURAL)
        assert resource is not None
        collection = self._state.collection(crd_rules.STORE)
        async with asyncio.TaskGroup() as group:
            for crd in crds:
                wanted = copy.deepcopy(crd)
                wanted.pop("status", None)
                crd_rules.set_defaults(wanted)
                name = wanted["metadata"]["name"]
                entry = collection.entries.get(("", name))
                if entry is None:
                    group.create_task(self._writer.create(self._own_call(resource, wanted), wanted))
                elif entry.object().get("spec") != wanted["spec"]:
                    group.create_task(self._replace_crd(resource, wanted))

    async def _replace_crd(self, resource: Resource, wanted: Json) -> None:
        def change(old: Json) -> Json:
            old["spec"] = wanted["spec"]
            return old

        await self._writer.update(self._own_call(resource, wanted), change)

    async def _ensure(self, objects: Sequence[Json]) -> None:
        async with asyncio.TaskGroup() as group:
            for obj in objects:
                made = copy.deepcopy(obj)
                api_version: str = made["apiVersion"]
                its_group, _, version = api_version.rpartition("/")
                resource = self._registry.find_kind(its_group, version, made["kind"])
                if resource is None:
                    raise ValueError(f"cannot install {made['kind']} of {api_version}: it is not served")
                call = self._own_call(resource, made)
                entry = self._state.collection(resource.store).latest((call.namespace, call.name))
                if entry is None:
                    group.create_task(self._writer.create(call, made))
                elif bootstrap.is_outdated(entry.object(), made):
                    group.create_task(self._writer.update(call, bootstrap.renewal(made)))

    def _own_call(self, resource: Resource, obj: Json) -> Call:
        metadata: Json = obj["metadata"]
        namespace = metadata.get("namespace", "") if resource.namespaced else ""
        return Call(resource, LOOPBACK, WriteOptions(field_manager="anyvisor"), namespace, metadata["name"])
