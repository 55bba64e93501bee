"""Keeps the EndpointSlices of Services that select pods; told of changes by the API server in the same process."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Any, Final

from anyvisor.api.meta import Json, metadata, name, namespace, object_at
from anyvisor.embedded.apiserver.entries import Entry, Event
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.services import endpoints
from anyvisor.embedded.services.endpoints import MANAGED_LABEL, MANAGER, SERVICE_LABEL
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, Conflict, NotFound
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import ENDPOINT_SLICES

log = logging.getLogger(__name__)

SERVICES: Final = "services"
SLICES: Final = "discovery.k8s.io/endpointslices"
PODS: Final = "pods"
RETRY_SECONDS: Final = 0.1
Key = tuple[str, str]


class EndpointSlices:
    """Reads what the server has in memory; writes as everyone does."""

    def __init__(self, server: ApiServer, client: Client) -> None:
        self._server = server
        self._client = client
        self._queue: WorkQueue[Key] = WorkQueue()
        self._selectors: dict[str, dict[Key, Mapping[str, str]]] = {}
        """By namespace, as each change of a pod asks for them."""

    async def run(self) -> None:
        """Work until cancelled."""
        self._server.listen(self._changed)
        for entry in self._server.stored(SERVICES).range(None):
            self._service_changed(entry, deleted=False)
        await self._queue.run(self._reconcile)

    def _changed(self, store: str, event: Event) -> None:
        if store == SERVICES:
            self._service_changed(event.entry, deleted=event.deleted)
        elif store == PODS:
            self._pod_changed(event)
        elif store == SLICES:
            for entry in (event.entry, event.previous):
                if entry is not None and entry.labels.get(MANAGED_LABEL) == MANAGER:
                    self._queue.add((entry.key[0], entry.labels.get(SERVICE_LABEL, "")))

    def _service_changed(self, entry: Entry, *, deleted: bool) -> None:
        known = self._selectors.setdefault(entry.key[0], {})
        known.pop(entry.key, None)
        if not deleted:
            known[entry.key] = object_at(entry.object(), "spec", "selector")
        if not known:
            del self._selectors[entry.key[0]]
        self._queue.add(entry.key)

    def _pod_changed(self, event: Event) -> None:
        for key, selector in self._selectors.get(event.entry.key[0], {}).items():
            for entry in (event.entry, event.previous):
                if entry is not None and endpoints.selects(selector, entry.labels):
                    self._queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        entry = self._server.stored(SERVICES).entries.get(key)
        service = entry.object() if entry is not None else None
        if service is None or entry is None or entry.deleting:
            return None  # its slices go with it, as it owns them
        wanted: dict[str, Json] = {}
        selector = object_at(service, "spec", "selector")
        if selector and object_at(service, "spec").get("type") != "ExternalName":
            pods = [
                pod.object()
                for pod in self._server.stored(PODS).range(key[0])
                if endpoints.selects(selector, pod.labels)
            ]
            wanted = {name(each): each for each in endpoints.slices(service, pods)}
        try:
            await self._bring(key, wanted)
        except (AlreadyExists, Conflict):
            return RETRY_SECONDS
        return None

    async def _bring(self, key: Key, wanted: Mapping[str, Json]) -> None:
        present = {entry.key[1]: entry.object() for entry in self._own(key)}
        for slice_name, each in wanted.items():
            old = present.get(slice_name)
            if old is None:
                await self._client.create(ENDPOINT_SLICES, each)
            elif not _same(old, each):
                merged: Json = {**each, "metadata": {**metadata(old), **metadata(each)}}
                await self._client.update(ENDPOINT_SLICES, merged)
        for slice_name, old in present.items():
            if slice_name not in wanted:
                with contextlib.suppress(NotFound):
                    await self._client.delete(ENDPOINT_SLICES, name(old), namespace(old))

    def _own(self, key: Key) -> list[Entry]:
        return [
            entry
            for entry in self._server.stored(SLICES).range(key[0])
            if entry.labels.get(SERVICE_LABEL) == key[1] and entry.labels.get(MANAGED_LABEL) == MANAGER
        ]


def _same(old: Json, new: Json) -> bool:
    parts: tuple[Any, ...] = ("addressType", "endpoints", "ports")
    return all(old.get(part) == new.get(part) for part in parts) and metadata(old).get("labels") == metadata(new).get(
        "labels"
    )
