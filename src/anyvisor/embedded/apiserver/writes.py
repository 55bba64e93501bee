"""Create, update, patch, apply and delete: the rules that hold for every kind."""

import copy
from collections.abc import Sequence
from typing import Any

from anyvisor.embedded.apiserver import apply as ssa
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.admission import AdmissionPlugin, Chain
from anyvisor.embedded.apiserver.calls import Call, Change, Outcome, to_served, to_stored
from anyvisor.embedded.apiserver.changes import check_preconditions, check_version, count_generation, keep_untouchable
from anyvisor.embedded.apiserver.deletion import is_finished, mark_deleted
from anyvisor.embedded.apiserver.entries import Entry, duplicate, encode
from anyvisor.embedded.apiserver.fieldset import FieldSet
from anyvisor.embedded.apiserver.incoming import (
    check_identity,
    check_partial,
    complete,
    name_new,
    normalize,
    validate,
)
from anyvisor.embedded.apiserver.objectmeta import new_uid, now_text
from anyvisor.embedded.apiserver.params import DeleteOptions
from anyvisor.embedded.apiserver.state import Collection, State
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.values import as_object, same

Json = dict[str, Any]

RETRIES = 10


class Writer:
    """All writes of the server. Objects it is given become its own."""

    def __init__(self, state: State, plugins: Sequence[AdmissionPlugin]) -> None:
        self._state = state
        self._admission = Chain(plugins)

    # -- create ---------------------------------------------------------------------------------------------

    async def create(self, call: Call, obj: Json, *, apply_config: bool = False) -> Outcome:
        """Create an object. Raises a Status for every refusal."""
        resource = call.resource
        check_identity(call, obj)
        obj = normalize(call, obj)
        metadata: Json = obj["metadata"]
        name_new(call, metadata)
        self._check_namespace(call)
        if resource.has_status:
            obj.pop("status", None)
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"):
            metadata.pop(name, None)
        resource.strategy.defaults(obj)
        if not apply_config:
            ssa.record_update(
                resource.schema, resource.zero, obj, self._manager(call, "Update"), now_text(), self._ignored(call)
            )
        metadata["uid"] = new_uid()
        metadata["creationTimestamp"] = now_text()
        if resource.keeps_generation:
            metadata["generation"] = 1
        resource.strategy.prepare(obj, None)
        obj = await self._admission.mutate(call, "CREATE", obj, None)
        validate(call, obj, None)
        await self._admission.review(call, "CREATE", obj, None)
        collection = self._state.collection(resource.store)
        stored = await to_stored(resource, obj)
        there = collection.latest(call.collection_key)
        if there is not None:
            raise st.already_exists(resource.group, resource.plural, call.name, deleting=there.deleting)
        if call.options.dry_run:
            return Outcome(encode(stored), 201)
        entry = await self._state.put(collection, stored, None)
        return Outcome(entry.raw, 201)

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

    def _manager(self, call: Call, operation: str) -> ssa.Manager:
        return ssa.Manager(
            call.options.field_manager, operation, call.resource.api_version, call.subresource or call.through
        )

    # -- update ---------------------------------------------------------------------------------------------

    async def update(self, call: Call, change: Change, *, replace: bool = False) -> Outcome:
        """Change an object: `change` gets the current one. A lost race is tried again.

        `replace` is a PUT, which must name the version that it replaces where the kind demands it.
        """
        collection = self._state.collection(call.resource.store)
        strategy = call.resource.strategy
        if replace and strategy.creates_on_update and collection.latest(call.collection_key) is None:
            return await self.create(call, change({}))
        if replace and collection.latest(call.collection_key) is None:
            normalize(call, change({}))
        for _ in range(RETRIES):
            entry = self._existing(call, collection)
            stored = entry.object()
            old = await to_served(call.resource, stored)
            new = change(duplicate(old))
            if call.resource.custom and call.patch and not as_object(new.get("metadata")).get("name"):
                raise st.bad_request("the patch takes the name away: metadata.name must stay as it is")
            check_identity(call, new)
            new = normalize(call, new)
            stated = check_version(call, entry, new, replace=replace)
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
        if call.subresource:
            self._existing(call, collection)
        check_partial(call, config)
        self._check_applied(call, collection, config)
        if "managedFields" in config["metadata"]:
            raise st.bad_request("metadata.managedFields must be nil in an applied configuration")
        config["metadata"]["name"] = call.name
        for _ in range(RETRIES):
            entry = collection.latest(call.collection_key)
            if entry is None:
                if config["metadata"].get("uid"):
                    raise st.conflict(resource.group, resource.plural, call.name, "uid mismatch: no such object")
                return await self.create(call, self._merged(call, None, config), apply_config=True)
            check_version(call, entry, config, replace=False)
            old = await to_served(resource, entry.object())
            new = self._merged(call, old, config)
            new["metadata"].pop("resourceVersion", None)
            outcome = await self._update_once(call, collection, entry, old, new, applied=True)
            if outcome is not None:
                return outcome
        raise st.modified(resource.group, resource.plural, call.name)

    def _check_applied(self, call: Call, collection: Collection, config: Json) -> None:
        """Check what a configuration says that it is; of a wrong name, a conflict is told first, as by the original."""
        try:
            check_identity(call, config)
        except StatusError:
            entry = collection.latest(call.collection_key)
            if entry is not None and isinstance(config.get("metadata"), dict):
                self._merged(call, entry.object(), copy.deepcopy(config))
            raise

    def _merged(self, call: Call, old: Json | None, config: Json) -> Json:
        return ssa.apply(
            call.resource.schema,
            old,
            config,
            self._manager(call, "Apply"),
            now_text(),
            force=call.options.force,
            ignored=self._ignored(call),
        )

    def _ignored(self, call: Call) -> FieldSet:
        if call.subresource == "status":
            return {f"f:{name}": {} for name in call.resource.schema.props if name not in ("status", "metadata")}
        return {"f:status": {}} if call.resource.has_status else {}

    def _existing(self, call: Call, collection: Collection) -> Entry:
        entry = collection.latest(call.collection_key)
        if entry is None:
            raise st.not_found(call.resource.group, call.resource.plural, call.name)
        return entry

    async def _update_once(
        self, call: Call, collection: Collection, entry: Entry, old: Json, new: Json, *, applied: bool
    ) -> Outcome | None:
        """Carry an update through to the store; None when another write came between."""
        resource = call.resource
        if applied:
            new = complete(call, new)
        resource.strategy.defaults(new)
        new = keep_untouchable(call, old, new)
        if not applied:
            self._record(call, old, new)
        if not call.subresource:
            resource.strategy.prepare(new, old)
        new = await self._admission.mutate(call, "UPDATE", new, old)
        new = keep_untouchable(call, old, new)
        count_generation(call, old, new)
        validate(call, new, old)
        await self._admission.review(call, "UPDATE", new, old)
        stored = await to_stored(resource, new)
        latest = collection.latest(call.collection_key)
        if latest is not entry:
            return None
        finished = is_finished(new)
        if not finished and same(old, new):
            await self._state.durable(entry)
            return Outcome(entry.raw)
        if call.options.dry_run:
            stored["metadata"]["resourceVersion"] = str(entry.rv)
            return Outcome(encode(stored))
        if finished:
            gone = await self._state.remove(collection, stored, entry)
            return Outcome(gone.raw, deleted=True)
        written = await self._state.put(collection, stored, entry)
        return Outcome(written.raw)

    def _record(self, call: Call, old: Json, new: Json) -> None:
        """Keep the books of an update. Objects that have none get them with their first apply."""
        if call.disowned:
            ssa.disown(new, call.disowned)
            return
        if not ssa.read_managed(old) and not ssa.read_managed(new):
            return
        manager = self._manager(call, "Update")
        ssa.record_update(call.resource.schema, old, new, manager, now_text(), self._ignored(call))

    # -- delete ---------------------------------------------------------------------------------------------

    async def delete(self, call: Call, options: DeleteOptions) -> Outcome:
        """Delete an object, or mark it when finalizers or a grace period hold it."""
        resource = call.resource
        collection = self._state.collection(resource.store)
        for _ in range(RETRIES):
            entry = self._existing(call, collection)
            check_preconditions(call, entry, options)
            stored = entry.object()
            old = await to_served(resource, entry.object())
            await self._admission.mutate(call, "DELETE", old, old)
            await self._admission.review(call, "DELETE", None, old)
            if collection.latest(call.collection_key) is not entry:
                continue
            changed = mark_deleted(resource, stored, options)
            finished = is_finished(stored)
            if finished and not entry.deleting and not resource.strategy.graceful:
                stored = entry.object()
            if options.dry_run:
                return Outcome(encode(stored), deleted=finished)
            if finished:
                gone = await self._state.remove(collection, stored, entry)
                return Outcome(gone.raw, deleted=True)
            if not changed:
                await self._state.durable(entry)
                return Outcome(entry.raw)
            written = await self._state.put(collection, stored, entry)
            return Outcome(written.raw)
        raise st.modified(resource.group, resource.plural, call.name)
