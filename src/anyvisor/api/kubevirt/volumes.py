"""Where the bytes of a guest's disks and file systems come from."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import DownwardAPIVolumeFile, LocalObjectReference, PodPersistentVolumeClaimVolumeSource
from anyvisor.api.meta import Model
from anyvisor.api.wire import QuantityValue, Schema


class CloudInitConfigDriveSource(Model, frozen=True, kw_only=True):
    """A cloud-init disk of the ConfigDrive kind."""

    network_data: str | None = None
    """Network configuration as text, at most 2048 bytes."""
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    """A secret with the network configuration under `networkdata`."""
    secret_ref: LocalObjectReference | None = None
    """A secret with the user data under `userdata`."""
    user_data: str | None = None
    """User data as text, at most 2048 bytes."""
    user_data_base64: str | None = None
    """User data in base64, at most 2048 bytes."""


class CloudInitNoCloudSource(Model, frozen=True, kw_only=True):
    """A cloud-init disk of the NoCloud kind."""

    network_data: str | None = None
    """Network configuration as text, at most 2048 bytes."""
    network_data_base64: str | None = None
    network_data_secret_ref: LocalObjectReference | None = None
    """A secret with the network configuration under `networkdata`."""
    secret_ref: LocalObjectReference | None = None
    """A secret with the user data under `userdata`."""
    user_data: str | None = None
    """User data as text, at most 2048 bytes."""
    user_data_base64: str | None = None
    """User data in base64, at most 2048 bytes."""


class ConfigMapVolumeSource(Model, frozen=True, kw_only=True):
    """The entries of a config map, as files."""

    name: Annotated[str | None, Schema(facts={"default": ""})] = None
    optional: bool | None = None
    volume_label: str | None = None


class ContainerDiskSource(Model, frozen=True, kw_only=True):
    """A disk inside an OCI image; changes are lost when the machine stops."""

    image: str
    """Reference of the image, which holds one disk under `/disk`."""
    image_pull_policy: str | None = None
    """`Always`, `IfNotPresent` or `Never`."""
    image_pull_secret: str | None = None
    """Secret with the registry's credentials."""
    path: str | None = None
    """The disk's path in the image, where `/disk` holds several."""


class ContainerPathVolumeSource(Model, frozen=True, kw_only=True):
    """A directory of the launcher's container."""

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
    """Absolute path, without `..`."""
    read_only: Annotated[bool | None, Schema(rules=("self == true",), facts={"default": True})] = None
    """Always true."""


class DataVolumeSource(Model, frozen=True, kw_only=True):
    """A claim that a DataVolume fills."""

    hotpluggable: bool | None = None
    """Whether the disk may be taken out while the guest runs."""
    name: str
    """Name of the DataVolume and of its claim."""


class DownwardAPIVolumeSource(Model, frozen=True, kw_only=True):
    """Facts about the machine, as files."""

    fields: tuple[DownwardAPIVolumeFile, ...] | None = None
    volume_label: str | None = None


class DownwardMetricsVolumeSource(Model, frozen=True, kw_only=True):
    """A small disk with measurements of the host."""


class EmptyDiskSource(Model, frozen=True, kw_only=True):
    """An empty disk that lives as long as the machine runs."""

    capacity: QuantityValue
    """Its size."""


class EphemeralVolumeSource(Model, frozen=True, kw_only=True):
    """A claim that is only read; changes are lost when the machine stops."""

    persistent_volume_claim: PodPersistentVolumeClaimVolumeSource | None = None


class HostDisk(Model, frozen=True, kw_only=True):
    """A disk image on the node."""

    capacity: QuantityValue | None = None
    """Size of a disk that is created."""
    path: str
    """Absolute path on the node."""
    shared: bool | None = None
    type: str
    """`Disk` (it must be there) or `DiskOrCreate`."""


class MemoryDumpVolumeSource(Model, frozen=True, kw_only=True):
    """A claim that takes a dump of the guest's memory."""

    claim_name: str
    hotpluggable: bool | None = None
    read_only: bool | None = None


class PersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """A claim, as the guest's disk."""

    claim_name: str
    """Name of the claim, in the machine's namespace."""
    hotpluggable: bool | None = None
    """Whether the disk may be taken out while the guest runs."""
    read_only: bool | None = None
    """Whether the guest may only read."""


class SecretVolumeSource(Model, frozen=True, kw_only=True):
    """The entries of a secret, as files."""

    optional: bool | None = None
    secret_name: str | None = None
    volume_label: str | None = None


class ServiceAccountVolumeSource(Model, frozen=True, kw_only=True):
    """The token of a service account, as files."""

    service_account_name: str | None = None


class SysprepSource(Model, frozen=True, kw_only=True):
    """Answer files for a Windows setup, from a config map or a secret."""

    config_map: LocalObjectReference | None = None
    secret: LocalObjectReference | None = None


class Volume(Model, frozen=True, kw_only=True):
    """One volume with exactly one source; a disk or file system of the same name shows it to the guest."""

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
    """A claim that controllers attach to the launcher, not to the guest."""

    claim_name: str
    name: str
    read_only: bool | None = None
    type: str | None = None


class HotplugVolumeSource(Model, frozen=True, kw_only=True):
    """The source of a volume that is added to a running guest."""

    data_volume: DataVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
