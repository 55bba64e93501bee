"""The capability registry: every id, what of a machine needs it, and what helps when it is missing.

The data is `capabilities.json` (ids) and `neutral.json` (fields that need nothing of a hypervisor, with the reason).
An id never changes meaning and is never reused; `stage: retired` keeps the grave.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Final, Literal

import msgspec

from anyvisor.api.quantity import NANO
from anyvisor.planning import predicates
from anyvisor.planning.predicates import Predicate, PredicateError, Spec
from anyvisor.planning.values import is_list, is_map

CAPABILITY_ID: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+){0,3}")
VENDOR_ID: Final = re.compile(r"x\.[a-z0-9.-]{1,200}/[a-z0-9.-]{1,60}")

Kind = Literal["flag", "set", "range", "limit"]
Miss = Literal["refuse", "degrade"]


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    pass


class Substitute(_Data, frozen=True, kw_only=True):
    """What may stand in the place of a default that the driver cannot meet."""

    path: str = ""
    """Where to write; empty = the place that needs the capability."""
    value: Any = None
    """None removes it; `"$first"` is the first value that the driver states."""
    needs: tuple[str, ...] = ()
    """Only where the driver states these."""


class Remedy(_Data, frozen=True, kw_only=True):
    """What a person can do, and where it is a change of the machine, the change."""

    text: str
    cost: Literal["invisible", "visible", "feature", "admin"] = "feature"
    path: str | None = None
    """Where to write; empty = the place that needs the capability; absent = no change of the machine."""
    value: Any = None
    """As in Substitute."""
    prune: str = ""
    """A list whose elements of the same name go as well, e.g. `volumes`."""


class Capability(_Data, frozen=True, kw_only=True):
    """One id."""

    id: str
    doc: str
    kind: Kind = "flag"
    stage: Literal["alpha", "beta", "stable", "retired"] = "stable"
    since: int = 1
    unit: Literal["", "bytes"] = ""
    applies_to: Literal["create", "change", "move", "node"] = "create"
    needed_by: dict[str, Any] | None = None
    """A predicate; absent = never needed by a spec alone."""
    at: str = ""
    """The place that asks, where the predicate looks at others, too; empty = the places at which it holds."""
    value: dict[str, Any] | None = None
    """A value expression, for set, range and limit."""
    match: Literal["", "glob"] = ""
    """How a value meets the driver's set: equal, or by the driver's patterns."""
    covers: tuple[str, ...] = ()
    """Further paths that this id answers for; `path.**` is all below."""
    substitutes: tuple[Substitute, ...] = ()
    """Tried in order when the need is soft; none that fits = the need is as hard as a written one."""
    miss: Miss = "refuse"
    remedies: tuple[Remedy, ...] = ()
    node_varies: bool = False
    """Whether hosts differ in it, so that a need becomes node affinity."""
    tests: tuple[str, ...] = ()
    """Names of conformance checks that prove it."""


@dataclass(frozen=True, slots=True)
class Need:
    """A machine's need of one capability, from one or more places of its spec."""

    capability: Capability
    fields: tuple[str, ...]
    value: Any = None
    """The wanted value of a set; the wanted amount, in units, of a limit or range."""
    soft: bool = False
    """It comes from defaults alone."""
    source: str = ""
    """What gave the default."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    capability: Capability
    predicate: Predicate
    reads: tuple[tuple[str, ...], ...]
    """The names of every path that decides on the need, elements of lists left out."""

    def concerns(self, changed: Sequence[tuple[str, ...]]) -> bool:
        """Whether a change at one of these places, or below or above it, may change the need."""
        return any(one[: len(other)] == other[: len(one)] for one in self.reads for other in changed)


@dataclass(slots=True)
class _Branch:
    """A tree of the paths that are answered for."""

    children: dict[str, "_Branch"] = field(default_factory=dict[str, "_Branch"])
    whole: bool = False


class RegistryError(ValueError):
    """The registry's data contradicts itself."""


class Registry:
    """All capability ids, ready to be asked."""

    def __init__(self, capabilities: tuple[Capability, ...], neutral: Mapping[str, str]) -> None:
        self._by_id = {capability.id: capability for capability in capabilities}
        if len(self._by_id) != len(capabilities):
            raise RegistryError("a capability id stands twice in the registry")
        self.neutral = dict(neutral)
        self._compiled = tuple(_compile(capability) for capability in capabilities if capability.needed_by)
        self._tree = _Branch()
        for path in self.mapped_paths():
            self._plant(path)

    def __iter__(self) -> Iterator[Capability]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, capability_id: str) -> Capability | None:
        """The capability, or None when the id is unknown."""
        return self._by_id.get(capability_id)

    def mapped_paths(self) -> Iterator[str]:
        """Every path that a capability or the list of neutral fields answers for."""
        for capability in self:
            if capability.needed_by:
                yield from predicates.paths_of(capability.needed_by)
            if capability.value:
                yield from predicates.paths_of(capability.value)
            yield from capability.covers
        yield from self.neutral

    def _plant(self, path: str) -> None:
        branch = self._tree
        everything = path.endswith(".**")
        for name, each in predicates.steps(path.removesuffix(".**")):
            branch = branch.children.setdefault(name, _Branch())
            if each:
                branch = branch.children.setdefault("[*]", _Branch())
        branch.whole = branch.whole or everything

    def unmapped(self, spec: Spec) -> list[str]:
        """Every leaf of the spec that nothing answers for. Bounded by the tree, whatever the spec's depth."""
        found: list[str] = []
        _unmapped(self._tree, spec, "", found)
        return found

    def needs(
        self,
        spec: Spec,
        defaulted: Mapping[str, str],
        before: Mapping[str, Sequence[Need]] | None = None,
        changed: Iterable[str] = (),
    ) -> list[Need]:
        """What the machine needs of a driver. `defaulted`: paths that nobody wrote -> what gave the value.

        `before` holds the needs by capability of the same machine before `changed` places were: they are asked again,
        all others are taken over.
        """
        names = [tuple(step for step in tokens(path) if isinstance(step, str)) for path in changed]
        found: list[Need] = []
        for compiled in self._compiled:
            if before is not None and not compiled.concerns(names):
                found += before.get(compiled.capability.id, ())
                continue
            places = compiled.predicate(spec)
            if places is not None:
                found += _needs(compiled.capability, places, spec, defaulted)
        return found


def _compile(capability: Capability) -> _Compiled:
    try:
        return _Compiled(capability, predicates.compile_predicate(capability.needed_by), _reads(capability))
    except PredicateError as error:
        raise RegistryError(f"capability {capability.id}: {error}") from error


def _reads(capability: Capability) -> tuple[tuple[str, ...], ...]:
    forms = [form for form in (capability.needed_by, capability.value) if form]
    paths = [path for form in forms for path in predicates.paths_of(form)] + ([capability.at] if capability.at else [])
    return tuple({tuple(path.replace("[*]", "").split(".")) for path in paths})


def _needs(capability: Capability, places: list[str], spec: Spec, defaulted: Mapping[str, str]) -> Iterator[Need]:
    fields = (capability.at,) if capability.at else tuple(dict.fromkeys(places))
    if capability.value is None:
        source = _source(fields, spec, defaulted)
        yield Need(capability, fields, soft=source is not None, source=source or "")
        return
    wanted = predicates.wanted(capability.value, spec)
    if not wanted:
        source = _source(fields, spec, defaulted)
        yield Need(capability, fields, soft=source is not None, source=source or "")
    for field_, value in wanted:
        amount = value
        if capability.kind in ("limit", "range"):
            nanos = value if "path" not in capability.value else predicates.number(value)
            amount = None if nanos is None else -(-nanos // NANO)
        source = _source((field_,), spec, defaulted)
        yield Need(capability, (field_,), amount, soft=source is not None, source=source or "")


def _source(fields: tuple[str, ...], spec: Spec, defaulted: Mapping[str, str]) -> str | None:
    """What gave the value, when all of it is default; None when the user wrote any of it.

    A place that is absent is the API's own default. A place below a defaulted one is defaulted, and so is one whose
    every leaf is.
    """
    source = "the API's default"
    for field_ in fields:
        value = value_at(spec, field_)
        given = default_source(field_, defaulted) or _filled(field_, value, defaulted)
        if given:
            source = given
        elif value is not None:
            return None
    return source


def default_source(path: str, defaulted: Mapping[str, str]) -> str | None:
    """What gave the value at the path, looking at it and at all above it."""
    while path:
        found = defaulted.get(path)
        if found is not None:
            return found
        path = _parent(path)
    return None


def _parent(path: str) -> str:
    if path.endswith("]"):
        return path[: path.rindex("[")]
    return path.rpartition(".")[0]


def _filled(path: str, value: Any, defaulted: Mapping[str, str]) -> str:
    """What gave all that is below a place; empty when the user wrote any of it, or there is nothing."""
    if is_map(value):
        inner = [(f"{path}.{name}", one) for name, one in value.items() if one is not None]
    elif is_list(value):
        inner = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    else:
        return ""
    sources = [defaulted.get(at) or _filled(at, one, defaulted) for at, one in inner]
    return sources[0] if sources and all(sources) else ""


_TOKEN: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


@lru_cache(maxsize=4096)
def tokens(path: str) -> tuple[str | int, ...]:
    """The steps of a concrete path: `disks[1].serial` is disks, 1, serial."""
    return tuple(int(index) if index else name for name, index in _TOKEN.findall(path))


def value_at(spec: Any, path: str) -> Any:
    """The value at a concrete path, None when there is none."""
    current = spec
    for step in tokens(path):
        if isinstance(step, int):
            current = current[step] if is_list(current) and step < len(current) else None
        elif is_map(current):
            current = current.get(step)
        else:
            return None
    return current


def _unmapped(branch: _Branch, value: Any, at: str, found: list[str]) -> None:
    if branch.whole or value is None:
        return
    if not branch.children:
        if (is_map(value) or is_list(value)) and value:
            found.append(at)
        return
    if is_map(value):
        every = branch.children.get("[*]")
        for name, inner in value.items():
            below = branch.children.get(name, every)
            here = f"{at}.{name}" if at else str(name)
            if below is None:
                if inner is not None:
                    found.append(here)
            else:
                _unmapped(below, inner, here, found)
    elif is_list(value):
        below = branch.children.get("[*]")
        for index, inner in enumerate(value):
            if below is None:
                found.append(f"{at}[{index}]")
            else:
                _unmapped(below, inner, f"{at}[{index}]", found)


class _File(_Data, frozen=True, kw_only=True):
    version: int
    capabilities: tuple[Capability, ...]


def load(capabilities: bytes, neutral: bytes) -> Registry:
    """A registry from its two files. Raises RegistryError."""
    try:
        entries = msgspec.json.decode(capabilities, type=_File).capabilities
        fields = msgspec.json.decode(neutral, type=dict[str, tuple[str, ...]])
    except msgspec.MsgspecError as error:
        raise RegistryError(f"the capability registry cannot be read: {error}") from error
    reasons = {path: reason for reason, paths in fields.items() for path in paths}
    return Registry(entries, reasons)


@cache
def registry() -> Registry:
    """The registry that this version ships."""
    data = resources.files("anyvisor.planning")
    return load(data.joinpath("capabilities.json").read_bytes(), data.joinpath("neutral.json").read_bytes())
