"""Gives claims of our storage class a volume, and takes it back with the claim.

What Kubernetes' volume controllers and an external provisioner do together, for one machine: a claim is bound at once,
is held by a finalizer while a pod uses it, and its disk is deleted after it. A claim that is to be filled is bound when
its disk is whole.
"""

import asyncio
import logging
from typing import Final

import msgspec

from anyvisor.api.meta import (
    Json,
    annotations,
    controller_of,
    is_deleting,
    list_at,
    metadata,
    name,
    namespace,
    object_at,
    text_at,
    uid,
)
from anyvisor.api.quantity import parse_quantity
from anyvisor.embedded.imports.data_volumes import DataVolumes
from anyvisor.embedded.imports.fetch import Job
from anyvisor.embedded.imports.fills import Fetch, Fill, Fills
from anyvisor.embedded.imports.kinds import DATA_VOLUMES, PROGRESS
from anyvisor.embedded.imports.resolve import Resolver, SourceMissingError
from anyvisor.embedded.imports.sources import SourceError
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import IN_USE, PROVISIONER, STORAGE_CLASS, volume_name
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, Conflict, NotFound
from anyvisor.kube.events import EventKind, EventRecorder, Reference
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PODS, PVCS, PVS

log = logging.getLogger(__name__)
Key = tuple[str, str]
_BY_CLAIM = "claim"
_FINISHED = ("Succeeded", "Failed")
_SOURCE_AGAIN_SECONDS = 5.0


class _ClaimReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    claim_name: str = ""


class _PodVolume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    persistent_volume_claim: _ClaimReference | None = None


class _PodSpec(msgspec.Struct, frozen=True, gc=False):
    volumes: tuple[_PodVolume, ...] = ()


class _Pod(msgspec.Struct, frozen=True, gc=False):
    """All that is read of a pod when it changes, which each pod does several times."""

    spec: _PodSpec = _PodSpec()


_NAMES_A_CLAIM: Final = b'"persistentVolumeClaim"'


class Provisioner:
    """One per machine; two at once are harmless, as names are the same in every attempt."""

    def __init__(self, client: Client, events: EventRecorder, disks: Disks) -> None:
        self._client = client
        self._events = events
        self._disks = disks
        self._claims = Informer(client, PVCS)
        self._volumes = Informer(client, PVS)
        self._pods = Informer(client, PODS, indexes={_BY_CLAIM: _claims_of})
        self._data_volumes = Informer(client, DATA_VOLUMES)
        self._resolver = Resolver(client, self._data_volumes)
        self._queue: WorkQueue[Key] = WorkQueue()

    async def run(self, fetch: Fetch) -> None:
        """Work until cancelled; `fetch` fills volumes."""
        async with self._claims as claims, self._volumes as volumes, self._pods as pods, self._data_volumes as imports:
            for cache in (claims, volumes, pods, imports):
                await cache.synced.wait()
            async with Fills(fetch, self._fill_changed).running() as self._fills, asyncio.TaskGroup() as group:
                self._importing = DataVolumes(self._client, self._events, imports, claims, self._fills)
                claims.on_change(self._claim_changed)
                pods.on_change(self._pod_changed)
                volumes.on_change(self._volume_changed)
                group.create_task(self._importing.run(), name="data volumes")
                await self._queue.run(self._reconcile)

    def user_of(self, space: str, claim: str) -> str:
        """A pod that uses a claim; empty when there is none."""
        users = self._pods.index(_BY_CLAIM, f"{space}/{claim}")
        return next((pod.meta.name for pod in users if not _is_finished(pod)), "")

    def _fill_changed(self, key: Key) -> None:
        self._queue.add(key)
        self._importing.changed(key)

    def _claim_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            if seen is not None:
                self._queue.add(seen.key)

    def _pod_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            for claim in _claims_of(seen) if seen is not None else ():
                space, _, claim_name = claim.partition("/")
                self._queue.add((space, claim_name))

    def _volume_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            if seen is not None:
                claim = object_at(seen.json(), "spec", "claimRef")
                self._queue.add((text_at(claim, "namespace"), text_at(claim, "name")))

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._claims.get(*key)
        claim = cached.json() if cached is not None else None
        await self._fills.keep_only(key, uid(claim) if claim is not None and not is_deleting(claim) else "")
        await self._reclaim(key, claim)
        if claim is None or not _is_ours(claim):
            return None
        try:
            if is_deleting(claim):
                await self._release(claim)
            elif text_at(claim, "status", "phase") == "Bound":
                self._fills.forget(uid(claim))
            elif await self._is_filled(claim):
                await self._bind(claim)
        except SourceError as error:
            self._warn(claim, str(error))
        except SourceMissingError as error:
            self._warn(claim, str(error))
            return _SOURCE_AGAIN_SECONDS
        except (Conflict, NotFound):
            return 0.1
        return None

    async def _is_filled(self, claim: Json) -> bool:
        """Whether the claim can be bound: its disk is whole, or is to be empty. Begins the fill."""
        if object_at(claim, "spec").get("selector"):
            raise SourceError(
                "spec.selector", "storage class local makes a new volume for each; leave the selector out"
            )
        contents = await self._resolver.contents(claim)
        volume = _volume(claim)
        if contents is None or await asyncio.to_thread(self._disks.is_there, name(volume)):
            return True
        # The volume comes first: with it, what is left of a claim that goes meanwhile is found and removed.
        await self._make(volume)
        size = parse_quantity(volume["spec"]["capacity"]["storage"]).value
        job = Job(uid(claim), namespace(claim), name(claim), name(volume), size, contents.source, contents.preallocate)
        fill = self._fills.ensure(job)
        if controller_of(claim) is None:
            await self._show(claim, fill)
        return fill.state == "done"

    async def _show(self, claim: Json, fill: Fill) -> None:
        """How far a claim without a DataVolume is, on itself."""
        if fill.message:
            self._warn(claim, fill.message)
        told = f"{fill.percent}.0%"
        if annotations(claim).get(PROGRESS) != told:
            patch: Json = {"metadata": {"annotations": {PROGRESS: told}, "uid": uid(claim)}}
            await self._client.patch(PVCS, name(claim), namespace(claim), patch)

    def _warn(self, claim: Json, message: str) -> None:
        self._events.record(_about(claim), EventKind.WARNING, "ProvisioningFailed", message)

    async def _make(self, volume: Json) -> None:
        try:
            await self._client.create(PVS, volume)
        except AlreadyExists:
            log.debug("volume %s was made before", name(volume))

    async def _bind(self, claim: Json) -> None:
        """Volume first, then the claim's spec with its finalizer, then the states: who sees a bound claim sees all."""
        volume = _volume(claim)
        await self._make(volume)
        finalizers = [*list_at(metadata(claim), "finalizers")]
        if IN_USE not in finalizers:
            finalizers.append(IN_USE)
        notes = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        patch: Json = {
            "metadata": {"finalizers": finalizers, "annotations": notes, "uid": uid(claim)},
            "spec": {"volumeName": name(volume), "storageClassName": STORAGE_CLASS},
        }
        await self._client.patch(PVCS, name(claim), namespace(claim), patch)
        await self._client.patch(PVS, name(volume), None, {"status": {"phase": "Bound"}}, subresource="status")
        spec = volume["spec"]
        status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
        await self._client.patch(PVCS, name(claim), namespace(claim), {"status": status}, subresource="status")
        message = f"volume {name(volume)} was made on this machine"
        self._events.record(_about(claim), EventKind.NORMAL, "ProvisioningSucceeded", message)

    async def _release(self, claim: Json) -> None:
        """Let a claim go that is to be deleted, once no pod uses it."""
        users = self._pods.index(_BY_CLAIM, f"{namespace(claim)}/{name(claim)}")
        finalizers = list_at(metadata(claim), "finalizers")
        if IN_USE not in finalizers or any(not _is_finished(pod) for pod in users):
            return
        left = [entry for entry in finalizers if entry != IN_USE]
        patch: Json = {"metadata": {"finalizers": left or None, "uid": uid(claim)}}
        await self._client.patch(PVCS, name(claim), namespace(claim), patch)

    async def _reclaim(self, key: Key, claim: Json | None) -> None:
        """Delete the volumes that were made for a claim of this name that is no more, with their disks."""
        for cached in self._volumes.values():
            volume = cached.json()
            owner = object_at(volume, "spec", "claimRef")
            if (text_at(owner, "namespace"), text_at(owner, "name")) != key or not _is_our_volume(volume):
                continue
            if claim is not None and uid(claim) == text_at(owner, "uid"):
                continue
            if text_at(volume, "spec", "persistentVolumeReclaimPolicy") != "Delete":
                continue
            await asyncio.to_thread(self._disks.remove, name(volume))
            try:
                await self._client.delete(PVS, name(volume))
            except NotFound:
                continue


def _claims_of(pod: CachedObject) -> tuple[str, ...]:
    if _NAMES_A_CLAIM not in pod.raw:
        return ()
    claims = [volume.persistent_volume_claim for volume in pod.decode(_Pod).spec.volumes]
    return tuple(f"{pod.meta.namespace}/{claim.claim_name}" for claim in claims if claim is not None)


def _is_finished(pod: CachedObject) -> bool:
    return text_at(pod.json(), "status", "phase") in _FINISHED


def _is_ours(claim: Json) -> bool:
    """Whether the claim asks for our class, or for none in particular and no volume of its own choice."""
    asked = object_at(claim, "spec").get("storageClassName")
    chosen = text_at(claim, "spec", "volumeName")
    return asked in (None, STORAGE_CLASS) and chosen in ("", volume_name(uid(claim)))


def _about(claim: Json) -> Reference:
    return Reference(PVCS.api_version, PVCS.kind, namespace(claim), name(claim), uid(claim))


def _is_our_volume(volume: Json) -> bool:
    return text_at(volume, "spec", "csi", "driver") == PROVISIONER


def _volume(claim: Json) -> Json:
    spec = object_at(claim, "spec")
    storage = text_at(spec, "resources", "requests", "storage")
    made = volume_name(uid(claim))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": made, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": {"storage": storage},
            "accessModes": list_at(spec, "accessModes") or ["ReadWriteOnce"],
            "volumeMode": spec.get("volumeMode") or "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": STORAGE_CLASS,
            "csi": {"driver": PROVISIONER, "volumeHandle": made},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace(claim),
                "name": name(claim),
                "uid": uid(claim),
            },
        },
    }
