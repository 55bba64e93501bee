"""Leader election by a Lease (coordination.k8s.io/v1), with client-go's rules and without its polling.

It is an optimization: two leaders at once, as after a long pause of the machine, must be harmless.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from anyvisor.api.meta import Json
from anyvisor.kube import errors
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import LEASES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a lease lasts unrenewed, how often it is renewed, and when its holder gives up."""

    duration: int = 15
    renew: float = 5.0
    deadline: float = 10.0
    retry: float = 1.0


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class Elector:
    """One candidate for the lease `namespace`/`name`; `identity` must be unique among them."""

    def __init__(self, client: Client, namespace: str, name: str, identity: str, terms: Terms | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._terms = terms or Terms()
        self._seen: _Spec | None = None
        self._seen_at = 0.0
        self._changed = asyncio.Event()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease and run `lead` while it is held; cancels `lead` and waits again when it is lost.

        Returns when `lead` does. Gives the lease back on return and on cancellation.
        """
        fields = f"metadata.name={self._name}"
        async with Informer(self._client, LEASES, self._namespace, fields=fields) as leases:
            leases.on_change(self._observe)
            await leases.synced.wait()
            while True:
                await self._acquire(leases)
                log.info("%s leads as %s", self._name, self._identity)
                if await self._lead(lead):
                    return

    def _observe(self, _old: CachedObject | None, new: CachedObject | None) -> None:
        spec = new.decode(_Lease).spec if new is not None else None
        if spec != self._seen:
            # Only our own clock counts from here: the clocks of candidates need not agree.
            self._seen, self._seen_at = spec, asyncio.get_running_loop().time()
        self._changed.set()

    def _free_in(self) -> float:
        """Seconds until the lease may be taken, as far as is known."""
        if self._seen is None or self._seen.holder_identity in (None, "", self._identity):
            return 0.0
        lasts = self._seen.lease_duration_seconds or self._terms.duration
        return max(0.0, self._seen_at + lasts - asyncio.get_running_loop().time())

    async def _acquire(self, leases: Informer) -> None:
        while True:
            self._changed.clear()
            wait = self._free_in()
            if wait == 0:
                try:
                    await self._take(leases.get(self._namespace, self._name))
                    return
                except errors.ApiError as error:
                    log.debug("%s: not acquired: %s", self._name, error)
                    wait = self._terms.retry
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _take(self, known: CachedObject | None) -> None:
        now = _now()
        spec: Json = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._terms.duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        if known is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            await self._client.create(LEASES, {"metadata": metadata, "spec": spec})
            return
        before = known.decode(_Lease).spec
        spec["leaseTransitions"] = (before.lease_transitions or 0) + 1
        if before.holder_identity == self._identity:
            spec["leaseTransitions"] = before.lease_transitions or 0
            spec["acquireTime"] = before.acquire_time or now
        await self._patch(spec, known.meta.resource_version)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead` under renewals; whether it came to its end."""
        ended = False
        try:
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew())
                await lead()
                ended = True
                renewal.cancel()
        except* _Lost as lost:
            log.warning("%s: %s lost the lease: %s", self._name, self._identity, lost.exceptions[0])
        finally:
            await asyncio.shield(self._release())
        return ended

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        renewed, pause = loop.time(), self._terms.renew
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout_at(renewed + self._terms.deadline):
                    await self._renew_once()
                renewed, pause = loop.time(), self._terms.renew
            except TimeoutError as error:
                raise _Lost("no renewal within the deadline") from error
            except errors.ApiError as error:
                log.debug("%s: not renewed, again soon: %s", self._name, error)
                pause = self._terms.retry

    async def _renew_once(self) -> None:
        lease = await self._client.get(LEASES, self._name, self._namespace)
        holder = lease.get("spec", {}).get("holderIdentity")
        if holder != self._identity:
            raise _Lost(f"{holder or 'nobody'} holds it")
        await self._patch({"renewTime": _now()}, lease["metadata"]["resourceVersion"])

    async def _release(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
            if lease.get("spec", {}).get("holderIdentity") == self._identity:
                spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._patch(spec, lease["metadata"]["resourceVersion"])
        except errors.ApiError as error:
            log.debug("%s: not released, it runs out by itself: %s", self._name, error)

    async def _patch(self, spec: Json, version: str) -> None:
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._client.patch(LEASES, self._name, self._namespace, patch)


class _Lost(Exception):  # noqa: N818 - ends the leadership, nothing else
    """Another candidate holds the lease, or it could not be renewed in time."""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
