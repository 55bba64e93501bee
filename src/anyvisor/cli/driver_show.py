"""`anyvisor driver show NAME`: what a driver states, and what of it is proven."""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from anyvisor.api.paths import list_at, object_at, text_at
from anyvisor.cli.api import Api, ApiRefusalError
from anyvisor.cli.main import CommandError
from anyvisor.planning.evidence import standing
from anyvisor.planning.manifest import Manifest, ManifestError, Statement, digest, parse
from anyvisor.planning.registry import registry
from anyvisor.planning.values import is_map

Json = dict[str, Any]
HEADER: Final = ("CAPABILITY", "STANDING", "WHICH", "NOTE")


def rows(driver: Json) -> Iterator[Sequence[str]]:
    """A row for each statement of a HypervisorDriver's manifest, by id; raises CommandError."""
    raw = object_at(driver, "spec", "manifest")
    try:
        manifest: Manifest = parse(raw, registry())
    except ManifestError as error:
        raise CommandError(f"the manifest of {text_at(driver, 'metadata', 'name')} cannot be used: {error}") from error
    results = [result for result in list_at(driver, "spec", "evidence") if is_map(result)]
    worths = standing(manifest, digest(raw), results)
    for name, statement in sorted(manifest.capabilities.items()):
        yield name, worths.get(name, "no"), _which(statement), statement.note or "-"


def find(api: Api, name: str) -> Json:
    """The HypervisorDriver of that name; raises CommandError."""
    try:
        return api.call("GET", f"/apis/anyvisor.io/v1alpha1/hypervisordrivers/{quote(name)}")
    except ApiRefusalError as error:
        if error.status == 404:
            raise CommandError(f"there is no driver {name}; `anyvisor driver list` shows what is installed") from error
        raise


def _which(statement: Statement) -> str:
    """Its values or limits, and when a change may come."""
    words = [",".join(statement.values)]
    if statement.min is not None:
        words.append(f"from {statement.min}")
    if statement.max is not None:
        words.append(f"up to {statement.max}")
    if statement.when == "cold":
        words.append("only while it is stopped")
    return " ".join(word for word in words if word) or "-"
