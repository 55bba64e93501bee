from anyvisor.hri.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Machine(_message.Message):
    __slots__ = ("id", "name", "accelerator", "profile", "cpu", "memory", "boot", "disks", "nics", "consoles", "displays", "devices", "identity", "clock", "lifecycle", "parameters", "filesystems", "features", "attachable_disks")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NICS_FIELD_NUMBER: _ClassVar[int]
    CONSOLES_FIELD_NUMBER: _ClassVar[int]
    DISPLAYS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    FILESYSTEMS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    ATTACHABLE_DISKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    accelerator: _types_pb2.Accelerator
    profile: str
    cpu: Cpu
    memory: Memory
    boot: Boot
    disks: _containers.RepeatedCompositeFieldContainer[Disk]
    nics: _containers.RepeatedCompositeFieldContainer[Nic]
    consoles: _containers.RepeatedCompositeFieldContainer[Console]
    displays: _containers.RepeatedCompositeFieldContainer[Display]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    identity: SystemIdentity
    clock: Clock
    lifecycle: Lifecycle
    parameters: _containers.ScalarMap[str, str]
    filesystems: _containers.RepeatedCompositeFieldContainer[Filesystem]
    features: Features
    attachable_disks: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., accelerator: _Optional[_Union[_types_pb2.Accelerator, str]] = ..., profile: _Optional[str] = ..., cpu: _Optional[_Union[Cpu, _Mapping]] = ..., memory: _Optional[_Union[Memory, _Mapping]] = ..., boot: _Optional[_Union[Boot, _Mapping]] = ..., disks: _Optional[_Iterable[_Union[Disk, _Mapping]]] = ..., nics: _Optional[_Iterable[_Union[Nic, _Mapping]]] = ..., consoles: _Optional[_Iterable[_Union[Console, _Mapping]]] = ..., displays: _Optional[_Iterable[_Union[Display, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., identity: _Optional[_Union[SystemIdentity, _Mapping]] = ..., clock: _Optional[_Union[Clock, _Mapping]] = ..., lifecycle: _Optional[_Union[Lifecycle, _Mapping]] = ..., parameters: _Optional[_Mapping[str, str]] = ..., filesystems: _Optional[_Iterable[_Union[Filesystem, _Mapping]]] = ..., features: _Optional[_Union[Features, _Mapping]] = ..., attachable_disks: _Optional[int] = ...) -> None: ...

class Cpu(_message.Message):
    __slots__ = ("sockets", "cores", "threads", "max_sockets", "model", "features", "dedicated", "isolate_emulator")
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    MAX_SOCKETS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DEDICATED_FIELD_NUMBER: _ClassVar[int]
    ISOLATE_EMULATOR_FIELD_NUMBER: _ClassVar[int]
    sockets: int
    cores: int
    threads: int
    max_sockets: int
    model: str
    features: _containers.RepeatedCompositeFieldContainer[CpuFeature]
    dedicated: _containers.RepeatedScalarFieldContainer[int]
    isolate_emulator: bool
    def __init__(self, sockets: _Optional[int] = ..., cores: _Optional[int] = ..., threads: _Optional[int] = ..., max_sockets: _Optional[int] = ..., model: _Optional[str] = ..., features: _Optional[_Iterable[_Union[CpuFeature, _Mapping]]] = ..., dedicated: _Optional[_Iterable[int]] = ..., isolate_emulator: _Optional[bool] = ...) -> None: ...

class CpuFeature(_message.Message):
    __slots__ = ("name", "policy")
    class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        POLICY_UNSPECIFIED: _ClassVar[CpuFeature.Policy]
        POLICY_FORCE: _ClassVar[CpuFeature.Policy]
        POLICY_REQUIRE: _ClassVar[CpuFeature.Policy]
        POLICY_OPTIONAL: _ClassVar[CpuFeature.Policy]
        POLICY_DISABLE: _ClassVar[CpuFeature.Policy]
        POLICY_FORBID: _ClassVar[CpuFeature.Policy]
    POLICY_UNSPECIFIED: CpuFeature.Policy
    POLICY_FORCE: CpuFeature.Policy
    POLICY_REQUIRE: CpuFeature.Policy
    POLICY_OPTIONAL: CpuFeature.Policy
    POLICY_DISABLE: CpuFeature.Policy
    POLICY_FORBID: CpuFeature.Policy
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    name: str
    policy: CpuFeature.Policy
    def __init__(self, name: _Optional[str] = ..., policy: _Optional[_Union[CpuFeature.Policy, str]] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("size_bytes", "max_bytes", "page_bytes", "shared", "locked")
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    max_bytes: int
    page_bytes: int
    shared: bool
    locked: bool
    def __init__(self, size_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., page_bytes: _Optional[int] = ..., shared: _Optional[bool] = ..., locked: _Optional[bool] = ...) -> None: ...

class Boot(_message.Message):
    __slots__ = ("firmware", "kernel", "order")
    FIRMWARE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    firmware: Firmware
    kernel: Kernel
    order: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, firmware: _Optional[_Union[Firmware, _Mapping]] = ..., kernel: _Optional[_Union[Kernel, _Mapping]] = ..., order: _Optional[_Iterable[str]] = ...) -> None: ...

class Firmware(_message.Message):
    __slots__ = ("kind", "secure_boot", "variables_handle", "serial_output")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Firmware.Kind]
        KIND_BIOS: _ClassVar[Firmware.Kind]
        KIND_UEFI: _ClassVar[Firmware.Kind]
    KIND_UNSPECIFIED: Firmware.Kind
    KIND_BIOS: Firmware.Kind
    KIND_UEFI: Firmware.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    SECURE_BOOT_FIELD_NUMBER: _ClassVar[int]
    VARIABLES_HANDLE_FIELD_NUMBER: _ClassVar[int]
    SERIAL_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    kind: Firmware.Kind
    secure_boot: bool
    variables_handle: str
    serial_output: bool
    def __init__(self, kind: _Optional[_Union[Firmware.Kind, str]] = ..., secure_boot: _Optional[bool] = ..., variables_handle: _Optional[str] = ..., serial_output: _Optional[bool] = ...) -> None: ...

class Kernel(_message.Message):
    __slots__ = ("kernel_handle", "initrd_handle", "command_line", "firmware")
    KERNEL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    INITRD_HANDLE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_LINE_FIELD_NUMBER: _ClassVar[int]
    FIRMWARE_FIELD_NUMBER: _ClassVar[int]
    kernel_handle: str
    initrd_handle: str
    command_line: str
    firmware: Firmware
    def __init__(self, kernel_handle: _Optional[str] = ..., initrd_handle: _Optional[str] = ..., command_line: _Optional[str] = ..., firmware: _Optional[_Union[Firmware, _Mapping]] = ...) -> None: ...

class Disk(_message.Message):
    __slots__ = ("id", "kind", "bus", "volume", "read_only", "shareable", "serial", "cache", "io", "on_error", "block_size", "dedicated_io_thread", "pci_address", "queues", "tray_open", "hotplugged", "io_thread")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Disk.Kind]
        KIND_DISK: _ClassVar[Disk.Kind]
        KIND_CDROM: _ClassVar[Disk.Kind]
        KIND_LUN: _ClassVar[Disk.Kind]
    KIND_UNSPECIFIED: Disk.Kind
    KIND_DISK: Disk.Kind
    KIND_CDROM: Disk.Kind
    KIND_LUN: Disk.Kind
    class Bus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BUS_UNSPECIFIED: _ClassVar[Disk.Bus]
        BUS_VIRTIO: _ClassVar[Disk.Bus]
        BUS_SATA: _ClassVar[Disk.Bus]
        BUS_SCSI: _ClassVar[Disk.Bus]
        BUS_USB: _ClassVar[Disk.Bus]
    BUS_UNSPECIFIED: Disk.Bus
    BUS_VIRTIO: Disk.Bus
    BUS_SATA: Disk.Bus
    BUS_SCSI: Disk.Bus
    BUS_USB: Disk.Bus
    class Cache(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CACHE_UNSPECIFIED: _ClassVar[Disk.Cache]
        CACHE_NONE: _ClassVar[Disk.Cache]
        CACHE_WRITETHROUGH: _ClassVar[Disk.Cache]
        CACHE_WRITEBACK: _ClassVar[Disk.Cache]
    CACHE_UNSPECIFIED: Disk.Cache
    CACHE_NONE: Disk.Cache
    CACHE_WRITETHROUGH: Disk.Cache
    CACHE_WRITEBACK: Disk.Cache
    class Io(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        IO_UNSPECIFIED: _ClassVar[Disk.Io]
        IO_THREADS: _ClassVar[Disk.Io]
        IO_NATIVE: _ClassVar[Disk.Io]
    IO_UNSPECIFIED: Disk.Io
    IO_THREADS: Disk.Io
    IO_NATIVE: Disk.Io
    class OnError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ON_ERROR_UNSPECIFIED: _ClassVar[Disk.OnError]
        ON_ERROR_STOP: _ClassVar[Disk.OnError]
        ON_ERROR_REPORT: _ClassVar[Disk.OnError]
        ON_ERROR_IGNORE: _ClassVar[Disk.OnError]
        ON_ERROR_STOP_WHEN_FULL: _ClassVar[Disk.OnError]
    ON_ERROR_UNSPECIFIED: Disk.OnError
    ON_ERROR_STOP: Disk.OnError
    ON_ERROR_REPORT: Disk.OnError
    ON_ERROR_IGNORE: Disk.OnError
    ON_ERROR_STOP_WHEN_FULL: Disk.OnError
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BUS_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    SHAREABLE_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    IO_FIELD_NUMBER: _ClassVar[int]
    ON_ERROR_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEDICATED_IO_THREAD_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TRAY_OPEN_FIELD_NUMBER: _ClassVar[int]
    HOTPLUGGED_FIELD_NUMBER: _ClassVar[int]
    IO_THREAD_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: Disk.Kind
    bus: Disk.Bus
    volume: VolumeHandle
    read_only: bool
    shareable: bool
    serial: str
    cache: Disk.Cache
    io: Disk.Io
    on_error: Disk.OnError
    block_size: BlockSize
    dedicated_io_thread: bool
    pci_address: str
    queues: int
    tray_open: bool
    hotplugged: bool
    io_thread: int
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[Disk.Kind, str]] = ..., bus: _Optional[_Union[Disk.Bus, str]] = ..., volume: _Optional[_Union[VolumeHandle, _Mapping]] = ..., read_only: _Optional[bool] = ..., shareable: _Optional[bool] = ..., serial: _Optional[str] = ..., cache: _Optional[_Union[Disk.Cache, str]] = ..., io: _Optional[_Union[Disk.Io, str]] = ..., on_error: _Optional[_Union[Disk.OnError, str]] = ..., block_size: _Optional[_Union[BlockSize, _Mapping]] = ..., dedicated_io_thread: _Optional[bool] = ..., pci_address: _Optional[str] = ..., queues: _Optional[int] = ..., tray_open: _Optional[bool] = ..., hotplugged: _Optional[bool] = ..., io_thread: _Optional[int] = ...) -> None: ...

class BlockSize(_message.Message):
    __slots__ = ("logical", "physical", "discard_granularity", "match_volume")
    LOGICAL_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_FIELD_NUMBER: _ClassVar[int]
    DISCARD_GRANULARITY_FIELD_NUMBER: _ClassVar[int]
    MATCH_VOLUME_FIELD_NUMBER: _ClassVar[int]
    logical: int
    physical: int
    discard_granularity: int
    match_volume: bool
    def __init__(self, logical: _Optional[int] = ..., physical: _Optional[int] = ..., discard_granularity: _Optional[int] = ..., match_volume: _Optional[bool] = ...) -> None: ...

class VolumeHandle(_message.Message):
    __slots__ = ("layers", "size_bytes", "vhost_user_handle")
    class Layer(_message.Message):
        __slots__ = ("handle", "format", "read_only", "block_device", "direct")
        class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
            __slots__ = ()
            FORMAT_UNSPECIFIED: _ClassVar[VolumeHandle.Layer.Format]
            FORMAT_RAW: _ClassVar[VolumeHandle.Layer.Format]
            FORMAT_QCOW2: _ClassVar[VolumeHandle.Layer.Format]
        FORMAT_UNSPECIFIED: VolumeHandle.Layer.Format
        FORMAT_RAW: VolumeHandle.Layer.Format
        FORMAT_QCOW2: VolumeHandle.Layer.Format
        HANDLE_FIELD_NUMBER: _ClassVar[int]
        FORMAT_FIELD_NUMBER: _ClassVar[int]
        READ_ONLY_FIELD_NUMBER: _ClassVar[int]
        BLOCK_DEVICE_FIELD_NUMBER: _ClassVar[int]
        DIRECT_FIELD_NUMBER: _ClassVar[int]
        handle: str
        format: VolumeHandle.Layer.Format
        read_only: bool
        block_device: bool
        direct: bool
        def __init__(self, handle: _Optional[str] = ..., format: _Optional[_Union[VolumeHandle.Layer.Format, str]] = ..., read_only: _Optional[bool] = ..., block_device: _Optional[bool] = ..., direct: _Optional[bool] = ...) -> None: ...
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    VHOST_USER_HANDLE_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[VolumeHandle.Layer]
    size_bytes: int
    vhost_user_handle: str
    def __init__(self, layers: _Optional[_Iterable[_Union[VolumeHandle.Layer, _Mapping]]] = ..., size_bytes: _Optional[int] = ..., vhost_user_handle: _Optional[str] = ...) -> None: ...

class Nic(_message.Message):
    __slots__ = ("id", "model", "mac", "mtu", "link_down", "queues", "pci_address", "acpi_index", "tap", "user", "vhost_user", "pci", "boot_file")
    class Model(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODEL_UNSPECIFIED: _ClassVar[Nic.Model]
        MODEL_VIRTIO: _ClassVar[Nic.Model]
        MODEL_E1000: _ClassVar[Nic.Model]
        MODEL_E1000E: _ClassVar[Nic.Model]
        MODEL_IGB: _ClassVar[Nic.Model]
        MODEL_NE2K_PCI: _ClassVar[Nic.Model]
        MODEL_PCNET: _ClassVar[Nic.Model]
        MODEL_RTL8139: _ClassVar[Nic.Model]
    MODEL_UNSPECIFIED: Nic.Model
    MODEL_VIRTIO: Nic.Model
    MODEL_E1000: Nic.Model
    MODEL_E1000E: Nic.Model
    MODEL_IGB: Nic.Model
    MODEL_NE2K_PCI: Nic.Model
    MODEL_PCNET: Nic.Model
    MODEL_RTL8139: Nic.Model
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    LINK_DOWN_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PCI_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ACPI_INDEX_FIELD_NUMBER: _ClassVar[int]
    TAP_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    VHOST_USER_FIELD_NUMBER: _ClassVar[int]
    PCI_FIELD_NUMBER: _ClassVar[int]
    BOOT_FILE_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: Nic.Model
    mac: str
    mtu: int
    link_down: bool
    queues: int
    pci_address: str
    acpi_index: int
    tap: TapBackend
    user: UserBackend
    vhost_user: VhostUserBackend
    pci: PciBackend
    boot_file: str
    def __init__(self, id: _Optional[str] = ..., model: _Optional[_Union[Nic.Model, str]] = ..., mac: _Optional[str] = ..., mtu: _Optional[int] = ..., link_down: _Optional[bool] = ..., queues: _Optional[int] = ..., pci_address: _Optional[str] = ..., acpi_index: _Optional[int] = ..., tap: _Optional[_Union[TapBackend, _Mapping]] = ..., user: _Optional[_Union[UserBackend, _Mapping]] = ..., vhost_user: _Optional[_Union[VhostUserBackend, _Mapping]] = ..., pci: _Optional[_Union[PciBackend, _Mapping]] = ..., boot_file: _Optional[str] = ...) -> None: ...

class TapBackend(_message.Message):
    __slots__ = ("handles", "vhost_handles", "plain")
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    VHOST_HANDLES_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedScalarFieldContainer[str]
    vhost_handles: _containers.RepeatedScalarFieldContainer[str]
    plain: bool
    def __init__(self, handles: _Optional[_Iterable[str]] = ..., vhost_handles: _Optional[_Iterable[str]] = ..., plain: _Optional[bool] = ...) -> None: ...

class UserBackend(_message.Message):
    __slots__ = ("network", "hostname", "forwards", "dns_search")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    FORWARDS_FIELD_NUMBER: _ClassVar[int]
    DNS_SEARCH_FIELD_NUMBER: _ClassVar[int]
    network: str
    hostname: str
    forwards: _containers.RepeatedCompositeFieldContainer[PortForward]
    dns_search: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, network: _Optional[str] = ..., hostname: _Optional[str] = ..., forwards: _Optional[_Iterable[_Union[PortForward, _Mapping]]] = ..., dns_search: _Optional[_Iterable[str]] = ...) -> None: ...

class PortForward(_message.Message):
    __slots__ = ("protocol", "host_address", "host_port", "guest_port")
    class Protocol(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROTOCOL_UNSPECIFIED: _ClassVar[PortForward.Protocol]
        PROTOCOL_TCP: _ClassVar[PortForward.Protocol]
        PROTOCOL_UDP: _ClassVar[PortForward.Protocol]
    PROTOCOL_UNSPECIFIED: PortForward.Protocol
    PROTOCOL_TCP: PortForward.Protocol
    PROTOCOL_UDP: PortForward.Protocol
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    HOST_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOST_PORT_FIELD_NUMBER: _ClassVar[int]
    GUEST_PORT_FIELD_NUMBER: _ClassVar[int]
    protocol: PortForward.Protocol
    host_address: str
    host_port: int
    guest_port: int
    def __init__(self, protocol: _Optional[_Union[PortForward.Protocol, str]] = ..., host_address: _Optional[str] = ..., host_port: _Optional[int] = ..., guest_port: _Optional[int] = ...) -> None: ...

class VhostUserBackend(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    def __init__(self, handle: _Optional[str] = ...) -> None: ...

class PciBackend(_message.Message):
    __slots__ = ("address", "handle")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    address: str
    handle: str
    def __init__(self, address: _Optional[str] = ..., handle: _Optional[str] = ...) -> None: ...

class Console(_message.Message):
    __slots__ = ("id", "kind", "log_handle", "closed")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Console.Kind]
        KIND_SERIAL: _ClassVar[Console.Kind]
        KIND_VIRTIO: _ClassVar[Console.Kind]
    KIND_UNSPECIFIED: Console.Kind
    KIND_SERIAL: Console.Kind
    KIND_VIRTIO: Console.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LOG_HANDLE_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: Console.Kind
    log_handle: str
    closed: bool
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[_Union[Console.Kind, str]] = ..., log_handle: _Optional[str] = ..., closed: _Optional[bool] = ...) -> None: ...

class Display(_message.Message):
    __slots__ = ("id", "model", "heads")
    ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    id: str
    model: str
    heads: int
    def __init__(self, id: _Optional[str] = ..., model: _Optional[str] = ..., heads: _Optional[int] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("id", "balloon", "rng", "watchdog", "tpm", "vsock", "panic", "input", "sound", "guest_agent_port", "pci", "usb_redirection")
    ID_FIELD_NUMBER: _ClassVar[int]
    BALLOON_FIELD_NUMBER: _ClassVar[int]
    RNG_FIELD_NUMBER: _ClassVar[int]
    WATCHDOG_FIELD_NUMBER: _ClassVar[int]
    TPM_FIELD_NUMBER: _ClassVar[int]
    VSOCK_FIELD_NUMBER: _ClassVar[int]
    PANIC_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SOUND_FIELD_NUMBER: _ClassVar[int]
    GUEST_AGENT_PORT_FIELD_NUMBER: _ClassVar[int]
    PCI_FIELD_NUMBER: _ClassVar[int]
    USB_REDIRECTION_FIELD_NUMBER: _ClassVar[int]
    id: str
    balloon: Balloon
    rng: Rng
    watchdog: Watchdog
    tpm: Tpm
    vsock: Vsock
    panic: Panic
    input: Input
    sound: Sound
    guest_agent_port: GuestAgentPort
    pci: PciBackend
    usb_redirection: UsbRedirection
    def __init__(self, id: _Optional[str] = ..., balloon: _Optional[_Union[Balloon, _Mapping]] = ..., rng: _Optional[_Union[Rng, _Mapping]] = ..., watchdog: _Optional[_Union[Watchdog, _Mapping]] = ..., tpm: _Optional[_Union[Tpm, _Mapping]] = ..., vsock: _Optional[_Union[Vsock, _Mapping]] = ..., panic: _Optional[_Union[Panic, _Mapping]] = ..., input: _Optional[_Union[Input, _Mapping]] = ..., sound: _Optional[_Union[Sound, _Mapping]] = ..., guest_agent_port: _Optional[_Union[GuestAgentPort, _Mapping]] = ..., pci: _Optional[_Union[PciBackend, _Mapping]] = ..., usb_redirection: _Optional[_Union[UsbRedirection, _Mapping]] = ...) -> None: ...

class Balloon(_message.Message):
    __slots__ = ("free_page_reporting", "statistics_seconds")
    FREE_PAGE_REPORTING_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_SECONDS_FIELD_NUMBER: _ClassVar[int]
    free_page_reporting: bool
    statistics_seconds: int
    def __init__(self, free_page_reporting: _Optional[bool] = ..., statistics_seconds: _Optional[int] = ...) -> None: ...

class Rng(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Watchdog(_message.Message):
    __slots__ = ("model", "action")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    model: str
    action: str
    def __init__(self, model: _Optional[str] = ..., action: _Optional[str] = ...) -> None: ...

class Tpm(_message.Message):
    __slots__ = ("handle", "model")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    handle: str
    model: str
    def __init__(self, handle: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class Vsock(_message.Message):
    __slots__ = ("cid", "handle")
    CID_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    cid: int
    handle: str
    def __init__(self, cid: _Optional[int] = ..., handle: _Optional[str] = ...) -> None: ...

class Panic(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("type", "bus")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BUS_FIELD_NUMBER: _ClassVar[int]
    type: str
    bus: str
    def __init__(self, type: _Optional[str] = ..., bus: _Optional[str] = ...) -> None: ...

class Sound(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class GuestAgentPort(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UsbRedirection(_message.Message):
    __slots__ = ("channels",)
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channels: int
    def __init__(self, channels: _Optional[int] = ...) -> None: ...

class Filesystem(_message.Message):
    __slots__ = ("id", "tag", "vhost_user_handle", "directory_handle", "read_only", "namespace_handle")
    ID_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    VHOST_USER_HANDLE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_HANDLE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_HANDLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    tag: str
    vhost_user_handle: str
    directory_handle: str
    read_only: bool
    namespace_handle: str
    def __init__(self, id: _Optional[str] = ..., tag: _Optional[str] = ..., vhost_user_handle: _Optional[str] = ..., directory_handle: _Optional[str] = ..., read_only: _Optional[bool] = ..., namespace_handle: _Optional[str] = ...) -> None: ...

class SystemIdentity(_message.Message):
    __slots__ = ("uuid", "serial", "manufacturer", "product", "version", "sku", "family", "chassis_asset", "oem_strings", "chassis_manufacturer", "chassis_version", "chassis_serial", "chassis_sku")
    UUID_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    MANUFACTURER_FIELD_NUMBER: _ClassVar[int]
    PRODUCT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SKU_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    CHASSIS_ASSET_FIELD_NUMBER: _ClassVar[int]
    OEM_STRINGS_FIELD_NUMBER: _ClassVar[int]
    CHASSIS_MANUFACTURER_FIELD_NUMBER: _ClassVar[int]
    CHASSIS_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHASSIS_SERIAL_FIELD_NUMBER: _ClassVar[int]
    CHASSIS_SKU_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    serial: str
    manufacturer: str
    product: str
    version: str
    sku: str
    family: str
    chassis_asset: str
    oem_strings: _containers.RepeatedScalarFieldContainer[str]
    chassis_manufacturer: str
    chassis_version: str
    chassis_serial: str
    chassis_sku: str
    def __init__(self, uuid: _Optional[str] = ..., serial: _Optional[str] = ..., manufacturer: _Optional[str] = ..., product: _Optional[str] = ..., version: _Optional[str] = ..., sku: _Optional[str] = ..., family: _Optional[str] = ..., chassis_asset: _Optional[str] = ..., oem_strings: _Optional[_Iterable[str]] = ..., chassis_manufacturer: _Optional[str] = ..., chassis_version: _Optional[str] = ..., chassis_serial: _Optional[str] = ..., chassis_sku: _Optional[str] = ...) -> None: ...

class Clock(_message.Message):
    __slots__ = ("utc_offset_seconds", "timezone", "timers")
    class Timer(_message.Message):
        __slots__ = ("name", "present", "tick_policy", "track")
        NAME_FIELD_NUMBER: _ClassVar[int]
        PRESENT_FIELD_NUMBER: _ClassVar[int]
        TICK_POLICY_FIELD_NUMBER: _ClassVar[int]
        TRACK_FIELD_NUMBER: _ClassVar[int]
        name: str
        present: bool
        tick_policy: str
        track: str
        def __init__(self, name: _Optional[str] = ..., present: _Optional[bool] = ..., tick_policy: _Optional[str] = ..., track: _Optional[str] = ...) -> None: ...
    UTC_OFFSET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEZONE_FIELD_NUMBER: _ClassVar[int]
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    utc_offset_seconds: int
    timezone: str
    timers: _containers.RepeatedCompositeFieldContainer[Clock.Timer]
    def __init__(self, utc_offset_seconds: _Optional[int] = ..., timezone: _Optional[str] = ..., timers: _Optional[_Iterable[_Union[Clock.Timer, _Mapping]]] = ...) -> None: ...

class Lifecycle(_message.Message):
    __slots__ = ("on_reboot", "start_paused", "grace_seconds")
    class OnReboot(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ON_REBOOT_UNSPECIFIED: _ClassVar[Lifecycle.OnReboot]
        ON_REBOOT_RESET: _ClassVar[Lifecycle.OnReboot]
        ON_REBOOT_STOP: _ClassVar[Lifecycle.OnReboot]
    ON_REBOOT_UNSPECIFIED: Lifecycle.OnReboot
    ON_REBOOT_RESET: Lifecycle.OnReboot
    ON_REBOOT_STOP: Lifecycle.OnReboot
    ON_REBOOT_FIELD_NUMBER: _ClassVar[int]
    START_PAUSED_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    on_reboot: Lifecycle.OnReboot
    start_paused: bool
    grace_seconds: int
    def __init__(self, on_reboot: _Optional[_Union[Lifecycle.OnReboot, str]] = ..., start_paused: _Optional[bool] = ..., grace_seconds: _Optional[int] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ("acpi", "apic", "smm", "hidden_hypervisor", "hyperv", "pv_spinlocks")
    class HypervEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACPI_FIELD_NUMBER: _ClassVar[int]
    APIC_FIELD_NUMBER: _ClassVar[int]
    SMM_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_HYPERVISOR_FIELD_NUMBER: _ClassVar[int]
    HYPERV_FIELD_NUMBER: _ClassVar[int]
    PV_SPINLOCKS_FIELD_NUMBER: _ClassVar[int]
    acpi: bool
    apic: bool
    smm: bool
    hidden_hypervisor: bool
    hyperv: _containers.ScalarMap[str, str]
    pv_spinlocks: bool
    def __init__(self, acpi: _Optional[bool] = ..., apic: _Optional[bool] = ..., smm: _Optional[bool] = ..., hidden_hypervisor: _Optional[bool] = ..., hyperv: _Optional[_Mapping[str, str]] = ..., pv_spinlocks: _Optional[bool] = ...) -> None: ...
