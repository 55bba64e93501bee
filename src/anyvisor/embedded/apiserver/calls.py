"""What a write asks for and comes to, and the two forms of its object: as it is served, and as it is stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from anyvisor.embedded.apiserver.entries import Key
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.params import WriteOptions
from anyvisor.embedded.apiserver.resource import Resource

Json = dict[str, Any]
Change = Callable[[Json], Json]
"""Computes the new object, in the served version, from a private copy of the old one."""


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
    through: str = ""
    """The subresource through which the object itself is written (scale); the books tell it apart."""
    disowned: tuple[str, ...] = ()
    """A field that nobody owns after the write."""
    patch: str = ""
    """The text of a patch, for messages about what it does not decode to."""
    notes: dict[str, Any] = field(default_factory=dict[str, Any])
    """What admission plugins remember from one turn to the next."""

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


async def to_stored(resource: Resource, obj: Json) -> Json:
    """Return the stored form of a served object. Raises a 500 Status when a conversion webhook fails."""
    if resource.converter is not None:
        return ordered((await resource.converter.convert([obj], resource.stored_version))[0])
    if resource.to_stored is not None:
        return ordered(resource.to_stored(obj))
    if obj.get("apiVersion") != resource.stored_version:
        obj = {**obj, "apiVersion": resource.stored_version}
    return ordered(obj)


async def to_served(resource: Resource, obj: Json) -> Json:
    """Return the served form of a stored object. Raises a 500 Status when a conversion webhook fails."""
    if resource.converter is not None:
        return (await resource.converter.convert([obj], resource.api_version))[0]
    if resource.from_stored is not None:
        return resource.from_stored(obj)
    if obj.get("apiVersion") != resource.api_version:
        return {**obj, "apiVersion": resource.api_version}
    return obj
