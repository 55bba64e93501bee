"""Kinds of the Containerized Data Importer by which claims are filled: served where no importer of its own runs."""

from typing import Annotated

from anyvisor.api.kubevirt.datavolume import (
    DataVolumeBlankImage,
    DataVolumeSourceHTTP,
    DataVolumeSourceRegistry,
    DataVolumeSpec,
)
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema, Time


class DataVolumeCondition(Model, frozen=True, kw_only=True):
    """One aspect of the state: `Bound`, `Running` or `Ready`."""

    last_heartbeat_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class DataVolumeStatus(Model, frozen=True, kw_only=True):
    """How far the claim is."""

    claim_name: str | None = None
    """The claim that is filled: it has the name of the DataVolume."""
    conditions: tuple[DataVolumeCondition, ...] | None = None
    phase: str | None = None
    progress: str | None = None
    """In percent, or N/A."""
    restart_count: int | None = None
    """Tries that failed."""


class DataVolume(Model, frozen=True, kw_only=True):
    """A claim, and what it is filled with."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: DataVolumeSpec
    status: Annotated[DataVolumeStatus | None, Schema(nullable=True)] = None


class ImportSourceType(Model, frozen=True, kw_only=True):
    """Where the bytes come from; exactly one source."""

    blank: DataVolumeBlankImage | None = None
    http: DataVolumeSourceHTTP | None = None
    registry: DataVolumeSourceRegistry | None = None


class VolumeImportSourceSpec(Model, frozen=True, kw_only=True):
    """What to fill a claim with."""

    content_type: Annotated[str | None, Schema(facts={"enum": ["kubevirt", "archive"]})] = None
    preallocation: bool | None = None
    """Whether all space is taken at once."""
    source: ImportSourceType | None = None
    target_claim: str | None = None


class VolumeImportSource(Model, frozen=True, kw_only=True):
    """A disk image that claims may name as their data source."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VolumeImportSourceSpec


class CloneSource(Model, frozen=True, kw_only=True):
    """What to copy."""

    kind: str
    name: str


class VolumeCloneSourceSpec(Model, frozen=True, kw_only=True):
    """What to fill a claim with."""

    preallocation: bool | None = None
    """Whether all space is taken at once."""
    priority_class_name: str | None = None
    source: CloneSource


class VolumeCloneSource(Model, frozen=True, kw_only=True):
    """A claim that other claims may name as their data source."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VolumeCloneSourceSpec
