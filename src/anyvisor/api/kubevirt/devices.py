"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.network import Interface
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Schema


class ClientPassthroughDevices(Model, frozen=True, kw_only=True):
    """Undocumented."""


class CustomBlockSize(Model, frozen=True, kw_only=True):
    """Undocumented."""

    discard_granularity: Int32 | None = None
    logical: Int32 | None = None
    physical: Int32 | None = None


class FeatureState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None


class BlockSize(Model, frozen=True, kw_only=True):
    """Undocumented."""

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class CDRomTarget(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bus: str | None = None
    readonly: bool | None = None
    tray: str | None = None


class DiskTarget(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bus: str | None = None
    pci_address: str | None = None
    readonly: bool | None = None


class LunTarget(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bus: str | None = None
    readonly: bool | None = None
    reservation: bool | None = None


class Disk(Model, frozen=True, kw_only=True):
    """Undocumented."""

    block_size: BlockSize | None = None
    boot_order: Int32 | None = None
    cache: str | None = None
    cdrom: CDRomTarget | None = None
    changed_block_tracking: bool | None = None
    dedicated_io_thread: bool | None = field(default=None, name="dedicatedIOThread")
    disk: DiskTarget | None = None
    error_policy: str | None = None
    io: str | None = None
    lun: LunTarget | None = None
    name: str
    serial: str | None = None
    shareable: bool | None = None
    tag: str | None = None


class DownwardMetrics(Model, frozen=True, kw_only=True):
    """Undocumented."""


class FilesystemVirtiofs(Model, frozen=True, kw_only=True):
    """Undocumented."""


class Filesystem(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str
    virtiofs: FilesystemVirtiofs


class VGPUDisplayOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    ramfb: FeatureState | None = field(default=None, name="ramFB")


class VGPUOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    display: VGPUDisplayOptions | None = None


class GPU(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str | None = None
    device_name: str | None = None
    name: str
    request_name: str | None = None
    tag: str | None = None
    virtual_gpu_options: VGPUOptions | None = field(default=None, name="virtualGPUOptions")


class HostDevice(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str | None = None
    device_name: str | None = None
    name: str
    request_name: str | None = None
    tag: str | None = None


class Input(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bus: str | None = None
    name: str
    type: str


class PanicDevice(Model, frozen=True, kw_only=True):
    """Undocumented."""

    model: str | None = None


class Rng(Model, frozen=True, kw_only=True):
    """Undocumented."""


class SoundDevice(Model, frozen=True, kw_only=True):
    """Undocumented."""

    model: str | None = None
    name: str


class TPMDevice(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    persistent: bool | None = None


class VideoDevice(Model, frozen=True, kw_only=True):
    """Undocumented."""

    type: str | None = None


class Diag288Watchdog(Model, frozen=True, kw_only=True):
    """Undocumented."""

    action: str | None = None


class I6300ESBWatchdog(Model, frozen=True, kw_only=True):
    """Undocumented."""

    action: str | None = None


class Watchdog(Model, frozen=True, kw_only=True):
    """Undocumented."""

    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None
    name: str


class Devices(Model, frozen=True, kw_only=True):
    """Undocumented."""

    autoattach_graphics_device: bool | None = None
    autoattach_input_device: bool | None = None
    autoattach_mem_balloon: bool | None = None
    autoattach_pod_interface: bool | None = None
    autoattach_serial_console: bool | None = None
    autoattach_vsock: bool | None = field(default=None, name="autoattachVSOCK")
    block_multi_queue: bool | None = None
    client_passthrough: ClientPassthroughDevices | None = None
    disable_hotplug: bool | None = None
    disks: Annotated[tuple[Disk, ...] | None, Schema(facts={"maxItems": 256})] = None
    downward_metrics: DownwardMetrics | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    gpus: tuple[GPU, ...] | None = None
    host_devices: tuple[HostDevice, ...] | None = None
    inputs: tuple[Input, ...] | None = None
    interfaces: Annotated[tuple[Interface, ...] | None, Schema(facts={"maxItems": 256})] = None
    log_serial_console: bool | None = None
    network_interface_multiqueue: bool | None = None
    panic_devices: tuple[PanicDevice, ...] | None = None
    rng: Rng | None = None
    sound: SoundDevice | None = None
    tpm: TPMDevice | None = None
    use_virtio_transitional: bool | None = None
    video: VideoDevice | None = None
    watchdog: Watchdog | None = None
