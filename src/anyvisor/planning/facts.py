"""What the planner knows of a node: a view of its HypervisorNode object."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

ACCELERATOR_NAMES = {"tcg": "emulation"}
"""Names by which others call an accelerator."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a host takes away from one capability of the manifest."""

    state: bool = True
    values: tuple[str, ...] | None = None
    max: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """One driver on one node. `accelerators` are those that run a guest here, best first; None = not known."""

    driver: str
    healthy: bool = True
    version: str = ""
    hri_minor: int = 0
    accelerators: tuple[str, ...] | None = None
    narrowed: Mapping[str, Narrowing] = field(default_factory=dict[str, Narrowing])
    reason: str = ""
    manifest_digest: str = ""
    """Of the manifest that the driver runs by there; empty = not told."""

    def runs(self, digest: str) -> bool:
        """Whether the driver there is not known to run by another manifest than the one of this digest."""
        return self.manifest_digest in ("", digest)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node."""

    name: str
    drivers: Mapping[str, DriverFacts] = field(default_factory=dict[str, DriverFacts])


def fleet(objects: Iterable[Mapping[str, Any]]) -> tuple[NodeFacts, ...]:
    """The facts in all HypervisorNode objects. Whoever asks often keeps the tuple until one of them changes."""
    return tuple(node_facts(obj) for obj in objects)


def node_facts(obj: Mapping[str, Any]) -> NodeFacts:
    """The facts in a HypervisorNode object. What is malformed counts as not stated."""
    metadata = _mapping(obj.get("metadata"))
    drivers: dict[str, DriverFacts] = {}
    for entry in _items(_mapping(obj.get("status")).get("drivers")):
        facts = _driver(_mapping(entry))
        if facts.driver:
            drivers[facts.driver] = facts
    return NodeFacts(name=_text(metadata.get("name")), drivers=drivers)


def _driver(entry: Mapping[str, Any]) -> DriverFacts:
    accelerators = entry.get("accelerators")
    narrowed = {
        str(capability): _narrowing(_mapping(statement))
        for capability, statement in _mapping(entry.get("capabilities")).items()
    }
    reasons = [
        _text(_mapping(condition).get("message"))
        for condition in _items(entry.get("conditions"))
        if _mapping(condition).get("status") == "False"
    ]
    minor = entry.get("hriMinor")
    return DriverFacts(
        driver=_text(entry.get("driver")),
        healthy=entry.get("healthy") is True,
        version=_text(entry.get("version")),
        hri_minor=minor if isinstance(minor, int) else 0,
        accelerators=(
            tuple(ACCELERATOR_NAMES.get(name, name) for name in _items(accelerators) if isinstance(name, str))
            if accelerators is not None
            else None
        ),
        narrowed=narrowed,
        reason=next((reason for reason in reasons if reason), ""),
        manifest_digest=_text(entry.get("manifestDigest")),
    )


def _narrowing(statement: Mapping[str, Any]) -> Narrowing:
    values = statement.get("values")
    most = statement.get("max")
    return Narrowing(
        state=statement.get("state", True) not in (False, "no"),
        values=tuple(str(value) for value in _items(values)) if values is not None else None,
        max=most if isinstance(most, int) else None,
        reason=_text(statement.get("reason") or statement.get("note")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
