"""Kubernetes metadata: typed models, accessors for raw JSON objects, conditions and `Status` answers."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec

from anyvisor.api.paths import Json as Json
from anyvisor.api.paths import condition as condition
from anyvisor.api.paths import conditions as conditions
from anyvisor.api.paths import list_at as list_at
from anyvisor.api.paths import object_at as object_at
from anyvisor.api.paths import text_at as text_at
from anyvisor.api.wire import Int64, Schema, Time


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all typed models: `None` means absent, unknown fields are ignored."""


class OwnerReference(Model, frozen=True, kw_only=True):
    """The object whose deletion collects this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    block_owner_deletion: bool | None = None
    controller: bool | None = None


class ManagedFieldsEntry(Model, frozen=True, kw_only=True):
    """The fields that one manager owns."""

    api_version: str | None = None
    fields_type: str | None = None
    fields_v1: dict[str, Any] | None = None
    manager: str | None = None
    operation: str | None = None
    subresource: str | None = None
    time: Time | None = None


class ObjectMeta(Model, frozen=True, kw_only=True):
    """The metadata of an object."""

    annotations: dict[str, str] | None = None
    creation_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    deletion_timestamp: Time | None = None
    finalizers: tuple[str, ...] | None = None
    generate_name: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    managed_fields: tuple[ManagedFieldsEntry, ...] | None = None
    name: str | None = None
    namespace: str | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    resource_version: str | None = None
    self_link: str | None = None
    uid: str | None = None


class ListMeta(Model, frozen=True, kw_only=True):
    """The metadata of a list: where it stands and how to go on."""

    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: int | None = None
    resource_version: str | None = None
    self_link: str | None = None


_CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_CONDITION_REASON: Final = Schema(
    facts={"minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}
)


class Condition(Model, frozen=True, kw_only=True):
    """A condition as `metav1.Condition` has it."""

    last_probe_time: Annotated[Time | None, Schema(hidden=True)] = None
    last_transition_time: Time
    message: Annotated[str, Schema(facts={"maxLength": 32768})]
    observed_generation: Annotated[Int64 | None, Schema(facts={"minimum": 0})] = None
    reason: Annotated[str, _CONDITION_REASON]
    status: Annotated[str, Schema(facts={"enum": ["True", "False", "Unknown"]})]
    type: Annotated[str, Schema(facts={"maxLength": 316, "pattern": _CONDITION_TYPE})]


class LabelSelectorRequirement(Model, frozen=True, kw_only=True):
    """One requirement: a key, `In`, `NotIn`, `Exists` or `DoesNotExist`, and values."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(Model, frozen=True, kw_only=True):
    """All requirements must hold; an empty selector matches everything."""

    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None
    match_labels: dict[str, str] | None = None


class StatusCause(Model, frozen=True, kw_only=True):
    """One cause of a refusal: the kind of problem, the sentence, and the field."""

    reason: str | None = None
    message: str | None = None
    field: str | None = None


class StatusDetails(Model, frozen=True, kw_only=True):
    """Of which object a `Status` speaks, and all causes."""

    name: str | None = None
    group: str | None = None
    kind: str | None = None
    uid: str | None = None
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(Model, frozen=True, kw_only=True):
    """The answer of an API server that is not an object."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ListMeta | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    details: StatusDetails | None = None
    code: int | None = None


def to_json(model: Model) -> Json:
    """A typed model as a JSON object: absent fields are left out, sequences are lists."""
    return msgspec.json.decode(msgspec.json.encode(model), type=Json)


def status_json(
    *,
    code: int,
    reason: str = "",
    message: str = "",
    details: StatusDetails | None = None,
    success: bool = False,
) -> Json:
    """A `v1` `Status` as a JSON object, ready to be answered."""
    answer: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if success else "Failure",
    }
    if message:
        answer["message"] = message
    if reason:
        answer["reason"] = reason
    if details is not None:
        answer["details"] = to_json(details)
    answer["code"] = code
    return answer


def metadata(obj: Mapping[str, Any]) -> Json:
    """The `metadata` of an object."""
    return object_at(obj, "metadata")


def name(obj: Mapping[str, Any]) -> str:
    """`metadata.name`, or an empty string."""
    return text_at(obj, "metadata", "name")


def namespace(obj: Mapping[str, Any]) -> str:
    """`metadata.namespace`; empty for a cluster-scoped object."""
    return text_at(obj, "metadata", "namespace")


def uid(obj: Mapping[str, Any]) -> str:
    """`metadata.uid`, or an empty string."""
    return text_at(obj, "metadata", "uid")


def kind(obj: Mapping[str, Any]) -> str:
    """`kind`, or an empty string."""
    return text_at(obj, "kind")


def api_version(obj: Mapping[str, Any]) -> str:
    """`apiVersion`, or an empty string."""
    return text_at(obj, "apiVersion")


def group_version(value: str) -> tuple[str, str]:
    """An `apiVersion` as group (empty for the core) and version."""
    group, _, version = value.rpartition("/")
    return group, version


def resource_version(obj: Mapping[str, Any]) -> str:
    """`metadata.resourceVersion`, or an empty string."""
    return text_at(obj, "metadata", "resourceVersion")


def generation(obj: Mapping[str, Any]) -> int:
    """`metadata.generation`, or 0."""
    found = metadata(obj).get("generation")
    return found if isinstance(found, int) else 0


def labels(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.labels`, or an empty mapping."""
    return object_at(obj, "metadata", "labels")


def annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.annotations`, or an empty mapping."""
    return object_at(obj, "metadata", "annotations")


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    """`metadata.finalizers`, or an empty list."""
    return list_at(obj, "metadata", "finalizers")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether deletion was asked for and waits for finalizers or grace."""
    return bool(metadata(obj).get("deletionTimestamp"))


def key(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name alone for a cluster-scoped object: the key of caches and queues."""
    space = namespace(obj)
    return f"{space}/{name(obj)}" if space else name(obj)


def owner_references(obj: Mapping[str, Any]) -> list[Json]:
    """`metadata.ownerReferences`, or an empty list."""
    return list_at(obj, "metadata", "ownerReferences")


def controller_of(obj: Mapping[str, Any]) -> Json | None:
    """The owner reference with `controller: true`, if there is one."""
    return next((owner for owner in owner_references(obj) if owner.get("controller") is True), None)


def controller_reference(owner: Mapping[str, Any]) -> Json:
    """The owner reference that makes `owner` the controller of another object."""
    return {
        "apiVersion": api_version(owner),
        "kind": kind(owner),
        "name": name(owner),
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def condition_is(obj: Mapping[str, Any], type_: str, status: str = "True") -> bool:
    """Whether the condition of a type is there and has a status."""
    found = condition(obj, type_)
    return found is not None and found.get("status") == status


def with_condition(present: Iterable[Json], new: Json, now: Time) -> list[Json]:
    """The conditions with `new` set; its `lastTransitionTime` moves to `now` only when the status changes."""
    result = [dict(entry) for entry in present]
    for index, entry in enumerate(result):
        if entry.get("type") == new["type"]:
            same = entry.get("status") == new["status"] and "lastTransitionTime" in entry
            since = entry["lastTransitionTime"] if same else now
            result[index] = {**entry, **new, "lastTransitionTime": since}
            return result
    return [*result, {**new, "lastTransitionTime": now}]
