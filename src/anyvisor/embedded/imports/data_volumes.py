"""DataVolumes: their claims, and their status from what the claims are filled with."""

import logging
from datetime import UTC, datetime

from anyvisor.api.meta import Json, is_deleting, name, namespace, object_at, text_at
from anyvisor.embedded.imports import sources
from anyvisor.embedded.imports.claims import asked, claim_of
from anyvisor.embedded.imports.fills import Fills, Key
from anyvisor.embedded.imports.kinds import DATA_VOLUMES
from anyvisor.embedded.imports.sources import FromClaim, SourceError
from anyvisor.embedded.imports.status import FAILED, PENDING, SUCCEEDED, is_own, status_of, verb
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from anyvisor.kube.events import EventKind, EventRecorder, reference
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import PVCS

log = logging.getLogger(__name__)

_QUOTA = "exceeded quota"


class DataVolumes:
    """Two at once are harmless: a claim has the name of its DataVolume."""

    def __init__(
        self, client: Client, events: EventRecorder, volumes: Informer, claims: Informer, fills: Fills
    ) -> None:
        self._client, self._events = client, events
        self._volumes, self._claims, self._fills = volumes, claims, fills
        self._queue: WorkQueue[Key] = WorkQueue()
        self._waiting: dict[Key, set[Key]] = {}
        """Claims whose size is waited for, and by which DataVolumes."""

    async def run(self) -> None:
        """Work until cancelled."""
        self._volumes.on_change(self._volume_changed)
        self._claims.on_change(self._claim_changed)
        await self._queue.run(self._reconcile)

    def changed(self, key: Key) -> None:
        """There is news of the fill of a claim."""
        self._queue.add(key)

    def _volume_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            if seen is not None:
                self._queue.add(seen.key)

    def _claim_changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        for seen in (old, new):
            if seen is None:
                continue
            self._queue.add(seen.key)
            for key in self._waiting.pop(seen.key, ()):
                self._queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        cached = self._volumes.get(*key)
        volume = cached.json() if cached is not None else None
        if cached is None or volume is None or is_deleting(volume):
            return None
        claim = self._claim(key)
        problem = ("", "")
        if claim is None and text_at(volume, "status", "phase") == SUCCEEDED:
            problem = ("ClaimLost", f"claim {key[1]} is gone; delete the DataVolume, and make it anew")
        elif claim is None:
            problem = await self._make_claim(volume)
        elif not is_own(volume, claim):
            problem = ("ErrResourceExists", f"there is a claim {key[1]} that is not this DataVolume's; rename one")
        fill = self._fills.get(claim["metadata"]["uid"]) if claim is not None else None
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = status_of(volume, claim, fill, problem, now)
        if status == object_at(volume, "status"):
            return None
        patch: Json = {"metadata": {"uid": volume["metadata"]["uid"]}, "status": status}
        try:
            await self._client.patch(DATA_VOLUMES, key[1], key[0], patch, subresource="status")
        except (NotFound, Conflict):
            return None
        self._tell(cached, volume, status, verb(fill))
        return None

    def _claim(self, key: Key) -> Json | None:
        found = self._claims.get(*key)
        return found.json() if found is not None else None

    async def _make_claim(self, volume: Json) -> tuple[str, str]:
        """Reason and message of why it cannot be made; both empty where it was."""
        spec = object_at(volume, "spec")
        try:
            source = sources.of_data_volume(spec, namespace(volume))
            asked(spec)
        except SourceError as error:
            return "Invalid", str(error)
        size = None
        if isinstance(source, FromClaim):
            copied = (namespace(volume), source.name)
            found = self._claim(copied) or {}
            size = object_at(found, "status", "capacity").get("storage")
            if size is None and _is_sizeless(spec):
                self._waiting.setdefault(copied, set()).add((namespace(volume), name(volume)))
                return "NotFound", f"claim {source.name}, which is to be copied, has no volume yet; create it"
        try:
            await self._client.create(PVCS, claim_of(volume, size))
        except AlreadyExists:
            return "", ""
        except (Forbidden, Invalid) as error:
            return "ErrExceededQuota" if _QUOTA in str(error) else "ErrClaimNotValid", str(error)
        except ApiError as error:
            log.warning("the claim of DataVolume %s/%s: %s", namespace(volume), name(volume), error)
            raise
        return "", ""

    def _tell(self, cached: CachedObject, volume: Json, status: Json, done: str) -> None:
        """Events of what became different."""
        about, before, phase = reference(DATA_VOLUMES, cached), object_at(volume, "status"), status["phase"]
        title = name(volume)
        failure = _failure(status)
        if failure and failure != _failure(before):
            self._events.record(about, EventKind.WARNING, *failure)
        if phase in (before.get("phase"), PENDING, FAILED):
            return
        if phase == SUCCEEDED:
            past = "cloned" if done == "Clone" else "imported"
            self._events.record(about, EventKind.NORMAL, f"{done}Succeeded", f"Successfully {past} into PVC {title}")
        else:
            state = "scheduled" if phase.endswith("Scheduled") else "in progress"
            self._events.record(about, EventKind.NORMAL, phase, f"{done} into {title} {state}")


def _is_sizeless(spec: Json) -> bool:
    _, wanted = asked(spec)
    return object_at(wanted, "resources", "requests").get("storage") is None


def _failure(status: Json) -> tuple[str, str] | None:
    """Reason and message of the condition that speaks of a failure."""
    for kind, calm in (("Running", ("", "Completed")), ("Bound", ("", "Pending", "Bound", "NotFound"))):
        for one in status.get("conditions") or ():
            if one.get("type") == kind and one.get("reason") not in calm and one.get("message"):
                return str(one["reason"]), str(one["message"])
    return None
