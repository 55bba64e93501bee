"""The devices of a guest."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.network import Interface
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Schema


class ClientPassthroughDevices(Model, frozen=True, kw_only=True):
    """USB devices of a viewer's computer may be redirected to the guest."""


class CustomBlockSize(Model, frozen=True, kw_only=True):
    """Sector sizes, in bytes."""

    discard_granularity: Int32 | None = None
    logical: Int32 | None = None
    physical: Int32 | None = None


class FeatureState(Model, frozen=True, kw_only=True):
    """Whether a feature is on; present without a value means on."""

    enabled: bool | None = None


class BlockSize(Model, frozen=True, kw_only=True):
    """The sector sizes that a disk shows: own ones, or those of its volume."""

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class CDRomTarget(Model, frozen=True, kw_only=True):
    """The volume is a CD in a drive."""

    bus: str | None = None
    """`sata` (the default), `scsi` or `usb`."""
    readonly: bool | None = None
    tray: str | None = None
    """`closed` (the default) or `open`."""


class DiskTarget(Model, frozen=True, kw_only=True):
    """The volume is a disk."""

    bus: str | None = None
    """`virtio`, `sata`, `scsi` or `usb`."""
    pci_address: str | None = None
    """Place on the guest's PCI bus, `0000:01:00.0`."""
    readonly: bool | None = None
    """Whether the guest may only read."""


class LunTarget(Model, frozen=True, kw_only=True):
    """The volume is a SCSI device that the guest speaks to directly."""

    bus: str | None = None
    readonly: bool | None = None
    reservation: bool | None = None
    """Whether the guest may use persistent reservations."""


class Disk(Model, frozen=True, kw_only=True):
    """How the guest sees the volume of the same name."""

    block_size: BlockSize | None = None
    boot_order: Int32 | None = None
    """Position among all boot devices, from 1; without one on any device the first disk is booted."""
    cache: str | None = None
    """`none`, `writethrough` or `writeback`; chosen by what the volume allows when absent."""
    cdrom: CDRomTarget | None = None
    changed_block_tracking: bool | None = None
    dedicated_io_thread: bool | None = field(default=None, name="dedicatedIOThread")
    """Whether the disk gets a thread of its own."""
    disk: DiskTarget | None = None
    error_policy: str | None = None
    """`stop` (the default), `report`, `ignore` or `enospace`."""
    io: str | None = None
    """`native` or `threads`."""
    lun: LunTarget | None = None
    name: str
    """The name of the volume."""
    serial: str | None = None
    """Serial number that the guest sees."""
    shareable: bool | None = None
    """Whether several machines may have the disk open at once."""
    tag: str | None = None
    """Label that the guest finds in its cloud-init metadata."""


class DownwardMetrics(Model, frozen=True, kw_only=True):
    """A serial port with measurements of the host."""


class FilesystemVirtiofs(Model, frozen=True, kw_only=True):
    """Shared by virtiofs."""


class Filesystem(Model, frozen=True, kw_only=True):
    """The volume of the same name, as a shared directory."""

    name: str
    virtiofs: FilesystemVirtiofs


class VGPUDisplayOptions(Model, frozen=True, kw_only=True):
    """Whether a virtual GPU drives a display."""

    enabled: bool | None = None
    ramfb: FeatureState | None = field(default=None, name="ramFB")


class VGPUOptions(Model, frozen=True, kw_only=True):
    """Options of a virtual GPU."""

    display: VGPUDisplayOptions | None = None


class GPU(Model, frozen=True, kw_only=True):
    """A GPU of the host."""

    claim_name: str | None = None
    device_name: str | None = None
    """Resource name that the configuration permits."""
    name: str
    request_name: str | None = None
    tag: str | None = None
    virtual_gpu_options: VGPUOptions | None = field(default=None, name="virtualGPUOptions")


class HostDevice(Model, frozen=True, kw_only=True):
    """A device of the host."""

    claim_name: str | None = None
    device_name: str | None = None
    """Resource name that the configuration permits."""
    name: str
    request_name: str | None = None
    tag: str | None = None


class Input(Model, frozen=True, kw_only=True):
    """An input device."""

    bus: str | None = None
    """`usb` or `virtio`."""
    name: str
    type: str
    """`tablet`."""


class PanicDevice(Model, frozen=True, kw_only=True):
    """A device by which the guest reports that its kernel crashed."""

    model: str | None = None


class Rng(Model, frozen=True, kw_only=True):
    """The guest gets random numbers from the host."""


class SoundDevice(Model, frozen=True, kw_only=True):
    """A sound card."""

    model: str | None = None
    name: str


class TPMDevice(Model, frozen=True, kw_only=True):
    """A trusted platform module."""

    enabled: bool | None = None
    """Whether the guest has it; present without a value means yes."""
    persistent: bool | None = None
    """Whether its contents outlive a stop."""


class VideoDevice(Model, frozen=True, kw_only=True):
    """A display adapter."""

    type: str | None = None
    """`vga`, `cirrus`, `virtio`, `ramfb` or `bochs`."""


class Diag288Watchdog(Model, frozen=True, kw_only=True):
    """The watchdog of the s390x architecture."""

    action: str | None = None
    """What happens when the guest does not answer: `reset`, `poweroff` or `shutdown`."""


class I6300ESBWatchdog(Model, frozen=True, kw_only=True):
    """The watchdog of the amd64 architecture."""

    action: str | None = None
    """What happens when the guest does not answer: `reset`, `poweroff` or `shutdown`."""


class Watchdog(Model, frozen=True, kw_only=True):
    """A timer that acts when the guest stops feeding it."""

    diag288: Diag288Watchdog | None = None
    i6300esb: I6300ESBWatchdog | None = None
    name: str


class Devices(Model, frozen=True, kw_only=True):
    """All devices of a guest."""

    autoattach_graphics_device: bool | None = None
    """Whether the guest has a display; yes when absent."""
    autoattach_input_device: bool | None = None
    """Whether the guest gets a tablet when it names no input."""
    autoattach_mem_balloon: bool | None = None
    """Whether the guest's unused memory can be seen and taken back; yes when absent."""
    autoattach_pod_interface: bool | None = None
    """Whether a guest without networks gets one on the pod network; yes when absent."""
    autoattach_serial_console: bool | None = None
    """Whether the guest has a serial console; yes when absent."""
    autoattach_vsock: bool | None = field(default=None, name="autoattachVSOCK")
    """Whether the guest gets a socket to the host."""
    block_multi_queue: bool | None = None
    """Whether disks get one queue per virtual CPU."""
    client_passthrough: ClientPassthroughDevices | None = None
    disable_hotplug: bool | None = None
    """Whether devices can't be added while the guest runs."""
    disks: Annotated[tuple[Disk, ...] | None, Schema(facts={"maxItems": 256})] = None
    """The disks; the volume of the same name holds their bytes."""
    downward_metrics: DownwardMetrics | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    gpus: tuple[GPU, ...] | None = None
    host_devices: tuple[HostDevice, ...] | None = None
    inputs: tuple[Input, ...] | None = None
    interfaces: Annotated[tuple[Interface, ...] | None, Schema(facts={"maxItems": 256})] = None
    """The network interfaces; each stands on the network of the same name."""
    log_serial_console: bool | None = None
    """Whether the serial console's output is kept as a log."""
    network_interface_multiqueue: bool | None = None
    """Whether interfaces get one queue per virtual CPU."""
    panic_devices: tuple[PanicDevice, ...] | None = None
    rng: Rng | None = None
    sound: SoundDevice | None = None
    tpm: TPMDevice | None = None
    use_virtio_transitional: bool | None = None
    """Whether devices also work with drivers from before virtio 1.0."""
    video: VideoDevice | None = None
    watchdog: Watchdog | None = None
