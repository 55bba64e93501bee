"""What a claim is to be filled with: by its DataVolume, or by the data source that it names."""

from dataclasses import dataclass

from anyvisor.api.meta import Json, annotations, controller_of, namespace, object_at, text_at, uid
from anyvisor.embedded.imports import sources
from anyvisor.embedded.imports.kinds import (
    CLAIM_KIND,
    CLONE_SOURCES,
    DATA_VOLUMES,
    GROUP,
    IMPORT_SOURCES,
    PREALLOCATION,
)
from anyvisor.embedded.imports.sources import FromClaim, Source, SourceError
from anyvisor.kube.client import Client
from anyvisor.kube.errors import NotFound
from anyvisor.kube.informer import Informer


class SourceMissingError(Exception):
    """What the claim is to be filled from is not there (yet)."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What to fill a claim with, and whether its space is taken at once."""

    source: Source
    preallocate: bool


@dataclass(frozen=True, slots=True)
class Resolver:
    """Looks sources up."""

    client: Client
    data_volumes: Informer

    async def contents(self, claim: Json) -> Contents | None:
        """None for a claim that is to be empty.

        Raises:
            SourceError: the source cannot be used.
            SourceMissingError: it is not there.
        """
        preallocate = annotations(claim).get(PREALLOCATION) == "true"
        owned = self._of_data_volume(claim)
        if owned is not None:
            return Contents(owned, preallocate)
        return await self._referred(claim, preallocate)

    def _of_data_volume(self, claim: Json) -> Source | None:
        owner = controller_of(claim)
        if (
            owner is None
            or owner.get("kind") != DATA_VOLUMES.kind
            or owner.get("apiVersion") != DATA_VOLUMES.api_version
        ):
            return None
        cached = self.data_volumes.get(namespace(claim), str(owner.get("name", "")))
        found = cached.json() if cached is not None else None
        if found is None or uid(found) != owner.get("uid"):
            raise SourceMissingError(f"its DataVolume {owner.get('name')} is gone")
        return sources.of_data_volume(object_at(found, "spec"), namespace(claim))

    async def _referred(self, claim: Json, preallocate: bool) -> Contents | None:
        spec = object_at(claim, "spec")
        field = next((each for each in ("dataSourceRef", "dataSource") if spec.get(each)), "")
        if not field:
            return None
        named = object_at(spec, field)
        group, kind, name = text_at(named, "apiGroup"), text_at(named, "kind"), text_at(named, "name")
        if text_at(named, "namespace") not in ("", namespace(claim)):
            raise SourceError(f"spec.{field}.namespace", "claims are filled within a namespace; leave it out")
        if (group, kind) == ("", CLAIM_KIND):
            return Contents(FromClaim(name), preallocate)
        if group == GROUP and kind in (IMPORT_SOURCES.kind, CLONE_SOURCES.kind):
            return await self._described(kind, name, claim, preallocate)
        raise SourceError(
            f"spec.{field}",
            f"storage class local cannot fill a claim from {kind} {name}; "
            f"name a {CLAIM_KIND}, or a {IMPORT_SOURCES.kind} or {CLONE_SOURCES.kind} of {GROUP}",
        )

    async def _described(self, kind: str, name: str, claim: Json, preallocate: bool) -> Contents:
        imported = kind == IMPORT_SOURCES.kind
        try:
            found = await self.client.get(IMPORT_SOURCES if imported else CLONE_SOURCES, name, namespace(claim))
        except NotFound as error:
            raise SourceMissingError(f"there is no {kind} {name} in namespace {namespace(claim)}; create it") from error
        spec = object_at(found, "spec")
        source = sources.of_import(spec) if imported else sources.of_clone(spec)
        return Contents(source, preallocate or spec.get("preallocation") is True)
