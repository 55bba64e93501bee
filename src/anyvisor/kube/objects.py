"""Objects as this room hands them out: a small decoded head, and the bytes of the whole.

A cache of 10,000 objects decoded to dicts makes each full garbage collection last about a second; heads that
the collector does not track, beside bytes, cost almost nothing. Callers decode what they need with a typed
`msgspec` Struct (`CachedObject.decode`) and write patches, never a re-encoded model, since a typed model
loses the fields it does not know.
"""

from dataclasses import dataclass
from typing import TypeVar, cast

import msgspec

from anyvisor.api.meta import Json

T = TypeVar("T")


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Who owns an object; read-only view of `metadata.ownerReferences[]`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    api_version: str = ""


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The part of `metadata` that caches, queues and owners need."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Head(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What is decoded of every object."""

    metadata: Metadata = Metadata()
    api_version: str = ""
    """Empty for items of a list of built-in kinds."""
    kind: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class CachedObject:
    """One object as it was seen; immutable, so that caches hand it out without a copy. Equal by identity."""

    head: Head
    raw: bytes
    """The whole object as JSON."""

    @property
    def meta(self) -> Metadata:
        return self.head.metadata

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name); the namespace is empty for cluster-scoped objects."""
        return (self.head.metadata.namespace, self.head.metadata.name)

    def decode(self, model: type[T]) -> T:
        """Decode the whole object as `model`; raises `msgspec.ValidationError` with the path of the fault."""
        return msgspec.json.decode(self.raw, type=model)

    def json(self) -> Json:
        """Return a fresh dict of the whole object."""
        return cast("Json", msgspec.json.decode(self.raw))


_decode_head = msgspec.json.Decoder(Head).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def parse_object(raw: bytes | msgspec.Raw) -> CachedObject:
    """Read the head of an object in JSON; raises `msgspec.DecodeError` (bad JSON or metadata)."""
    head = _decode_head(raw)
    return CachedObject(head, bytes(raw))


def without_managed_fields(obj: CachedObject) -> CachedObject:
    """The object without the record of who wrote which field: up to half of its bytes, and read by nobody."""
    if b'"managedFields"' not in obj.raw:
        return obj
    members = _decode_members(obj.raw)
    metadata = _decode_members(members["metadata"]) if "metadata" in members else {}
    if metadata.pop("managedFields", None) is None:
        return obj
    return CachedObject(obj.head, _encode({**members, "metadata": metadata}))
