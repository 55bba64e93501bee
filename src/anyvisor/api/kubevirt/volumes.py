"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import DownwardAPIVolumeFile, LocalObjectReference, PodPersistentVolumeClaimVolumeSource
from anyvisor.api.meta import Model
from anyvisor.api.wire import QuantityValue, Schema


class CloudInitConfigDriveSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class CloudInitNoCloudSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    network_data: str | None = None
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    secret_ref: LocalObjectReference | None = None
    user_data: str | None = None
    user_data_base64: str | None = None


class ConfigMapVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: Annotated[str | None, Schema(facts={"default": ""})] = None
    optional: bool | None = None
    volume_label: str | None = None


class ContainerDiskSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    image: str
    image_pull_policy: str | None = None
    image_pull_secret: str | None = None
    path: str | None = None


class ContainerPathVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    path: Annotated[
        str,
        Schema(
            rules=(
                "self.startsWith('/')",
                "!self.contains('..')",
            ),
            facts={"maxLength": 4096},
        ),
    ]
    read_only: Annotated[bool | None, Schema(rules=("self == true",), facts={"default": True})] = None


class DataVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    hotpluggable: bool | None = None
    name: str


class DownwardAPIVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    fields: tuple[DownwardAPIVolumeFile, ...] | None = None
    volume_label: str | None = None


class DownwardMetricsVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""


class EmptyDiskSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    capacity: QuantityValue


class EphemeralVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    persistent_volume_claim: PodPersistentVolumeClaimVolumeSource | None = None


class HostDisk(Model, frozen=True, kw_only=True):
    """Undocumented."""

    capacity: QuantityValue | None = None
    path: str
    shared: bool | None = None
    type: str


class MemoryDumpVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class PersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class SecretVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    optional: bool | None = None
    secret_name: str | None = None
    volume_label: str | None = None


class ServiceAccountVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    service_account_name: str | None = None


class SysprepSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    config_map: LocalObjectReference | None = None
    secret: LocalObjectReference | None = None


class Volume(Model, frozen=True, kw_only=True):
    """Undocumented."""

    cloud_init_config_drive: CloudInitConfigDriveSource | None = None
    cloud_init_no_cloud: CloudInitNoCloudSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    container_disk: ContainerDiskSource | None = None
    container_path: ContainerPathVolumeSource | None = None
    data_volume: DataVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    downward_metrics: DownwardMetricsVolumeSource | None = None
    empty_disk: EmptyDiskSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    host_disk: HostDisk | None = None
    memory_dump: MemoryDumpVolumeSource | None = None
    name: str
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    service_account: ServiceAccountVolumeSource | None = None
    sysprep: SysprepSource | None = None


class UtilityVolume(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str
    name: str
    read_only: bool | None = None
    type: str | None = None


class HotplugVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    data_volume: DataVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
