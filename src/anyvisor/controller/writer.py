"""Carries the outcome of a pass out: patches with optimistic locking, creations, deletions, events."""

from typing import Final

from anyvisor.api.meta import Json, controller_of, name, namespace, object_at, resource_version, uid
from anyvisor.controller.outcome import Change, Create, Delete, Event, EventType, Outcome, Problem, Write
from anyvisor.controller.settling import joined
from anyvisor.kube import errors
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventKind, EventRecorder, Reference
from anyvisor.kube.resources import Resource

TRANSIENT: Final = (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Conflict)
"""Errors that say nothing about the object: tried again, and not shown on it."""


class RefusedError(Exception):
    """The server refuses a write for a reason that the object's owner has to know."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def merge_patch(before: Json, after: Json) -> Json:
    """The JSON merge patch (RFC 7386) from one object to another; lists are replaced as a whole.

    It shares values with `after`.
    """
    patch: Json = dict.fromkeys(before.keys() - after.keys())
    for key in after.keys() & before.keys():
        if isinstance(before[key], dict) and isinstance(after[key], dict):
            inner = merge_patch(object_at(before, key), object_at(after, key))
            if inner:
                patch[key] = inner
        elif before[key] != after[key]:
            patch[key] = after[key]
    patch |= {key: after[key] for key in after.keys() - before.keys()}
    return patch


class UnfinishedError(errors.ApiError):
    """A pass could not do what the object asks for and is tried again, ever more slowly."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(409, problem.reason, problem.message)


class Writer:
    """Writes for one reconciled object; later writes to an object stand on the result of earlier ones."""

    def __init__(self, client: Client, events: EventRecorder, resource: Resource, subject: Json) -> None:
        self._client = client
        self._events = events
        self._reference = Reference(
            resource.api_version,
            resource.kind,
            namespace(subject),
            name(subject),
            uid(subject),
            resource_version(subject),
        )
        self._versions: dict[tuple[str, str], str] = {}

    async def carry_out(self, outcome: Outcome) -> None:
        """Write everything in order.

        Raises:
            RefusedError: a creation or deletion was refused; what came after it is not written.
            ApiError: anything else; the pass is tried again.
        """
        for write in joined(outcome.writes):
            await self._write(write)
        for event in outcome.events:
            self._record(event)

    def version(self, resource: Resource, subject: Json) -> str:
        """The version of an object after what was written of it."""
        key = (resource.plural, f"{namespace(subject)}/{name(subject)}")
        return self._versions.get(key, resource_version(subject))

    async def _write(self, write: Write) -> None:
        match write:
            case Create():
                await self._create(write)
            case Delete():
                await self._delete(write)
            case Change():
                await self._change(write)

    async def _create(self, write: Create) -> None:
        try:
            await self._client.create(write.resource, write.object)
        except errors.AlreadyExists:
            await self._own(write)
            return
        except TRANSIENT:
            raise
        except errors.ApiError as cause:
            self._refuse(write.resource, write.object, write.failed, cause)
        self._record(write.done)

    async def _own(self, write: Create) -> None:
        """What has the name that we chose is ours, from an earlier pass or another acting instance."""
        found = await self._client.get(write.resource, name(write.object), namespace(write.object))
        owner, wanted = controller_of(found), controller_of(write.object)
        if owner is not None and wanted is not None and owner.get("uid") == wanted.get("uid"):
            return
        what = f"{write.resource.kind} {name(write.object)!r}"
        message = f"{what} exists already and belongs to something else; rename or delete one of the two."
        if write.failed:
            self._record(Event(EventType.WARNING, write.failed, message))
        raise RefusedError(Problem(write.failed or "FailedCreate", message))

    async def _delete(self, write: Delete) -> None:
        found = write.object
        try:
            await self._client.delete(
                write.resource, name(found), namespace(found), grace=write.grace, uid=uid(found) or None
            )
        except (errors.NotFound, errors.Conflict):
            return
        except TRANSIENT:
            raise
        except errors.ApiError as cause:
            self._refuse(write.resource, found, write.failed, cause)
        self._record(write.done)

    def _refuse(self, resource: Resource, obj: Json, reason: str, cause: errors.ApiError) -> None:
        message = f"{resource.kind} {name(obj)!r} was refused by the API server: {cause.message}"
        if not reason:
            raise cause
        self._record(Event(EventType.WARNING, reason, message))
        raise RefusedError(Problem(reason, message)) from cause

    async def _change(self, write: Change) -> None:
        before, after = write.before, write.after
        if write.status:
            patch = {"status": merge_patch(before.get("status") or {}, after.get("status") or {})}
            if write.metadata:
                patch |= merge_patch({"metadata": before["metadata"]}, {"metadata": after["metadata"]})
        else:
            patch = merge_patch(_without_version(before), _without_version(after))
        if not patch or patch == {"status": {}}:
            return
        key = (write.resource.plural, f"{namespace(before)}/{name(before)}")
        version = self._versions.get(key, resource_version(before))
        patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": version}
        subresource = "status" if write.status else None
        try:
            answer = await self._client.patch(
                write.resource, name(before), namespace(before), patch, subresource=subresource
            )
        except errors.NotFound:
            return
        self._versions[key] = resource_version(answer)

    def _record(self, event: Event | None) -> None:
        if event is not None:
            self._events.record(self._reference, EventKind(event.type.value), event.reason, event.message)


def _without_version(obj: Json) -> Json:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}
