"""Versions of objects and changes of them, as the memory of the server keeps them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anyvisor.embedded.apiserver.selectors import Selector
from anyvisor.embedded.apiserver.store import Row

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped resources) and name."""

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
NOTHING: Mapping[str, str] = {}


def duplicate(obj: Json) -> Json:
    """A copy that shares nothing; by way of bytes, which is many times faster than `copy.deepcopy`."""
    return _decode(encode(obj))


@dataclass(slots=True, eq=False, frozen=True)
class Entry:
    """One version of one object: its bytes, and the head that selectors and the garbage collector read."""

    rv: int
    key: Key
    uid: str
    raw: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    owners: tuple[str, ...] = ()
    deleting: bool = False

    def object(self) -> Json:
        """Decode the object; the caller owns the result."""
        return _decode(self.raw)

    def matches(self, selector: Selector) -> bool:
        """Say whether the object obeys both selectors."""
        if not selector.fields.terms:
            return selector.labels.matches(self.labels)
        fields = {**self.fields, "metadata.namespace": self.key[0], "metadata.name": self.key[1]}
        return selector.matches(self.labels, fields)


@dataclass(slots=True, eq=False)
class Event:
    """One change of one object, with its encodings, which all watchers share."""

    rv: int
    entry: Entry
    previous: Entry | None
    deleted: bool
    encoded: dict[Any, bytes] = field(default_factory=dict[Any, bytes])

    @property
    def size(self) -> int:
        return len(self.entry.raw) + 200


FieldReader = Callable[[Json], Mapping[str, str]]


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None  # noqa: N815 - the wire name
    deletionTimestamp: str | None = None  # noqa: N815


class _Head(msgspec.Struct):
    metadata: _Metadata


_decode_head = msgspec.json.Decoder(_Head).decode


def make_entry(row: Row, read_fields: FieldReader | None) -> Entry:
    """Build the entry of a stored version."""
    metadata = _decode_head(row.value).metadata
    fields = read_fields(msgspec.json.decode(row.value)) if read_fields is not None else NOTHING
    return Entry(
        row.rv,
        (row.namespace, row.name),
        metadata.uid,
        row.value,
        metadata.labels or NOTHING,
        fields,
        tuple(owner.uid for owner in metadata.ownerReferences or ()),
        metadata.deletionTimestamp is not None,
    )


def classify(event: Event, selector: Selector) -> str | None:
    """Say what an event is for a watch with this selector; None when it does not concern it."""
    if not selector:
        return "DELETED" if event.deleted else ("ADDED" if event.previous is None else "MODIFIED")
    before = event.previous
    was = before is not None and before.matches(selector)
    now = not event.deleted and event.entry.matches(selector)
    if now:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else None
