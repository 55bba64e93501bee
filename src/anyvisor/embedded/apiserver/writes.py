"""Create, update, patch, apply and delete: the rules that hold for every kind."""

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyvisor.embedded.apiserver import apply as ssa
from anyvisor.embedded.apiserver import schema as schemas
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.admission import (
    AdmissionPlugin,
    AdmissionRequest,
    Operation,
    refusal,
)
from anyvisor.embedded.apiserver.builtin_types import object_meta
from anyvisor.embedded.apiserver.deletion import is_finished, mark_deleted
from anyvisor.embedded.apiserver.entries import Entry, Key, encode
from anyvisor.embedded.apiserver.fieldset import FieldSet
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.objectmeta import check_metadata, new_uid, now_text, restore_metadata
from anyvisor.embedded.apiserver.params import DeleteOptions, WriteOptions
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.rules import broken_rules
from anyvisor.embedded.apiserver.schema import UNSET
from anyvisor.embedded.apiserver.state import Collection, State
from anyvisor.embedded.apiserver.status import Cause, StatusError, invalid_value
from anyvisor.embedded.apiserver.validation import find_causes, special_causes

Json = dict[str, Any]
Change = Callable[[Json], Json]
"""Computes the new object, in the served version, from a private copy of the old one."""

RETRIES = 10
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
MAX_GENERATED_BASE = 58


@dataclass(slots=True)
class Call:
    """One write in progress."""

    resource: Resource
    identity: Identity
    options: WriteOptions
    namespace: str
    name: str
    subresource: str = ""
    warnings: list[str] = field(default_factory=list[str])

    @property
    def collection_key(self) -> Key:
        return (self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The object after a write, in its stored version, and the HTTP status."""

    raw: bytes
    status: int = 200
    deleted: bool = False
    """The object is gone; `raw` is its last state."""


def ordered(obj: Json) -> Json:
    """Return the object with its type first, so that the version can be exchanged in the encoded form."""
    head: Json = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": obj.get("metadata")}
    head.update((key, value) for key, value in obj.items() if key not in head)
    return head


def to_stored(resource: Resource, obj: Json) -> Json:
    """Return the stored form of a served object."""
    if resource.to_stored is not None:
        return ordered(resource.to_stored(obj))
    if obj.get("apiVersion") != resource.stored_version:
        obj = {**obj, "apiVersion": resource.stored_version}
    return ordered(obj)


def to_served(resource: Resource, obj: Json) -> Json:
    """Return the served form of a stored object."""
    if resource.from_stored is not None:
        return resource.from_stored(obj)
    if obj.get("apiVersion") != resource.api_version:
        return {**obj, "apiVersion": resource.api_version}
    return obj


class Writer:
    """All writes of the server. Objects it is given become its own."""

    def __init__(self, state: State, plugins: Sequence[AdmissionPlugin]) -> None:
        self._state = state
        self._mutating = [plugin for plugin in plugins if plugin.phase == "mutating"]
        self._validating = [plugin for plugin in plugins if plugin.phase == "validating"]

    # -- create ---------------------------------------------------------------------------------------------

    async def create(self, call: Call, obj: Json, *, apply_config: bool = False) -> Outcome:
        """Create an object. Raises a Status for every refusal."""
        resource = call.resource
        self._check_identity(call, obj)
        obj = self.normalize(call, obj)
        metadata: Json = obj["metadata"]
        self._name_new_object(call, metadata)
        self._check_namespace(call)
        if resource.has_status:
            obj.pop("status", None)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"):
            metadata.pop(name, None)
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = now_text()
        if resource.keeps_generation:
            metadata["generation"] = 1
        resource.strategy.prepare(obj, None)
        obj = await self._mutate(call, "CREATE", obj, None)
        self._validate(call, obj, None)
        await self._review(call, "CREATE", obj, None)
        if not apply_config:
            manager = self._manager(call, "Update")
            ssa.record_update(resource.schema, None, obj, manager, now_text(), {})
        collection = self._state.collection(resource.store)
        if collection.latest(call.collection_key) is not None:
            raise st.already_exists(resource.group, resource.plural, call.name)
        stored = to_stored(resource, obj)
        if call.options.dry_run:
            return Outcome(encode(stored), 201)
        entry = await self._state.put(collection, stored, None)
        return Outcome(entry.raw, 201)

    def _check_identity(self, call: Call, obj: Json) -> None:
        resource = call.resource
        for name, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            given = obj.setdefault(name, value)
            if given != value:
                raise st.bad_request(f"the {name} in the data ({given}) does not match the expected {name} ({value})")
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise st.bad_request("metadata must be an object")
        if resource.namespaced:
            given = obj["metadata"].setdefault("namespace", call.namespace) or call.namespace
            if given != call.namespace:
                raise st.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            obj["metadata"]["namespace"] = call.namespace
        else:
            obj["metadata"].pop("namespace", None)
        given = obj["metadata"].get("name")
        if call.name and given and given != call.name:
            raise st.bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.name})")

    def _name_new_object(self, call: Call, metadata: Json) -> None:
        name = metadata.get("name") or call.name
        base = metadata.get("generateName")
        if not name and base:
            suffix = "".join(random.choices(SUFFIX_LETTERS, k=5))  # noqa: S311 - a name, not a secret
            name = f"{str(base)[:MAX_GENERATED_BASE]}{suffix}"
        if not name:
            cause = Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
            raise st.invalid(call.resource.group, call.resource.kind, "", [cause])
        call.name = metadata["name"] = name

    def _check_namespace(self, call: Call) -> None:
        if not call.resource.namespaced:
            return
        entry = self._state.collection("namespaces").latest(("", call.namespace))
        if entry is None:
            raise st.not_found("", "namespaces", call.namespace)
        if entry.deleting:
            error = st.forbidden(
                call.resource.group,
                call.resource.plural,
                call.name,
                f"unable to create new content in namespace {call.namespace} because it is being terminated",
            )
            error.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {call.namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise error

    # -- normalize, admit, validate -------------------------------------------------------------------------

    def normalize(self, call: Call, obj: Json) -> Json:
        """Prune and default in place, and report unknown fields as the request wants it."""
        resource = call.resource
        unknown: list[str] | None = [] if call.options.field_validation != "Ignore" else None
        schemas.prune(resource.schema, obj, "", unknown)
        if unknown:
            if call.options.field_validation == "Strict":
                text = ", ".join(f'unknown field "{path}"' for path in unknown)
                raise st.bad_request(
                    f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                    f"{resource.kind}: strict decoding error: {text}"
                )
            call.warnings.extend(f'unknown field "{path}"' for path in unknown)
        schemas.set_defaults(resource.schema, obj)
        self._check_types(call, obj)
        if resource.warning:
            call.warnings.append(resource.warning)
        return obj

    def _check_types(self, call: Call, obj: Json) -> None:
        """Refuse values of a wrong type where the original decodes into typed structures."""
        resource = call.resource
        target: Any = obj["metadata"] if resource.custom else obj
        if resource.has_types is None or resource.has_types(target):
            return
        node = object_meta() if resource.custom else resource.schema
        for cause in find_causes(node, target, "metadata" if resource.custom else ""):
            if cause.reason == "FieldValueTypeInvalid":
                raise st.bad_request(
                    f'{call.resource.kind} in version "{call.resource.version}" cannot be handled as a '
                    f"{call.resource.kind}: {cause.message.removeprefix('Invalid value: ')}"
                )

    async def _mutate(self, call: Call, operation: Operation, obj: Json, old: Json | None) -> Json:
        for plugin in self._mutating:
            request = self._admission(call, operation, obj, old)
            result = await plugin.admit(request)
            call.warnings.extend(result.warnings)
            error = refusal(request, result)
            if error is not None:
                raise error
            if result.object is not None:
                obj = result.object
                schemas.prune(call.resource.schema, obj)
                schemas.set_defaults(call.resource.schema, obj)
        return obj

    async def _review(self, call: Call, operation: Operation, obj: Json | None, old: Json | None) -> None:
        for plugin in self._validating:
            request = self._admission(call, operation, obj, old)
            result = await plugin.admit(request)
            call.warnings.extend(result.warnings)
            error = refusal(request, result)
            if error is not None:
                raise error

    def _admission(self, call: Call, operation: Operation, obj: Json | None, old: Json | None) -> AdmissionRequest:
        return AdmissionRequest(
            operation,
            call.resource,
            call.subresource,
            call.namespace,
            call.name,
            obj,
            old,
            call.identity,
            call.options.dry_run,
        )

    def _validate(self, call: Call, obj: Json, old: Json | None) -> None:
        resource = call.resource
        causes = check_metadata(resource, obj["metadata"], old["metadata"] if old is not None else None)
        if resource.check is not None and not resource.check(obj):
            causes.extend(find_causes(resource.schema, obj))
        elif resource.check is not None:
            causes.extend(special_causes(resource.schema, obj))
            if not causes and resource.schema.ruled:
                causes.extend(broken_rules(resource.schema, obj, old if old is not None else UNSET))
        if not call.subresource:
            causes.extend(resource.strategy.validate(obj, old))
        if causes:
            raise st.invalid(resource.group, resource.kind, call.name, causes)

    def _manager(self, call: Call, operation: str) -> ssa.Manager:
        sub = call.subresource
        return ssa.Manager(call.options.field_manager, operation, call.resource.api_version, sub)

    # -- update ---------------------------------------------------------------------------------------------

    async def update(self, call: Call, change: Change, *, replace: bool = False) -> Outcome:
        """Change an object: `change` gets the current one. A lost race is tried again.

        `replace` is a PUT, which must name the version that it replaces where the kind demands it.
        """
        collection = self._state.collection(call.resource.store)
        for _ in range(RETRIES):
            entry = self._existing(call, collection)
            stored = entry.object()
            old = to_served(call.resource, stored)
            new = change(copy.deepcopy(old))
            stated = self._check_version(call, entry, new, replace=replace)
            outcome = await self._update_once(call, collection, entry, old, new, applied=False)
            if outcome is not None:
                return outcome
            if stated:
                raise st.modified(call.resource.group, call.resource.plural, call.name)
        raise st.modified(call.resource.group, call.resource.plural, call.name)

    async def apply(self, call: Call, config: Json) -> Outcome:
        """Server-side apply; creates the object when there is none."""
        resource = call.resource
        collection = self._state.collection(resource.store)
        self._check_identity(call, config)
        if "managedFields" in config["metadata"]:
            raise st.bad_request("metadata.managedFields must be nil in an applied configuration")
        config["metadata"]["name"] = call.name
        config = self.normalize_partial(call, config)
        ignored = self._ignored(call)
        manager = self._manager(call, "Apply")
        for _ in range(RETRIES):
            entry = collection.latest(call.collection_key)
            if entry is None:
                if call.subresource:
                    raise st.not_found(resource.group, resource.plural, call.name)
                if config["metadata"].get("uid"):
                    raise st.conflict(resource.group, resource.plural, call.name, "uid mismatch: no such object")
                new = ssa.apply(
                    resource.schema, None, config, manager, now_text(), force=call.options.force, ignored=ignored
                )
                return await self.create(call, new, apply_config=True)
            old = to_served(resource, entry.object())
            stated = self._check_version(call, entry, config, replace=False)
            new = ssa.apply(
                resource.schema,
                old,
                config,
                manager,
                now_text(),
                force=call.options.force,
                ignored=ignored,
            )
            new["metadata"].pop("resourceVersion", None)
            outcome = await self._update_once(call, collection, entry, old, new, applied=True)
            if outcome is not None:
                return outcome
            if stated:
                break
        raise st.modified(resource.group, resource.plural, call.name)

    def normalize_partial(self, call: Call, config: Json) -> Json:
        """Prune an applied configuration; defaults belong to the merged object, not to the configuration."""
        unknown: list[str] = []
        schemas.prune(call.resource.schema, config, "", unknown)
        if unknown and call.options.field_validation != "Ignore":
            text = ", ".join(f".{path}: field not declared in schema" for path in unknown)
            if call.options.field_validation == "Strict" or not call.resource.custom:
                raise (
                    StatusError(500, "InternalError", f"failed to create typed patch object: errors: {text}")
                    if not call.resource.custom
                    else st.bad_request(f"strict decoding error: {text}")
                )
            call.warnings.extend(f'unknown field "{path}"' for path in unknown)
        return config

    def _ignored(self, call: Call) -> FieldSet:
        if call.subresource == "status":
            return {f"f:{name}": {} for name in call.resource.schema.props if name not in ("status", "metadata")}
        return {"f:status": {}} if call.resource.has_status else {}

    def _existing(self, call: Call, collection: Collection) -> Entry:
        entry = collection.latest(call.collection_key)
        if entry is None:
            raise st.not_found(call.resource.group, call.resource.plural, call.name)
        return entry

    def _check_version(self, call: Call, entry: Entry, new: Json, *, replace: bool) -> bool:
        """Check the optimistic lock; returns whether the writer stated a version."""
        resource = call.resource
        self._check_identity(call, new)
        metadata: Json = new["metadata"]
        stated = metadata.get("resourceVersion")
        if not stated and replace and resource.custom:
            cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise st.invalid(resource.group, resource.kind, call.name, [cause])
        uid = metadata.get("uid")
        if uid and uid != entry.uid:
            raise st.conflict(
                resource.group,
                resource.plural,
                call.name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}",
            )
        if stated and stated != str(entry.rv):
            raise st.modified(resource.group, resource.plural, call.name)
        return bool(stated) and replace

    async def _update_once(
        self, call: Call, collection: Collection, entry: Entry, old: Json, new: Json, *, applied: bool
    ) -> Outcome | None:
        """Carry an update through to the store; None when another write came between."""
        resource = call.resource
        new = self.normalize(call, new) if not applied else self._defaulted(call, new)
        new = self._scope(call, old, new)
        if not call.subresource:
            resource.strategy.prepare(new, old)
        new = await self._mutate(call, "UPDATE", new, old)
        new = self._scope(call, old, new)
        self._count_generation(call, old, new)
        self._validate(call, new, old)
        await self._review(call, "UPDATE", new, old)
        if not applied:
            self._record(call, old, new)
        latest = collection.latest(call.collection_key)
        if latest is not entry:
            return None
        finished = is_finished(new)
        if not finished and old == new:
            await self._state.durable(entry)
            return Outcome(entry.raw)
        stored = to_stored(resource, new)
        if call.options.dry_run:
            stored["metadata"]["resourceVersion"] = str(entry.rv)
            return Outcome(encode(stored))
        if finished:
            gone = await self._state.remove(collection, stored, entry)
            return Outcome(gone.raw, deleted=True)
        written = await self._state.put(collection, stored, entry)
        return Outcome(written.raw)

    def _defaulted(self, call: Call, obj: Json) -> Json:
        schemas.set_defaults(call.resource.schema, obj)
        self._check_types(call, obj)
        return obj

    def _record(self, call: Call, old: Json, new: Json) -> None:
        manager = self._manager(call, "Update")
        ssa.record_update(call.resource.schema, old, new, manager, now_text(), self._ignored(call))

    def _scope(self, call: Call, old: Json, new: Json) -> Json:
        """Keep what this kind of write must not touch: status or all but status, and the server's metadata."""
        resource = call.resource
        if call.subresource == "status":
            kept: Json = dict(old)
            if "status" in new:
                kept["status"] = new["status"]
            else:
                kept.pop("status", None)
            metadata = dict(old["metadata"]) if resource.custom else new["metadata"]
            if "managedFields" in new["metadata"]:
                metadata["managedFields"] = new["metadata"]["managedFields"]
            kept["metadata"] = metadata
            new = kept
        elif resource.has_status and not call.subresource:
            if "status" in old:
                new["status"] = old["status"]
            else:
                new.pop("status", None)
        restore_metadata(old["metadata"], new["metadata"])
        return new

    def _count_generation(self, call: Call, old: Json, new: Json) -> None:
        resource = call.resource
        if not resource.keeps_generation or call.subresource == "status":
            return
        apart = {"metadata", "status"} if resource.has_status else {"metadata"}
        before = {key: value for key, value in old.items() if key not in apart}
        after = {key: value for key, value in new.items() if key not in apart}
        if before != after:
            new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1

    # -- delete ---------------------------------------------------------------------------------------------

    async def delete(self, call: Call, options: DeleteOptions) -> Outcome:
        """Delete an object, or mark it when finalizers or a grace period hold it."""
        resource = call.resource
        collection = self._state.collection(resource.store)
        for _ in range(RETRIES):
            entry = self._existing(call, collection)
            self._check_preconditions(call, entry, options)
            stored = entry.object()
            old = to_served(resource, copy.deepcopy(stored))
            await self._mutate(call, "DELETE", old, old)
            await self._review(call, "DELETE", None, old)
            if collection.latest(call.collection_key) is not entry:
                continue
            changed = mark_deleted(resource, stored, options)
            if options.dry_run:
                return Outcome(encode(stored), deleted=is_finished(stored))
            if is_finished(stored):
                gone = await self._state.remove(collection, stored, entry)
                return Outcome(gone.raw, deleted=True)
            if not changed:
                await self._state.durable(entry)
                return Outcome(entry.raw)
            written = await self._state.put(collection, stored, entry)
            return Outcome(written.raw)
        raise st.modified(resource.group, resource.plural, call.name)

    def _check_preconditions(self, call: Call, entry: Entry, options: DeleteOptions) -> None:
        resource = call.resource
        for what, wanted, have in (
            ("UID", options.uid, entry.uid),
            ("ResourceVersion", options.version, str(entry.rv)),
        ):
            if wanted and wanted != have:
                raise st.conflict(
                    resource.group,
                    resource.plural,
                    call.name,
                    f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}",
                )
