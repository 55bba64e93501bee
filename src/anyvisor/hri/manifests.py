"""Reading a driver's manifest file: YAML or JSON, hostile until read.

Aliases, tags and duplicate keys are refused: an alias can expand without bound, and a duplicate hides a statement.
What the text means (schema, capability ids) is `planning.manifest`'s to judge; the digest is the same there.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, cast

import yaml

MAX_BYTES: Final = 256 * 1024


class ManifestFileError(ValueError):
    """The text is no manifest file; the message says where."""


class _Loader(yaml.SafeLoader):
    """YAML with plain data only."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise ManifestFileError("the manifest uses a YAML alias; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                line = key.start_mark.line + 1
                raise ManifestFileError(f"the manifest has {name[:80]!r} twice in one mapping (line {line})")
            seen.add(name)
        return super().construct_mapping(node, deep)


def read(text: str) -> dict[str, Any]:
    """The manifest's data. Raises ManifestFileError."""
    if len(text) > MAX_BYTES:
        raise ManifestFileError(f"the manifest has {len(text)} characters; {MAX_BYTES} are allowed")
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, RecursionError) as error:
        raise ManifestFileError(f"the manifest is no plain YAML: {error}") from error
    if not isinstance(data, dict):
        raise ManifestFileError("the manifest must be a mapping")
    return cast("dict[str, Any]", data)


def digest(data: Mapping[str, Any]) -> str:
    """`sha256:` and the hash of the canonical JSON: what GetInfo must answer."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def stated(data: Mapping[str, Any]) -> frozenset[str]:
    """The ids that the manifest states as yes: what a driver may confirm."""
    capabilities = cast("dict[str, dict[str, Any]]", data.get("capabilities") or {})
    return frozenset(name for name, statement in capabilities.items() if statement.get("state") in (True, "yes"))


@dataclass(frozen=True, slots=True)
class Packaged:
    """A driver's own manifest."""

    data: dict[str, Any]
    digest: str
    stated: frozenset[str]
    """The ids that it states as yes."""


@cache
def packaged(package: str) -> Packaged:
    """The file `manifest.yaml` in a driver's package, read once. The parser leaves megabytes behind in the process."""
    return of_text(resources.files(package).joinpath("manifest.yaml").read_text(encoding="utf-8"))


def of_text(text: str) -> Packaged:
    """The same of a file's text. Raises ManifestFileError."""
    data = read(text)
    return Packaged(data, digest(data), stated(data))
