"""Server-side apply: merge a configuration into an object, and keep the books of who owns which field (KEP-555)."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from anyvisor.embedded.apiserver import fieldset as fs
from anyvisor.embedded.apiserver.fieldset import FieldSet
from anyvisor.embedded.apiserver.schema import ANYTHING, Node
from anyvisor.embedded.apiserver.status import Cause, apply_conflict
from anyvisor.embedded.apiserver.values import as_object

Json = dict[str, Any]

MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
UNOWNED: FieldSet = {
    "f:apiVersion": {".": {}},
    "f:kind": {".": {}},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {".": {}}
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
                "managedFields", "resourceVersion",
            )
        },
    },
}  # fmt: skip
"""Fields that nobody owns: they identify the object or belong to the server."""


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes, how, and where: what tells one `managedFields` entry from another."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Owned:
    """One `managedFields` entry."""

    manager: Manager
    fields: FieldSet
    time: str


def read_managed(obj: Json) -> list[Owned]:
    """Read `metadata.managedFields`; entries of unknown form are ignored."""
    found: list[Owned] = []
    for raw in obj.get("metadata", {}).get("managedFields") or ():
        if not isinstance(raw, dict):
            continue
        entry = cast("Json", raw)
        if entry.get("fieldsType", "FieldsV1") != "FieldsV1" or not entry.get("operation"):
            continue
        manager = Manager(
            entry.get("manager", ""),
            entry["operation"],
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        found.append(Owned(manager, fs.read_root(entry.get("fieldsV1") or {}), entry.get("time", "")))
    return found


def write_managed(obj: Json, owned: Iterable[Owned]) -> None:
    """Write `metadata.managedFields` in Kubernetes' order: applies first, then by time."""
    entries = sorted(owned, key=lambda item: (item.manager.operation, item.time, item.manager.name))
    wire: list[Json] = []
    for item in entries:
        if not item.fields:
            continue
        entry: Json = {
            "manager": item.manager.name,
            "operation": item.manager.operation,
            "apiVersion": item.manager.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": fs.to_wire(item.fields),
        }
        if item.time:  # none where an apply changed nothing but the books
            entry["time"] = item.time
        if item.manager.subresource:
            entry["subresource"] = item.manager.subresource
        wire.append(entry)
    if wire:
        obj["metadata"]["managedFields"] = wire
    else:
        obj["metadata"].pop("managedFields", None)


def wants_reset(obj: Json) -> bool:
    """Say whether a written object asks for empty books: `managedFields` given as `[]` or `[{}]`."""
    given = obj.get("metadata", {}).get("managedFields")
    return given is not None and all(not entry for entry in given)


def _strip(fields: FieldSet, ignored: FieldSet) -> FieldSet:
    return fs.difference(fields, UNOWNED) if not ignored else _without(fs.difference(fields, UNOWNED), ignored)


def _without(fields: FieldSet, ignored: FieldSet) -> FieldSet:
    return {key: value for key, value in fields.items() if key not in ignored}


def record_update(schema: Node, old: Json, new: Json, manager: Manager, now: str, ignored: FieldSet) -> None:
    """Give `manager` the fields that `new` changes against `old`, and write the books into `new`.

    For a new object `old` is the kind's zero value. `ignored` names top-level fields (`f:status`) that this kind of
    write cannot change.
    """
    if wants_reset(new):
        write_managed(new, ())
        return
    books = read_managed(new if new["metadata"].get("managedFields") else old)
    changed, removed = fs.compare(schema, old, new)
    changed, removed = _strip(changed, ignored), _strip(removed, ignored)
    if not changed and not removed:
        write_managed(new, books)
        return
    gone = fs.union(changed, removed)
    result: list[Owned] = []
    mine: Owned | None = None
    for item in books:
        if item.manager == manager:
            mine = item
        else:
            result.append(replace(item, fields=fs.difference(item.fields, gone)))
    before = mine.fields if mine is not None else {}
    after = fs.difference(fs.union(before, changed), removed)
    stamp = mine.time if mine is not None and after == before else now
    result.append(Owned(manager, after, stamp))
    write_managed(new, _cap(result))


def _cap(owned: list[Owned]) -> list[Owned]:
    updates = [item for item in owned if item.manager.operation == "Update" and item.fields]
    surplus = len(updates) - MAX_UPDATE_MANAGERS
    if surplus <= 0:
        return owned
    oldest = sorted(updates, key=lambda item: item.time)[: surplus + 1]
    merged: FieldSet = {}
    for item in oldest:
        merged = fs.union(merged, item.fields)
    version = oldest[-1].manager.api_version
    rest = [item for item in owned if item not in oldest]
    return [*rest, Owned(Manager(ANCIENT, "Update", version), merged, oldest[-1].time)]


def apply(
    schema: Node, live: Json | None, config: Json, manager: Manager, now: str, *, force: bool, ignored: FieldSet
) -> Json:
    """Return `live` with `config` applied by `manager`, books included.

    Raises a 409 Status that names each field another manager owns, unless `force`.
    """
    mine = _strip(fs.of_object(schema, config), ignored)
    base: Json = live if live is not None else {}
    books = read_managed(base)
    if live is not None and not books:
        everything = _strip(fs.of_object(schema, live), ignored)
        books = [Owned(Manager(BEFORE_FIRST_APPLY, "Update", manager.api_version), everything, now)]
    previous = next((item for item in books if _same_applier(item.manager, manager)), None)
    others = [item for item in books if item is not previous]
    merged: Json = merge(schema, base, config)
    merged.setdefault("metadata", {}).pop("managedFields", None)
    if previous is not None:
        owned = mine
        for item in others:
            owned = fs.union(owned, item.fields)
        remove(schema, merged, fs.difference(previous.fields, owned), owned)
    changed, removed = fs.compare(schema, {key: base[key] for key in base}, merged)
    changed = _strip(changed, ignored)
    others = [replace(item, fields=_still_empty(item.fields, base, merged)) for item in others]
    others = _resolve(others, changed, _strip(removed, ignored), force=force)
    before = previous.time if previous is not None else ""
    same = live is not None and merged == _without_books(live)
    stamp = before if same and (previous is None or previous.fields == mine) else now
    write_managed(merged, [*others, Owned(manager, mine, stamp)])
    return merged


def disown(obj: Json, path: Sequence[str]) -> None:
    """Take a field from all managers, in place."""
    field: FieldSet = fs.LEAF
    for name in reversed(path):
        field = {f"f:{name}": field}
    write_managed(obj, [replace(item, fields=fs.difference(item.fields, field)) for item in read_managed(obj)])


def _still_empty(fields: FieldSet, old: Json, new: Json) -> FieldSet:
    """Leave out empty maps that have members now: what was owned, that they are empty, is no more."""
    kept: FieldSet = {}
    for key, below in fields.items():
        before, after = old.get(key.removeprefix("f:")), new.get(key.removeprefix("f:"))
        if below == fs.LEAF and before == {} and isinstance(after, dict) and after:
            continue
        nested = isinstance(before, dict) and isinstance(after, dict)
        kept[key] = _still_empty(below, cast("Json", before), cast("Json", after)) if nested else below
    return kept


def _same_applier(one: Manager, other: Manager) -> bool:
    """Say whether two applies are one manager's: whoever applies through another version is still the same."""
    return replace(one, api_version="") == replace(other, api_version="")


def _without_books(live: Json) -> Json:
    metadata = {key: value for key, value in as_object(live.get("metadata")).items() if key != "managedFields"}
    return {**live, "metadata": metadata}


def _resolve(others: Sequence[Owned], changed: FieldSet, removed: FieldSet, *, force: bool) -> list[Owned]:
    causes: list[Cause] = []
    result: list[Owned] = []
    for item in others:
        clash = fs.intersection(item.fields, changed)
        if clash and not force:
            causes.extend(Cause(path, "FieldManagerConflict", _conflict_text(item)) for path in fs.paths(clash))
        result.append(replace(item, fields=fs.difference(fs.difference(item.fields, clash), removed)))
    if causes:
        raise apply_conflict(causes)
    return result


def _conflict_text(item: Owned) -> str:
    text = f'conflict with "{item.manager.name}"'
    if item.manager.subresource:
        text += f' with subresource "{item.manager.subresource}"'
    if item.manager.operation == "Update":
        text += f" using {item.manager.api_version}"
    return text


def merge(node: Node, live: Any, config: Any) -> Any:
    """Merge a configuration into a value; what the configuration does not name stays."""
    if fs.is_granular_map(node, config) and isinstance(live, dict):
        result: Json = dict(cast("Json", live))
        for key, value in cast("Json", config).items():
            result[key] = merge(fs.child_of(node, key), result[key], value) if key in result else copy.deepcopy(value)
        return result
    if fs.is_granular_list(node, config) and isinstance(live, list):
        return _merge_lists(node, cast("list[Any]", live), cast("list[Any]", config))
    return copy.deepcopy(config)


def _merge_lists(node: Node, live: list[Any], config: list[Any]) -> list[Any]:
    left = [(fs.item_key(node, item), item) for item in live]
    right = [(fs.item_key(node, item), item) for item in config]
    if any(key is None for key, _ in left) or any(key is None for key, _ in right):
        return copy.deepcopy(config)
    in_left, in_right = dict(left), {key for key, _ in right}
    done: set[str | None] = set()
    result: list[Any] = []
    at = turn = 0
    while at < len(left) or turn < len(right):
        if at < len(left) and (left[at][0] in done or left[at][0] not in in_right):
            if left[at][0] not in done:
                result.append(left[at][1])
            at += 1
            continue
        key, item = right[turn]
        turn += 1
        if key in done:
            continue
        done.add(key)
        shared = key in in_left and node.list_type == "map"
        result.append(merge(node.items or ANYTHING, in_left[key], item) if shared else copy.deepcopy(item))
    return result


def remove(node: Node, value: Any, lost: FieldSet, owned: FieldSet) -> None:
    """Remove, in place, the members of `lost`; containers that thereby become empty go too, unless `owned`."""
    if fs.is_granular_map(node, value):
        obj = cast("Json", value)
        for element, below in lost.items():
            key = element[2:]
            if element[:2] != "f:" or key not in obj:
                continue
            child = fs.child_of(node, key)
            if not _has_children(below):
                if not (obj[key] and _is_granular(child, obj[key])):
                    del obj[key]
                continue
            obj[key] = copy.copy(obj[key])
            kept: FieldSet = owned.get(element, {})
            remove(child, obj[key], below, kept)
            if obj[key] in ({}, []) and fs.SELF not in kept:
                del obj[key]
    elif fs.is_granular_list(node, value):
        _remove_items(node, cast("list[Any]", value), lost, owned)


def _is_granular(node: Node, value: Any) -> bool:
    return fs.is_granular_map(node, value) or fs.is_granular_list(node, value)


def _has_children(fields: FieldSet) -> bool:
    return len(fields) > 1 or fs.SELF not in fields


def _remove_items(node: Node, items: list[Any], lost: FieldSet, owned: FieldSet) -> None:
    kept: list[Any] = []
    for item in items:
        element = fs.item_key(node, item) or ""
        below = lost.get(element)
        if below is None:
            kept.append(item)
        elif fs.SELF not in below:
            changed = copy.copy(item)
            remove(node.items or ANYTHING, changed, below, owned.get(element, {}))
            kept.append(changed)
    items[:] = kept
