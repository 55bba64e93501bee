"""Undocumented."""

from msgspec import field

from anyvisor.api.kubevirt.devices import BlockSize, FeatureState, Rng, TPMDevice, VGPUOptions
from anyvisor.api.kubevirt.domain import (
    EFI,
    ClockOffsetUTC,
    CPUFeature,
    FeatureAPIC,
    FeatureHyperv,
    FeatureKVM,
    LaunchSecurity,
    Timer,
)
from anyvisor.api.kubevirt.network import InterfaceMasquerade
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int64, QuantityValue


class ClockOffset(Model, frozen=True, kw_only=True):
    """Undocumented."""

    timezone: str | None = None
    utc: ClockOffsetUTC | None = None


class ClockPreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_clock_offset: ClockOffset | None = None
    preferred_timer: Timer | None = None


class SpreadOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    across: str | None = None
    ratio: Int64 | None = None


class CPUPreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_cpu_features: tuple[CPUFeature, ...] | None = field(default=None, name="preferredCPUFeatures")
    preferred_cpu_topology: str | None = field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions | None = None


class DevicePreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_autoattach_graphics_device: bool | None = None
    preferred_autoattach_input_device: bool | None = None
    preferred_autoattach_mem_balloon: bool | None = None
    preferred_autoattach_pod_interface: bool | None = None
    preferred_autoattach_serial_console: bool | None = None
    preferred_block_multi_queue: bool | None = None
    preferred_cdrom_bus: str | None = None
    preferred_disable_hotplug: bool | None = None
    preferred_disk_block_size: BlockSize | None = None
    preferred_disk_bus: str | None = None
    preferred_disk_cache: str | None = None
    preferred_disk_dedicated_io_thread: bool | None = None
    preferred_disk_io: str | None = field(default=None, name="preferredDiskIO")
    preferred_input_bus: str | None = None
    preferred_input_type: str | None = None
    preferred_interface_masquerade: InterfaceMasquerade | None = None
    preferred_interface_model: str | None = None
    preferred_lun_bus: str | None = None
    preferred_network_interface_multi_queue: bool | None = None
    preferred_panic_device_model: str | None = None
    preferred_rng: Rng | None = None
    preferred_sound_model: str | None = None
    preferred_tpm: TPMDevice | None = field(default=None, name="preferredTPM")
    preferred_use_virtio_transitional: bool | None = None
    preferred_video_type: str | None = None
    preferred_virtual_gpu_options: VGPUOptions | None = field(default=None, name="preferredVirtualGPUOptions")


class FeaturePreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_acpi: FeatureState | None = None
    preferred_apic: FeatureAPIC | None = None
    preferred_hyperv: FeatureHyperv | None = None
    preferred_kvm: FeatureKVM | None = None
    preferred_pvspinlock: FeatureState | None = None
    preferred_smm: FeatureState | None = None


class FirmwarePreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_efi: EFI | None = None
    preferred_use_bios: bool | None = None
    preferred_use_bios_serial: bool | None = None
    preferred_use_efi: bool | None = None
    preferred_use_secure_boot: bool | None = None


class MachinePreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_machine_type: str | None = None


class CPUPreferenceRequirement(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest: Int64


class MemoryPreferenceRequirement(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest: QuantityValue


class PreferenceRequirements(Model, frozen=True, kw_only=True):
    """Undocumented."""

    architecture: str | None = None
    cpu: CPUPreferenceRequirement | None = None
    memory: MemoryPreferenceRequirement | None = None


class VolumePreferences(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_storage_class_name: str | None = None


class VirtualMachinePreferenceSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    annotations: dict[str, str] | None = None
    clock: ClockPreferences | None = None
    cpu: CPUPreferences | None = None
    devices: DevicePreferences | None = None
    features: FeaturePreferences | None = None
    firmware: FirmwarePreferences | None = None
    machine: MachinePreferences | None = None
    prefer_spread_socket_to_core_ratio: Int64 | None = None
    preferred_architecture: str | None = None
    preferred_launch_security: LaunchSecurity | None = None
    preferred_subdomain: str | None = None
    preferred_termination_grace_period_seconds: Int64 | None = None
    requirements: PreferenceRequirements | None = None
    volumes: VolumePreferences | None = None


class VirtualMachinePreference(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachinePreferenceSpec


class VirtualMachineClusterPreference(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachinePreferenceSpec
