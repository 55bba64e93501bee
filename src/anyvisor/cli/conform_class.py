"""The class that a conformance run is held to: its parameters, accelerator and overhead, as a plan would have them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from anyvisor.api.meta import object_at, text_at
from anyvisor.cli.api import ApiRefusalError, connect
from anyvisor.cli.documents import from_yaml
from anyvisor.cli.main import CommandError
from anyvisor.planning.manifest import Manifest, ManifestError, digest, parse
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Driver, plan
from anyvisor.planning.registry import registry
from anyvisor.planning.resources import model_of

if TYPE_CHECKING:
    from anyvisor.hri.v1.machine_spec_pb2 import Machine

Json = dict[str, Any]
GROUP = "/apis/anyvisor.io/v1alpha1"
_PLAIN = {"architecture": "amd64", "domain": {"memory": {"guest": "128Mi"}, "devices": {}}}
"""A machine that asks for nothing: what stands against it stands against the class itself."""
_CLASS_CODES = frozenset({"PARAM_UNKNOWN", "PARAM_INVALID", "ACCELERATOR_UNAVAILABLE", "SKEW"})


@dataclass(frozen=True, slots=True)
class Offered:
    """A class with its driver's manifest."""

    name: str
    raw: Mapping[str, Any]
    """The manifest as its file has it."""
    manifest: Manifest
    """With the class's overhead in the place of its own."""
    plan: Plan

    def applied(self, machine: "Machine | None") -> "Machine":
        """The machine as one of this class."""
        from anyvisor.hri.conformance import small_machine
        from anyvisor.hri.v1.types_pb2 import ACCELERATOR_UNSPECIFIED, Accelerator

        made = machine or small_machine()
        made.parameters.update(self.plan.parameters)
        known = {name.removeprefix("ACCELERATOR_").lower(): number for name, number in Accelerator.items()}
        made.accelerator = cast("Accelerator", known.get(self.plan.accelerator, ACCELERATOR_UNSPECIFIED))
        return made


def find(named: str, raw: Mapping[str, Any]) -> Offered:
    """The class of a file, or of the running instance; `raw` is the manifest that was given, else the instance's.

    Raises:
        CommandError: there is none, or its parameters are none of the driver's.
    """
    hypervisor_class = _of_file(Path(named)) if os.path.exists(named) else _of_instance("hypervisorclasses", named)
    driver = text_at(hypervisor_class, "spec", "driver")
    if not raw:
        raw = object_at(_of_instance("hypervisordrivers", driver), "spec", "manifest")
    try:
        manifest = parse(raw, registry())
    except ManifestError as error:
        raise CommandError(
            "\n  ".join((f"the manifest of driver {driver} cannot be used:", *error.problems))
        ) from error
    if manifest.driver != driver:
        raise CommandError(f"--class {named} names the driver {driver!r}, and the manifest is of {manifest.driver}")
    made = plan(_PLAIN, hypervisor_class, Driver(manifest, digest(raw)))
    problems = [finding.message for finding in made.findings if finding.code in _CLASS_CODES]
    if problems:
        raise CommandError("\n  ".join((f"--class {named} cannot be used:", *problems)))
    name = text_at(hypervisor_class, "metadata", "name") or named
    return Offered(name, raw, replace(manifest, overhead=model_of(manifest, hypervisor_class)), made)


def _of_file(path: Path) -> Json:
    try:
        documents = from_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"--class {path}: {error}") from error
    found = [document for document in documents if document.get("kind") == "HypervisorClass"]
    if len(found) != 1:
        raise CommandError(f"--class {path} holds {len(found)} objects of kind HypervisorClass, not one")
    return found[0]


def _of_instance(plural: str, name: str) -> Json:
    try:
        return connect().call("GET", f"{GROUP}/{plural}/{name}")
    except ApiRefusalError as error:
        if error.status == 404:
            raise CommandError(f"there is no {plural} {name!r} here; `anyvisor classes` shows them") from error
        raise
