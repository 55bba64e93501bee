"""Descriptors of served resources: what the generic machinery needs to know about a kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyvisor.embedded.apiserver.conversion import Converter
from anyvisor.embedded.apiserver.schema import ANYTHING, Node
from anyvisor.embedded.apiserver.status import Cause
from anyvisor.embedded.apiserver.values import lookup

Json = dict[str, Any]

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `value` reads the cell from the object."""

    name: str
    value: Callable[[Json], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource finds its numbers, as paths of field names."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


def _anything() -> Node:
    return ANYTHING


def _no_defaults(_obj: Json) -> None:
    return


def _no_change(_obj: Json, _old: Json | None) -> None:
    return


def _no_causes(_obj: Json, _old: Json | None) -> list[Cause]:
    return []


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a kind does of its own in a write."""

    defaults: Callable[[Json], None] = _no_defaults
    """Set defaults in place: they belong to the writer, as if the object had stated them."""
    prepare: Callable[[Json, Json | None], None] = _no_change
    """Set what belongs to the server, in place; the second argument is the old object of an update."""
    validate: Callable[[Json, Json | None], Sequence[Cause]] = _no_causes
    graceful: bool = False
    """Whether deletion waits for a grace period (pods)."""
    needs_version: bool = False
    """Whether a PUT must state the version that it replaces."""
    creates_on_update: bool = False
    """Whether a PUT of an object that does not exist creates it."""
    returns_deleted: bool = False
    """Whether a deletion is answered with the object instead of a Status."""
    path_segment_names: bool = False
    """Whether names may be any path segment (RBAC) instead of DNS names."""


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One served resource in one version."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    store: str = ""
    """Name of the collection that holds the objects; several versions, or groups, may share one."""
    stored_version: str = ""
    """The apiVersion that stored objects carry."""
    schema_of: Callable[[], Node] = _anything
    """Gives the compiled schema, which is made when it is first needed: most kinds of a server are never written."""
    openapi: Callable[[], Json] = dict[str, Any]
    """Gives the schema as OpenAPI shows it."""
    columns: tuple[Column, ...] = ()
    has_status: bool = False
    scale: Scale | None = None
    actions: tuple[tuple[str, str, str, str], ...] = ()
    """Further subresources: (name, group, version, kind) of what they take; each is served by an action."""
    strategy: Strategy = Strategy()
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Field selectors beyond name and namespace, and the path of field names that each reads."""
    custom: bool = False
    """Defined by a CustomResourceDefinition."""
    zero: Json = field(default_factory=dict[str, Any])
    """What every object of the kind has without stating it: containers that nobody owns for having made them."""
    keeps_generation: bool = True
    """Whether `metadata.generation` counts changes outside metadata and status."""
    check: Callable[[Any], bool] | None = None
    """A fast test whether an object obeys the schema; None means that the schema is not enforced."""
    has_types: Callable[[Any], bool] | None = None
    """A fast test of the types that a built-in kind, or the metadata of a custom one, must have."""
    to_stored: Callable[[Json], Json] | None = None
    from_stored: Callable[[Json], Json] | None = None
    converter: Converter | None = None
    """Converts between the versions of a custom kind; None rewrites the version only."""
    terminating: bool = False
    """Its CustomResourceDefinition is being deleted: nothing new is created."""
    warning: str = ""
    """Sent with each answer of a deprecated version."""

    @property
    def schema(self) -> Node:
        """The compiled schema."""
        return self.schema_of()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def read_fields(self, obj: Json) -> Mapping[str, str]:
        """Return the values of the selectable fields of a stored object."""
        return {name: _text(lookup(obj, path)) for name, path in self.selectable.items()}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Registry:
    """Every served resource, by path and by kind. Changed on the loop only."""

    def __init__(self) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._changed: list[Callable[[], None]] = []
        self.generation = 0
        """Counts changes, so that derived documents know when they are stale."""

    def add(self, resource: Resource) -> None:
        self._by_path[(resource.group, resource.version, resource.plural)] = resource
        self._by_kind[(resource.group, resource.version, resource.kind)] = resource
        self.generation += 1

    def remove(self, resource: Resource) -> None:
        self._by_path.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, group: str, version: str, kind: str) -> Resource | None:
        return self._by_kind.get((group, version, kind))

    def kind_in_group(self, group: str, kind: str) -> Resource | None:
        for (its_group, _, its_kind), resource in self._by_kind.items():
            if its_group == group and its_kind == kind:
                return resource
        return None

    def all(self) -> list[Resource]:
        return list(self._by_path.values())

    def stored(self) -> list[Resource]:
        """Return one resource for each collection, without the kinds that are not stored."""
        return [resource for store, resource in self.stores().items() if store]

    def stores(self) -> dict[str, Resource]:
        """Return one resource for each collection."""
        found: dict[str, Resource] = {}
        for resource in self._by_path.values():
            found.setdefault(resource.store, resource)
        return found
