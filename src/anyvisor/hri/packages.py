"""The drivers that are installed here, found by entry point; nothing of a driver is imported before it is named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import yaml

from anyvisor.hri import evidence
from anyvisor.hri.kit.driver import Driver

_GROUP = "anyvisor.drivers"
# It boots nothing, and is offered only to those who ask for it by name.
_HIDDEN = "fake"


class DriverError(Exception):
    """A driver is not installed, or its package is not complete."""


@dataclass(frozen=True, slots=True)
class DriverPackage:
    """An installed driver: its manifest as a document, and how to make it.

    `driver` takes a directory that the driver may write to; what it keeps there may be lost at any time.
    """

    name: str
    manifest: dict[str, Any]
    driver: Callable[[Path], Driver]
    user: str = ""
    """The account that the driver must have, where its VMM asks for one; else it gets a user without a name."""
    groups: tuple[str, ...] = ()
    """Groups, by name, that give it the way to its VMM; those that the host lacks are left out."""
    evidence: tuple[Mapping[str, Any], ...] = ()
    """Results of the conformance program that come with it; none where it ships none."""

    @property
    def spec(self) -> dict[str, Any]:
        """What a HypervisorDriver object says of it."""
        proof = {"evidence": evidence.brief(self.evidence)} if self.evidence else {}
        return {"manifest": self.manifest, **proof}


def installed() -> list[str]:
    """Names of the drivers that run guests."""
    return sorted(entry.name for entry in entry_points(group=_GROUP) if entry.name != _HIDDEN)


def present() -> list[str]:
    """Those of the installed drivers whose VMM is on this machine."""
    return [name for name in installed() if _entry(name).load().is_present()]


def check_names(names: Sequence[str]) -> None:
    """See that each driver is there, without importing it.

    Raises:
        DriverError: one is not.
    """
    for name in names:
        _entry(name)


def load(name: str) -> DriverPackage:
    """Import a driver's package.

    Raises:
        DriverError: there is none of that name, or it lacks its manifest or its driver.
    """
    entry = _entry(name)
    try:
        module = cast("ModuleType", entry.load())
        text = files(module).joinpath("manifest.yaml").read_text(encoding="utf-8")
        proof = files(module).joinpath(evidence.FILE)
        return DriverPackage(
            name,
            cast("dict[str, Any]", yaml.load(text, Loader=yaml.CSafeLoader)),
            module.create_driver,
            getattr(module, "USER", ""),
            getattr(module, "GROUPS", ()),
            evidence.read(proof.read_text(encoding="utf-8")) if proof.is_file() else (),
        )
    except (ImportError, AttributeError, OSError, yaml.YAMLError, evidence.EvidenceError) as error:
        raise DriverError(f"driver {name} is not complete: {error}") from error


def load_all(names: Sequence[str]) -> list[DriverPackage]:
    """Import the packages of several drivers.

    Raises:
        DriverError: as `load`, or two of them claim one name in their manifests.
    """
    found: dict[str, DriverPackage] = {}
    for name in names:
        package = load(name)
        claimed = str(package.manifest.get("driver"))
        if claimed in found:
            raise DriverError(
                f"the drivers {found[claimed].name} and {name} both call themselves {claimed}: serve one of them "
                "(`anyvisor up --drivers`), or uninstall the other"
            )
        found[claimed] = package
    return list(found.values())


def _entry(name: str) -> EntryPoint:
    for entry in entry_points(group=_GROUP):
        if entry.name == name:
            return entry
    known = ", ".join(sorted(entry.name for entry in entry_points(group=_GROUP)))
    raise DriverError(f"there is no driver {name} (installed: {known or 'none'})")
