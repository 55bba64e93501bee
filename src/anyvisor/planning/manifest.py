"""The driver manifest: what a driver says of itself, as data. Read once at installation; admission needs no driver.

The file is YAML or JSON (loaded outside this room); here is its form, its checks and its digest. Everything that is
wrong is said at once, with the place.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import jsonschema_rs
import msgspec

from anyvisor.planning import overhead
from anyvisor.planning.overhead import OverheadModel
from anyvisor.planning.plan import LaunchMode
from anyvisor.planning.registry import VENDOR_ID, Registry
from anyvisor.planning.values import is_list, is_map

API_VERSION: Final = "hri.anyvisor.io/v1"
MAX_BYTES: Final = 256 * 1024
MAX_STATEMENTS: Final = 1024
MAX_VALUES: Final = 256
MAX_DEPTH: Final = 32
ADOPTING: Final = ("live", "local")
"""Modes of the skew table by which a new version takes over machines of an old one."""
MAX_START_MILLISECONDS: Final = 3_600_000

Level = Literal["experimental", "supported", "deprecated"]


class _Data(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    pass


class Statement(_Data, frozen=True, kw_only=True):
    """What the driver says of one capability. A capability without a statement is absent."""

    state: bool | Literal["yes", "no"]
    level: Level = "supported"
    """What its owners say. Supported counts as claimed until a conformance result of this manifest proves it."""
    when: Literal["cold", "live"] = "live"
    """For changes: only while the machine is stopped, or also while it runs."""
    values: tuple[str, ...] = ()
    """Of a set: what is supported, the preferred first."""
    min: int | None = None
    max: int | None = None
    """Of a limit or range, in the capability's unit."""
    requires: tuple[str, ...] = ()
    """Capabilities that the machine must use together with this one."""
    conflicts: tuple[str, ...] = ()
    """Capabilities that the machine must not use together with this one."""
    arch: tuple[str, ...] = ()
    """Architectures for which it holds; empty = all."""
    note: str = ""
    """For people: why not, or under which condition. Shown in findings."""

    @property
    def yes(self) -> bool:
        """Whether the driver has it."""
        return self.state in (True, "yes")


class Maintainer(_Data, frozen=True, kw_only=True):
    """Who answers for the driver."""

    name: str
    contact: str = ""


class Support(_Data, frozen=True, kw_only=True):
    """How far the driver is, and what its owners promise."""

    level: Literal["incubating", "supported", "core"] = "incubating"
    policy: str = ""


class Hri(_Data, frozen=True, kw_only=True):
    """The minors of HRI v1 that the driver speaks."""

    min_minor: int = 1
    max_minor: int


class Vmm(_Data, frozen=True, kw_only=True):
    """What the driver drives."""

    name: str
    versions: str = ""
    """For people and `doctor`: `>= 7.2`."""
    install: str = ""
    """How to get it: one command or sentence."""


class Process(_Data, frozen=True, kw_only=True):
    """How the driver's own process is started, where a supervisor of ours does it."""

    command: tuple[str, ...] = ("./driver", "--hri", "{hri}", "--fd", "{fd}")
    """The first word is a program, relative to the driver's folder; `{hri}` and `{fd}` are the sockets to bind."""


class Pod(_Data, frozen=True, kw_only=True):
    """The driver's part of the launcher pod."""

    image: str = ""
    images: dict[str, str] = {}
    """By architecture, before `image`."""
    seccomp_profile: str = ""
    run_as_user: int = 107
    shared_memory: Literal["none", "guest"] = "none"
    """guest: the VMM keeps the guest's memory in files of /dev/shm, which must be as large."""


class ImageTool(_Data, frozen=True, kw_only=True):
    """A program of the VMM's that turns a disk file of a foreign format into a raw one.

    It is run as a user without rights, and told of its progress by a number before a percent sign in what it prints.
    """

    formats: dict[str, str]
    """Which formats it reads (qcow2, vmdk, vhd, vhdx, vdi), and the words for them in its command."""
    command: tuple[str, ...]
    """The first word is a program on the path; `{format}`, `{input}` and `{output}` are filled in."""
    install: str = ""
    """How to get it: one command or sentence."""


class Skew(_Data, frozen=True, kw_only=True):
    """Which machines of one driver version another may take over, and how."""

    from_: str = msgspec.field(name="from")
    to: str
    mode: Literal["live", "local", "suspend", "cold"]


class Manifest(_Data, frozen=True, kw_only=True):
    """The whole."""

    api_version: Literal["hri.anyvisor.io/v1"]
    driver: str
    """DNS subdomain; the name of the HypervisorDriver object."""
    version: str
    title: str = ""
    hri: Hri
    vmm: Vmm
    launch_mode: LaunchMode
    process: Process = Process()
    architectures: tuple[str, ...]
    accelerators: tuple[str, ...]
    """Best first: kvm, mshv, emulation, none."""
    profiles: tuple[str, ...] = ()
    """Optional services: snapshot, move, guest, stats."""
    capabilities: dict[str, Statement]
    defaults: dict[str, Any] = {}
    """A part of a VirtualMachineInstanceSpec that overlays the API's defaults where the machine says nothing."""
    parameters: dict[str, Any] = {}
    """JSON Schema of the class's parameters (an object of scalars); empty = the driver takes none."""
    overhead: OverheadModel
    start_milliseconds: int | None = None
    """From Prepare to the first byte of a small guest on an idle machine, as `anyvisor conform --bench` measures it."""
    pod: Pod = Pod()
    image_tools: tuple[ImageTool, ...] = ()
    skew: tuple[Skew, ...] = ()
    identity: dict[str, tuple[str, ...]] = {}
    """Facet (uuid, mac, pci, profile, cpu-model, firmware-vars, tpm-state) -> reset, restart, upgrade, move."""
    maintainers: tuple[Maintainer, ...] = ()
    support: Support = Support()

    def states(self, capability_id: str) -> bool:
        """Whether the driver has the capability."""
        statement = self.capabilities.get(capability_id)
        return statement is not None and statement.yes

    def takes(self, old: str) -> frozenset[str]:
        """The modes in which the skew table takes over machines of driver version `old` (empty: not known)."""
        return frozenset(
            skew.mode
            for skew in self.skew
            if (old in (skew.from_, "") or skew.from_ == "*") and skew.to in (self.version, "*")
        )

    def adopts(self, old: str) -> bool:
        """Whether running machines of the old version are taken over where they are."""
        return bool(self.takes(old).intersection(ADOPTING))


class ManifestError(ValueError):
    """The manifest cannot be used. `problems` is everything that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the driver's manifest cannot be used: " + "; ".join(problems[:20]))
        self.problems = tuple(problems)


_ACCELERATORS: Final = ("kvm", "mshv", "emulation", "none")
_FACETS: Final = ("uuid", "mac", "pci", "profile", "cpu-model", "firmware-vars", "tpm-state")
_SCOPES: Final = ("reset", "restart", "upgrade", "move", "driver-change")
_VERSION: Final = r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,62}"
_SUBDOMAIN: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"


def digest(raw: Mapping[str, Any]) -> str:
    """`sha256:` and the hash of the manifest as canonical JSON (sorted keys, no spaces, UTF-8).

    Made from what the file says, not from what this version understands, so that driver and core agree on it.
    """
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def parse(raw: Any, registry: Registry) -> Manifest:
    """The manifest of loaded YAML or JSON. Raises ManifestError with all problems."""
    if not is_map(raw):
        raise ManifestError(["it must be a mapping"])
    problem = _too_big(raw)
    if problem:
        raise ManifestError([problem])
    try:
        manifest = msgspec.convert(raw, type=Manifest)
    except msgspec.ValidationError as error:
        raise ManifestError([str(error)]) from error
    problems = [*_check_head(manifest), *overhead.check(manifest.overhead)]
    for capability_id, statement in manifest.capabilities.items():
        problems += _check_statement(capability_id, statement, manifest, registry)
    if problems:
        raise ManifestError(problems)
    return manifest


def _too_big(raw: Mapping[str, Any]) -> str:
    if _depth(raw, 0) > MAX_DEPTH:
        return f"it is nested more than {MAX_DEPTH} deep"
    try:
        size = len(json.dumps(raw))
    except (TypeError, ValueError, RecursionError) as error:
        return f"it holds values that JSON does not have ({error}); write dates and numbers as text"
    return f"it has {size} bytes as JSON; {MAX_BYTES} are allowed" if size > MAX_BYTES else ""


def _depth(value: Any, level: int) -> int:
    if level > MAX_DEPTH:
        return level
    if is_map(value):
        return max((_depth(inner, level + 1) for inner in value.values()), default=level)
    if is_list(value):
        return max((_depth(inner, level + 1) for inner in value), default=level)
    return level


def _check_head(manifest: Manifest) -> list[str]:
    problems: list[str] = []
    if not re.fullmatch(_SUBDOMAIN, manifest.driver) or len(manifest.driver) > 63:
        problems.append(f"driver: {manifest.driver[:80]!r} must be a DNS subdomain of at most 63 characters")
    if not 1 <= manifest.hri.min_minor <= manifest.hri.max_minor:
        problems.append("hri: minMinor must be at least 1 and at most maxMinor")
    if not manifest.process.command or "{hri}" not in " ".join(manifest.process.command):
        problems.append("process.command: it must name a program and take {hri}, the socket to bind")
    elif manifest.process.command[0].startswith("/") or ".." in manifest.process.command[0].split("/"):
        problems.append("process.command: the program must lie in the driver's folder")
    if not manifest.version or not re.fullmatch(_VERSION, manifest.version):
        problems.append(f"version: {manifest.version[:80]!r} must be 1 to 63 letters, digits, '.', '+', '_' and '-'")
    if not manifest.architectures:
        problems.append("architectures: at least one is needed")
    if not manifest.accelerators:
        problems.append("accelerators: at least one is needed; `none` for a VMM without virtualization")
    problems += [
        f"accelerators: {name!r} is not one of {', '.join(_ACCELERATORS)}"
        for name in manifest.accelerators
        if name not in _ACCELERATORS
    ]
    if len(manifest.capabilities) > MAX_STATEMENTS:
        problems.append(f"capabilities: {len(manifest.capabilities)} statements; {MAX_STATEMENTS} are allowed")
    for facet, scopes in manifest.identity.items():
        if facet not in _FACETS:
            problems.append(f"identity: {facet!r} is not one of {', '.join(_FACETS)}")
        problems += [
            f"identity.{facet}: {scope!r} is not one of {', '.join(_SCOPES)}"
            for scope in scopes
            if scope not in _SCOPES
        ]
    for index, tool in enumerate(manifest.image_tools):
        text = " ".join(tool.command)
        if not tool.formats or "{input}" not in text or "{output}" not in text:
            problems.append(f"imageTools[{index}]: it needs formats, and a command with {{input}} and {{output}}")
    if manifest.start_milliseconds is not None and not 0 < manifest.start_milliseconds < MAX_START_MILLISECONDS:
        problems.append(
            f"startMilliseconds: {manifest.start_milliseconds} is not between 1 and {MAX_START_MILLISECONDS}"
        )
    if manifest.parameters:
        problems += _check_schema(manifest.parameters)
    return problems


def _check_schema(schema: dict[str, Any]) -> list[str]:
    if "$ref" in json.dumps(schema):
        return ["parameters: $ref is not allowed; write the schema out"]
    if schema.get("type") != "object":
        return ["parameters: the schema must have type: object"]
    try:
        jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return [f"parameters: this is no JSON Schema: {error}"]
    return []


def _check_statement(capability_id: str, statement: Statement, manifest: Manifest, registry: Registry) -> list[str]:
    where = f"capabilities[{capability_id[:100]}]"
    capability = registry.find(capability_id)
    if capability is None:
        if VENDOR_ID.fullmatch(capability_id):
            return []
        return [f"{where}: no such capability in the registry; a vendor's own is written x.<domain>/<name>"]
    problems: list[str] = []
    if capability.stage == "retired" and statement.yes:
        problems.append(f"{where}: is retired and cannot be stated")
    if statement.values and capability.kind != "set":
        problems.append(f"{where}: is a {capability.kind} and takes no values")
    if capability.kind == "set" and statement.yes and not statement.values:
        problems.append(f"{where}: is a set; list what is supported under values")
    if len(statement.values) > MAX_VALUES:
        problems.append(f"{where}: {len(statement.values)} values; {MAX_VALUES} are allowed")
    if (statement.min, statement.max) != (None, None) and capability.kind not in ("limit", "range"):
        problems.append(f"{where}: is a {capability.kind} and takes no min or max")
    if capability.kind == "limit" and statement.yes and statement.max is None:
        problems.append(f"{where}: is a limit; state max")
    if statement.min is not None and statement.max is not None and statement.min > statement.max:
        problems.append(f"{where}: min {statement.min} is above max {statement.max}")
    problems += [
        f"{where}: names {other!r}, which is not in the registry"
        for other in (*statement.requires, *statement.conflicts)
        if registry.find(other) is None
    ]
    both = sorted(set(statement.requires) & set(statement.conflicts))
    problems += [f"{where}: both requires and excludes {other}" for other in both]
    if capability_id in (*statement.requires, *statement.conflicts):
        problems.append(f"{where}: names itself")
    problems += [
        f"{where}: requires {other}, which the manifest does not state as yes"
        for other in statement.requires
        if statement.yes and not manifest.states(other)
    ]
    problems += [
        f"{where}: architecture {name!r} is not one of the driver's"
        for name in statement.arch
        if name not in manifest.architectures
    ]
    return problems


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the manifest, for editors and for driver authors in any language."""
    return msgspec.json.schema(Manifest)
