"""What virtual machines prefer where they say nothing."""

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
    """What the guest's clock says at start."""

    timezone: str | None = None
    utc: ClockOffsetUTC | None = None


class ClockPreferences(Model, frozen=True, kw_only=True):
    """Preferred clock and timers."""

    preferred_clock_offset: ClockOffset | None = None
    preferred_timer: Timer | None = None


class SpreadOptions(Model, frozen=True, kw_only=True):
    """How virtual CPUs are spread over sockets, cores and threads."""

    across: str | None = None
    ratio: Int64 | None = None


class CPUPreferences(Model, frozen=True, kw_only=True):
    """Preferred processors."""

    preferred_cpu_features: tuple[CPUFeature, ...] | None = field(default=None, name="preferredCPUFeatures")
    preferred_cpu_topology: str | None = field(default=None, name="preferredCPUTopology")
    spread_options: SpreadOptions | None = None


class DevicePreferences(Model, frozen=True, kw_only=True):
    """Preferred devices."""

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
    """Preferred features."""

    preferred_acpi: FeatureState | None = None
    preferred_apic: FeatureAPIC | None = None
    preferred_hyperv: FeatureHyperv | None = None
    preferred_kvm: FeatureKVM | None = None
    preferred_pvspinlock: FeatureState | None = None
    preferred_smm: FeatureState | None = None


class FirmwarePreferences(Model, frozen=True, kw_only=True):
    """Preferred firmware."""

    preferred_efi: EFI | None = None
    preferred_use_bios: bool | None = None
    preferred_use_bios_serial: bool | None = None
    preferred_use_efi: bool | None = None
    preferred_use_secure_boot: bool | None = None


class MachinePreferences(Model, frozen=True, kw_only=True):
    """Preferred board."""

    preferred_machine_type: str | None = None


class CPUPreferenceRequirement(Model, frozen=True, kw_only=True):
    """Processors that are needed at least."""

    guest: Int64


class MemoryPreferenceRequirement(Model, frozen=True, kw_only=True):
    """Memory that is needed at least."""

    guest: QuantityValue


class PreferenceRequirements(Model, frozen=True, kw_only=True):
    """What is needed at least."""

    architecture: str | None = None
    cpu: CPUPreferenceRequirement | None = None
    memory: MemoryPreferenceRequirement | None = None


class VolumePreferences(Model, frozen=True, kw_only=True):
    """Preferred storage."""

    preferred_storage_class_name: str | None = None


class VirtualMachinePreferenceSpec(Model, frozen=True, kw_only=True):
    """What a machine gets where it says nothing."""

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
    """Preferences of virtual machines, in one namespace."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachinePreferenceSpec


class VirtualMachineClusterPreference(Model, frozen=True, kw_only=True):
    """Preferences of virtual machines, for all namespaces."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachinePreferenceSpec
