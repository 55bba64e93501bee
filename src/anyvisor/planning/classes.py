"""Which class runs a machine: the one it names, the default one, or the best that fits. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from anyvisor.api.hypervisor import PREFERENCES, automatic, preferences, unknown_preferences
from anyvisor.api.meta import object_at, text_at
from anyvisor.planning.choice import Accepted, best
from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.manifest import Manifest, ManifestError, digest, parse
from anyvisor.planning.memo import Memo
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Driver, Policy
from anyvisor.planning.registry import registry

_memo = Memo()
_KNOWN: Final = 64
_known: dict[tuple[str, str], Driver] = {}
"""The drivers of objects by uid and resourceVersion, which no two contents share."""


class ClassError(ValueError):
    """No class can be asked; `reason` is a CamelCase word, the message names the cause and the next step."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Candidate:
    """A class with the driver behind it."""

    hypervisor_class: Mapping[str, Any]
    driver: Driver

    @property
    def name(self) -> str:
        """The class's name."""
        return text_at(self.hypervisor_class, "metadata", "name")


def installed(driver: Mapping[str, Any]) -> Driver:
    """The driver of a HypervisorDriver object.

    Raises:
        ClassError: its manifest cannot be used.
    """
    name, version = text_at(driver, "metadata", "name"), text_at(driver, "metadata", "resourceVersion")
    key = (text_at(driver, "metadata", "uid"), version)
    known = _known.get(key)
    if known is not None:
        return known
    try:
        found = _parsed(msgspec.json.encode(object_at(driver, "spec", "manifest")), text_at(driver, "spec", "image"))
    except (ManifestError, TypeError) as error:
        raise ClassError("DriverNotUsable", f"the manifest of driver {name} cannot be used: {error}") from error
    if all(key):
        if len(_known) >= _KNOWN:
            _known.clear()
        _known[key] = found
    return found


@lru_cache(maxsize=64)
def _parsed(raw: bytes, image: str) -> Driver:
    """A manifest costs milliseconds to check, and every machine asks for it. `image` stands before the manifest's."""
    decoded = msgspec.json.decode(raw)
    manifest: Manifest = parse(decoded, registry())
    if image:
        pod = msgspec.structs.replace(manifest.pod, image=image, images={})
        manifest = msgspec.structs.replace(manifest, pod=pod)
    return Driver(manifest, digest(decoded))


def candidates(
    named: str, classes: Sequence[Mapping[str, Any]], drivers: Sequence[Mapping[str, Any]]
) -> tuple[Candidate, ...]:
    """The classes to try for `spec.hypervisor: named`, the best first.

    Raises:
        ClassError: there is none of that name, no default one, or none whose driver is installed.
    """
    by_name = {text_at(driver, "metadata", "name"): driver for driver in drivers}
    chosen = _chosen(named, classes)
    found = [
        Candidate(entry, installed(by_name[name]))
        for entry in chosen
        if (name := text_at(entry, "spec", "driver")) in by_name
    ]
    if not found:
        name, driver = text_at(chosen[0], "metadata", "name"), text_at(chosen[0], "spec", "driver")
        raise ClassError(
            "DriverAbsent",
            f"hypervisor class {name} names the driver {driver}, which is not installed "
            f"(installed: {_listed(by_name)}); install it, or choose another class",
        )
    return tuple(found)


def _chosen(named: str, classes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    by_weight = sorted(classes, key=lambda entry: (-_weight(entry), text_at(entry, "metadata", "name")))
    if automatic(named):
        if unknown := unknown_preferences(named):
            raise ClassError(
                "PreferenceUnknown",
                f"hypervisor {named!r} prefers {', '.join(unknown)}; after auto/ may stand {', '.join(PREFERENCES)}",
            )
        wanted = by_weight
    elif named:
        wanted = [entry for entry in classes if text_at(entry, "metadata", "name") == named]
    else:
        wanted = [entry for entry in by_weight if object_at(entry, "spec").get("default") is True][:1]
    if wanted:
        return wanted
    known = _listed(text_at(entry, "metadata", "name") for entry in by_weight)
    if named and not automatic(named):
        raise ClassError("ClassNotFound", f"there is no hypervisor class {named!r}; the classes are: {known}")
    raise ClassError("NoDefaultClass", f"no hypervisor class is the default; name one of: {known}")


def _weight(entry: Mapping[str, Any]) -> int:
    weight = object_at(entry, "spec").get("weight")
    return weight if isinstance(weight, int) else 0


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"


def choose(
    spec: Mapping[str, Any],
    among: Sequence[Candidate],
    nodes: Sequence[NodeFacts] = (),
    policy: Policy | None = None,
    *,
    defaulted: Mapping[str, str] | None = None,
) -> Plan:
    """The plan on the class that is named, or on the best that accepts the machine; else the first refusal."""
    named = text_at(spec, "hypervisor")
    plans: list[Plan] = []
    accepted: list[Accepted] = []
    for candidate in among:
        made = _memo.plan(spec, candidate.hypervisor_class, candidate.driver, nodes, policy, defaulted=defaulted)
        plans.append(made)
        if made.accepted:
            accepted.append(Accepted(made, candidate.driver.manifest))
    if not accepted:
        return plans[0]
    return best(accepted, preferences(named)) if automatic(named) else accepted[0].plan
