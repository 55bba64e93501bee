"""Claims that are filled with a disk image, as the Containerized Data Importer describes them."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import (
    PersistentVolumeClaimSpec,
    TypedLocalObjectReference,
    TypedObjectReference,
    VolumeResourceRequirements,
)
from anyvisor.api.meta import LabelSelector, Model, ObjectMeta
from anyvisor.api.wire import Schema


class DataVolumeCheckpoint(Model, frozen=True, kw_only=True):
    """One step of an import in several steps."""

    current: str
    previous: str


class DataVolumeBlankImage(Model, frozen=True, kw_only=True):
    """An empty disk."""


class DataVolumeSourceGCS(Model, frozen=True, kw_only=True):
    """A disk image in Google Cloud Storage."""

    secret_ref: str | None = None
    url: str


class DataVolumeSourceHTTP(Model, frozen=True, kw_only=True):
    """A disk image at an HTTP address."""

    cert_config_map: str | None = None
    extra_headers: tuple[str, ...] | None = None
    secret_extra_headers: tuple[str, ...] | None = None
    secret_ref: str | None = None
    url: str


class DataVolumeSourceImageIO(Model, frozen=True, kw_only=True):
    """A disk of an oVirt installation."""

    cert_config_map: str | None = None
    disk_id: str
    insecure_skip_verify: bool | None = None
    secret_ref: str | None = None
    url: str


class DataVolumeSourcePVC(Model, frozen=True, kw_only=True):
    """A claim to copy."""

    name: str
    namespace: str


class PlatformOptions(Model, frozen=True, kw_only=True):
    """Which image of a multi-platform one."""

    architecture: str | None = None


class DataVolumeSourceRegistry(Model, frozen=True, kw_only=True):
    """A disk in an OCI image."""

    cert_config_map: str | None = None
    image_stream: str | None = None
    platform: PlatformOptions | None = None
    pull_method: str | None = None
    """`pod` or `node`."""
    secret_ref: str | None = None
    url: str | None = None


class DataVolumeSourceS3(Model, frozen=True, kw_only=True):
    """A disk image in an S3 bucket."""

    cert_config_map: str | None = None
    secret_ref: str | None = None
    url: str


class DataVolumeSourceSnapshot(Model, frozen=True, kw_only=True):
    """A volume snapshot to copy."""

    name: str
    namespace: str


class DataVolumeSourceUpload(Model, frozen=True, kw_only=True):
    """A disk image that is uploaded later."""


class DataVolumeSourceVDDK(Model, frozen=True, kw_only=True):
    """A disk of a VMware installation."""

    backing_file: str | None = None
    extra_args: str | None = None
    init_image_url: str | None = field(default=None, name="initImageURL")
    secret_ref: str | None = None
    thumbprint: str | None = None
    url: str | None = None
    uuid: str | None = None


class DataVolumeImportSource(Model, frozen=True, kw_only=True):
    """Where the bytes come from; exactly one source."""

    blank: DataVolumeBlankImage | None = None
    gcs: DataVolumeSourceGCS | None = None
    http: DataVolumeSourceHTTP | None = None
    imageio: DataVolumeSourceImageIO | None = None
    pvc: DataVolumeSourcePVC | None = None
    registry: DataVolumeSourceRegistry | None = None
    s3: DataVolumeSourceS3 | None = None
    snapshot: DataVolumeSourceSnapshot | None = None
    upload: DataVolumeSourceUpload | None = None
    vddk: DataVolumeSourceVDDK | None = None


class DataVolumeSourceRef(Model, frozen=True, kw_only=True):
    """A DataSource that says where the bytes come from."""

    kind: str
    name: str
    namespace: str | None = None


class StorageSpec(Model, frozen=True, kw_only=True):
    """What is asked of storage, where the storage profile fills in the rest."""

    access_modes: tuple[str, ...] | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    resources: VolumeResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class DataVolumeSpec(Model, frozen=True, kw_only=True):
    """What to fill a claim with."""

    checkpoints: tuple[DataVolumeCheckpoint, ...] | None = None
    content_type: Annotated[str | None, Schema(facts={"enum": ["kubevirt", "archive"]})] = None
    """`kubevirt` (a disk, the default) or `archive`."""
    final_checkpoint: bool | None = None
    preallocation: bool | None = None
    """Whether all space is taken at once."""
    priority_class_name: str | None = None
    pvc: PersistentVolumeClaimSpec | None = None
    source: DataVolumeImportSource | None = None
    source_ref: DataVolumeSourceRef | None = None
    storage: StorageSpec | None = None


class DataVolumeTemplateDummyStatus(Model, frozen=True, kw_only=True):
    """Always empty."""


class DataVolumeTemplateSpec(Model, frozen=True, kw_only=True):
    """A DataVolume that is made with the virtual machine and deleted with it."""

    api_version: str | None = None
    kind: str | None = None
    metadata: Annotated[ObjectMeta | None, Schema(nullable=True, opaque=True)] = None
    spec: DataVolumeSpec
    status: Annotated[DataVolumeTemplateDummyStatus | None, Schema(nullable=True)] = None
