"""Download of a virtual machine's disks and manifests."""

from typing import Annotated

from anyvisor.api.core import TypedLocalObjectReference
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Duration, Schema, Time


class VirtualMachineExportSpec(Model, frozen=True, kw_only=True):
    """What to offer, and for how long."""

    source: TypedLocalObjectReference
    token_secret_ref: str | None = None
    ttl_duration: Duration | None = None
    """How long it is offered; 2 hours when absent."""


class Condition(Model, frozen=True, kw_only=True):
    """One aspect of the state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class VirtualMachineExportBackupEndpoint(Model, frozen=True, kw_only=True):
    """An address of a backup."""

    endpoint: str
    url: str


class VirtualMachineExportBackup(Model, frozen=True, kw_only=True):
    """A backup that can be downloaded."""

    endpoints: Annotated[tuple[VirtualMachineExportBackupEndpoint, ...] | None, Schema(keys=("endpoint",))] = None
    name: str


class VirtualMachineExportManifest(Model, frozen=True, kw_only=True):
    """A manifest that can be downloaded."""

    type: str
    url: str


class VirtualMachineExportVolumeFormat(Model, frozen=True, kw_only=True):
    """A volume in one format."""

    format: str
    url: str


class VirtualMachineExportVolume(Model, frozen=True, kw_only=True):
    """A volume that can be downloaded."""

    formats: Annotated[tuple[VirtualMachineExportVolumeFormat, ...] | None, Schema(keys=("format",))] = None
    name: str


class VirtualMachineExportLink(Model, frozen=True, kw_only=True):
    """Everything that one address offers."""

    backups: Annotated[tuple[VirtualMachineExportBackup, ...] | None, Schema(keys=("name",))] = None
    cert: str
    manifests: Annotated[tuple[VirtualMachineExportManifest, ...] | None, Schema(keys=("type",))] = None
    volumes: Annotated[tuple[VirtualMachineExportVolume, ...] | None, Schema(keys=("name",))] = None


class VirtualMachineExportLinks(Model, frozen=True, kw_only=True):
    """Addresses inside and outside the cluster."""

    external: VirtualMachineExportLink | None = None
    internal: VirtualMachineExportLink | None = None


class VirtualMachineExportStatus(Model, frozen=True, kw_only=True):
    """Where to download."""

    conditions: tuple[Condition, ...] | None = None
    links: VirtualMachineExportLinks | None = None
    phase: str | None = None
    service_name: str | None = None
    token_secret_ref: str | None = None
    ttl_expiration_time: Time | None = None
    virtual_machine_name: str | None = None


class VirtualMachineExport(Model, frozen=True, kw_only=True):
    """Offers a virtual machine, a snapshot or a claim for download."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineExportSpec
    status: Annotated[VirtualMachineExportStatus | None, Schema(nullable=True)] = None
