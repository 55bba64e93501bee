"""What a driver's claims are worth: `supported` needs a conformance result of this very manifest. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from anyvisor.planning.manifest import Manifest
from anyvisor.planning.registry import Registry, registry
from anyvisor.planning.values import is_list, is_map

Worth = Literal["supported", "claimed", "experimental", "deprecated"]
WORTHS: Final[tuple[Worth, ...]] = ("supported", "claimed", "experimental", "deprecated")
SUITE: Final = "anyvisor-conform"
_PASSED: Final = "passed"


def standing(
    manifest: Manifest,
    manifest_digest: str,
    results: Sequence[Mapping[str, Any]],
    capabilities: Registry | None = None,
) -> dict[str, Worth]:
    """What each stated capability counts as. `results` are those of `anyvisor conform --json`, hostile until read.

    Supported: the manifest says so, a result is of this manifest and has no failed check, and every check that the
    registry names for the capability passed in it. A capability that no check proves stays claimed.
    """
    proven = set(_passed(manifest_digest, results))
    known = capabilities or registry()
    found: dict[str, Worth] = {}
    for name, statement in manifest.capabilities.items():
        if not statement.yes:
            continue
        capability = known.find(name)
        if statement.level != "supported":
            found[name] = statement.level
        elif capability is not None and capability.tests and proven.issuperset(capability.tests):
            found[name] = "supported"
        else:
            found[name] = "claimed"
    return found


def counts(worths: Mapping[str, Worth]) -> dict[Worth, int]:
    """How many of each."""
    return {worth: sum(each == worth for each in worths.values()) for worth in WORTHS}


def _passed(manifest_digest: str, results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for result in results:
        suite = result.get("suite")
        if not (is_map(suite) and suite.get("name") == SUITE and result.get("manifest_digest") == manifest_digest):
            continue
        checks = result.get("results")
        entries = [entry for entry in checks if is_map(entry)] if is_list(checks) else []
        if any(entry.get("outcome") == "failed" for entry in entries):
            continue
        yield from (str(entry.get("id")) for entry in entries if entry.get("outcome") == _PASSED)
