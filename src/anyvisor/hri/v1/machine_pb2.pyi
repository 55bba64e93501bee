from anyvisor.hri.v1 import machine_spec_pb2 as _machine_spec_pb2
from anyvisor.hri.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mutation(_message.Message):
    __slots__ = ("machine_id", "operation_id", "generation", "minor")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MINOR_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    operation_id: str
    generation: int
    minor: int
    def __init__(self, machine_id: _Optional[str] = ..., operation_id: _Optional[str] = ..., generation: _Optional[int] = ..., minor: _Optional[int] = ...) -> None: ...

class PrepareRequest(_message.Message):
    __slots__ = ("mutation", "machine", "needs")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    machine: _machine_spec_pb2.Machine
    needs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., machine: _Optional[_Union[_machine_spec_pb2.Machine, _Mapping]] = ..., needs: _Optional[_Iterable[str]] = ...) -> None: ...

class PrepareResponse(_message.Message):
    __slots__ = ("confirmed", "launch", "endpoints", "driver_handles", "handle", "devices", "accelerator", "profile", "findings")
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    DRIVER_HANDLES_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    confirmed: _containers.RepeatedScalarFieldContainer[str]
    launch: LaunchPlan
    endpoints: _containers.RepeatedCompositeFieldContainer[_types_pb2.Endpoint]
    driver_handles: _containers.RepeatedScalarFieldContainer[str]
    handle: bytes
    devices: _containers.RepeatedCompositeFieldContainer[_types_pb2.DeviceState]
    accelerator: _types_pb2.Accelerator
    profile: str
    findings: _containers.RepeatedCompositeFieldContainer[_types_pb2.Finding]
    def __init__(self, confirmed: _Optional[_Iterable[str]] = ..., launch: _Optional[_Union[LaunchPlan, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_types_pb2.Endpoint, _Mapping]]] = ..., driver_handles: _Optional[_Iterable[str]] = ..., handle: _Optional[bytes] = ..., devices: _Optional[_Iterable[_Union[_types_pb2.DeviceState, _Mapping]]] = ..., accelerator: _Optional[_Union[_types_pb2.Accelerator, str]] = ..., profile: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[_types_pb2.Finding, _Mapping]]] = ...) -> None: ...

class LaunchPlan(_message.Message):
    __slots__ = ("mode", "argv", "env", "descriptors", "limits", "seccomp_profile", "helpers", "working_directory", "seeds", "pairs")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[LaunchPlan.Mode]
        MODE_EXEC: _ClassVar[LaunchPlan.Mode]
        MODE_RESIDENT: _ClassVar[LaunchPlan.Mode]
        MODE_EXTERNAL: _ClassVar[LaunchPlan.Mode]
        MODE_NONE: _ClassVar[LaunchPlan.Mode]
    MODE_UNSPECIFIED: LaunchPlan.Mode
    MODE_EXEC: LaunchPlan.Mode
    MODE_RESIDENT: LaunchPlan.Mode
    MODE_EXTERNAL: LaunchPlan.Mode
    MODE_NONE: LaunchPlan.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SECCOMP_PROFILE_FIELD_NUMBER: _ClassVar[int]
    HELPERS_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    mode: LaunchPlan.Mode
    argv: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedScalarFieldContainer[str]
    descriptors: _containers.RepeatedCompositeFieldContainer[DescriptorSlot]
    limits: _containers.RepeatedCompositeFieldContainer[Limit]
    seccomp_profile: str
    helpers: _containers.RepeatedCompositeFieldContainer[Helper]
    working_directory: bool
    seeds: _containers.RepeatedCompositeFieldContainer[Seed]
    pairs: _containers.RepeatedCompositeFieldContainer[SocketPair]
    def __init__(self, mode: _Optional[_Union[LaunchPlan.Mode, str]] = ..., argv: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[str]] = ..., descriptors: _Optional[_Iterable[_Union[DescriptorSlot, _Mapping]]] = ..., limits: _Optional[_Iterable[_Union[Limit, _Mapping]]] = ..., seccomp_profile: _Optional[str] = ..., helpers: _Optional[_Iterable[_Union[Helper, _Mapping]]] = ..., working_directory: _Optional[bool] = ..., seeds: _Optional[_Iterable[_Union[Seed, _Mapping]]] = ..., pairs: _Optional[_Iterable[_Union[SocketPair, _Mapping]]] = ...) -> None: ...

class SocketPair(_message.Message):
    __slots__ = ("first", "second", "listening")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    LISTENING_FIELD_NUMBER: _ClassVar[int]
    first: str
    second: str
    listening: bool
    def __init__(self, first: _Optional[str] = ..., second: _Optional[str] = ..., listening: _Optional[bool] = ...) -> None: ...

class Seed(_message.Message):
    __slots__ = ("handle", "content")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    handle: str
    content: bytes
    def __init__(self, handle: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class DescriptorSlot(_message.Message):
    __slots__ = ("number", "handle", "reopened")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REOPENED_FIELD_NUMBER: _ClassVar[int]
    number: int
    handle: str
    reopened: bool
    def __init__(self, number: _Optional[int] = ..., handle: _Optional[str] = ..., reopened: _Optional[bool] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ("name", "soft", "hard")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    name: str
    soft: int
    hard: int
    def __init__(self, name: _Optional[str] = ..., soft: _Optional[int] = ..., hard: _Optional[int] = ...) -> None: ...

class Helper(_message.Message):
    __slots__ = ("name", "argv", "env", "descriptors", "on_exit", "becomes")
    class OnExit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ON_EXIT_UNSPECIFIED: _ClassVar[Helper.OnExit]
        ON_EXIT_FATAL: _ClassVar[Helper.OnExit]
        ON_EXIT_RESTART: _ClassVar[Helper.OnExit]
        ON_EXIT_IGNORE: _ClassVar[Helper.OnExit]
    ON_EXIT_UNSPECIFIED: Helper.OnExit
    ON_EXIT_FATAL: Helper.OnExit
    ON_EXIT_RESTART: Helper.OnExit
    ON_EXIT_IGNORE: Helper.OnExit
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    ON_EXIT_FIELD_NUMBER: _ClassVar[int]
    BECOMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedScalarFieldContainer[str]
    descriptors: _containers.RepeatedCompositeFieldContainer[DescriptorSlot]
    on_exit: Helper.OnExit
    becomes: str
    def __init__(self, name: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[str]] = ..., descriptors: _Optional[_Iterable[_Union[DescriptorSlot, _Mapping]]] = ..., on_exit: _Optional[_Union[Helper.OnExit, str]] = ..., becomes: _Optional[str] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ("mutation", "tokens")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    tokens: _containers.RepeatedCompositeFieldContainer[_types_pb2.DescriptorToken]
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., tokens: _Optional[_Iterable[_Union[_types_pb2.DescriptorToken, _Mapping]]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("mutation", "mode", "reboot")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[StopRequest.Mode]
        MODE_REQUEST: _ClassVar[StopRequest.Mode]
        MODE_FORCE: _ClassVar[StopRequest.Mode]
    MODE_UNSPECIFIED: StopRequest.Mode
    MODE_REQUEST: StopRequest.Mode
    MODE_FORCE: StopRequest.Mode
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REBOOT_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    mode: StopRequest.Mode
    reboot: bool
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., mode: _Optional[_Union[StopRequest.Mode, str]] = ..., reboot: _Optional[bool] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("mutation",)
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("mutation",)
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("mutation",)
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ...) -> None: ...

class DestroyRequest(_message.Message):
    __slots__ = ("mutation",)
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ...) -> None: ...

class DestroyResponse(_message.Message):
    __slots__ = ("last_state",)
    LAST_STATE_FIELD_NUMBER: _ClassVar[int]
    last_state: _types_pb2.MachineState
    def __init__(self, last_state: _Optional[_Union[_types_pb2.MachineState, _Mapping]] = ...) -> None: ...

class AdoptRequest(_message.Message):
    __slots__ = ("mutation", "handle", "tokens", "pid")
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    handle: bytes
    tokens: _containers.RepeatedCompositeFieldContainer[_types_pb2.DescriptorToken]
    pid: int
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., handle: _Optional[bytes] = ..., tokens: _Optional[_Iterable[_Union[_types_pb2.DescriptorToken, _Mapping]]] = ..., pid: _Optional[int] = ...) -> None: ...

class AdoptResponse(_message.Message):
    __slots__ = ("state", "endpoints")
    STATE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    state: _types_pb2.MachineState
    endpoints: _containers.RepeatedCompositeFieldContainer[_types_pb2.Endpoint]
    def __init__(self, state: _Optional[_Union[_types_pb2.MachineState, _Mapping]] = ..., endpoints: _Optional[_Iterable[_Union[_types_pb2.Endpoint, _Mapping]]] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ("machine_id",)
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    def __init__(self, machine_id: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("boot_id", "from_sequence")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    from_sequence: int
    def __init__(self, boot_id: _Optional[str] = ..., from_sequence: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("boot_id", "sequence", "time_unix_nano", "kind", "state", "operation", "machine_id")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Event.Kind]
        KIND_RESYNC: _ClassVar[Event.Kind]
        KIND_STATE: _ClassVar[Event.Kind]
        KIND_OPERATION: _ClassVar[Event.Kind]
        KIND_REMOVED: _ClassVar[Event.Kind]
        KIND_SYNCED: _ClassVar[Event.Kind]
    KIND_UNSPECIFIED: Event.Kind
    KIND_RESYNC: Event.Kind
    KIND_STATE: Event.Kind
    KIND_OPERATION: Event.Kind
    KIND_REMOVED: Event.Kind
    KIND_SYNCED: Event.Kind
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_UNIX_NANO_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    sequence: int
    time_unix_nano: int
    kind: Event.Kind
    state: _types_pb2.MachineState
    operation: _types_pb2.Operation
    machine_id: str
    def __init__(self, boot_id: _Optional[str] = ..., sequence: _Optional[int] = ..., time_unix_nano: _Optional[int] = ..., kind: _Optional[_Union[Event.Kind, str]] = ..., state: _Optional[_Union[_types_pb2.MachineState, _Mapping]] = ..., operation: _Optional[_Union[_types_pb2.Operation, _Mapping]] = ..., machine_id: _Optional[str] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("mutation", "attach_disk", "detach_disk", "resize_disk", "change_media", "attach_nic", "detach_nic", "set_link", "set_cpu", "set_memory", "attach_device", "detach_device", "tokens", "placed")
    class PlacedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    ATTACH_DISK_FIELD_NUMBER: _ClassVar[int]
    DETACH_DISK_FIELD_NUMBER: _ClassVar[int]
    RESIZE_DISK_FIELD_NUMBER: _ClassVar[int]
    CHANGE_MEDIA_FIELD_NUMBER: _ClassVar[int]
    ATTACH_NIC_FIELD_NUMBER: _ClassVar[int]
    DETACH_NIC_FIELD_NUMBER: _ClassVar[int]
    SET_LINK_FIELD_NUMBER: _ClassVar[int]
    SET_CPU_FIELD_NUMBER: _ClassVar[int]
    SET_MEMORY_FIELD_NUMBER: _ClassVar[int]
    ATTACH_DEVICE_FIELD_NUMBER: _ClassVar[int]
    DETACH_DEVICE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    mutation: Mutation
    attach_disk: _machine_spec_pb2.Disk
    detach_disk: str
    resize_disk: ResizeDisk
    change_media: ChangeMedia
    attach_nic: _machine_spec_pb2.Nic
    detach_nic: str
    set_link: SetLink
    set_cpu: SetCpu
    set_memory: SetMemory
    attach_device: _machine_spec_pb2.Device
    detach_device: str
    tokens: _containers.RepeatedCompositeFieldContainer[_types_pb2.DescriptorToken]
    placed: _containers.ScalarMap[str, str]
    def __init__(self, mutation: _Optional[_Union[Mutation, _Mapping]] = ..., attach_disk: _Optional[_Union[_machine_spec_pb2.Disk, _Mapping]] = ..., detach_disk: _Optional[str] = ..., resize_disk: _Optional[_Union[ResizeDisk, _Mapping]] = ..., change_media: _Optional[_Union[ChangeMedia, _Mapping]] = ..., attach_nic: _Optional[_Union[_machine_spec_pb2.Nic, _Mapping]] = ..., detach_nic: _Optional[str] = ..., set_link: _Optional[_Union[SetLink, _Mapping]] = ..., set_cpu: _Optional[_Union[SetCpu, _Mapping]] = ..., set_memory: _Optional[_Union[SetMemory, _Mapping]] = ..., attach_device: _Optional[_Union[_machine_spec_pb2.Device, _Mapping]] = ..., detach_device: _Optional[str] = ..., tokens: _Optional[_Iterable[_Union[_types_pb2.DescriptorToken, _Mapping]]] = ..., placed: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ResizeDisk(_message.Message):
    __slots__ = ("disk_id", "size_bytes", "current_bytes")
    DISK_ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CURRENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    disk_id: str
    size_bytes: int
    current_bytes: int
    def __init__(self, disk_id: _Optional[str] = ..., size_bytes: _Optional[int] = ..., current_bytes: _Optional[int] = ...) -> None: ...

class ChangeMedia(_message.Message):
    __slots__ = ("disk_id", "volume", "tray_open")
    DISK_ID_FIELD_NUMBER: _ClassVar[int]
    VOLUME_FIELD_NUMBER: _ClassVar[int]
    TRAY_OPEN_FIELD_NUMBER: _ClassVar[int]
    disk_id: str
    volume: _machine_spec_pb2.VolumeHandle
    tray_open: bool
    def __init__(self, disk_id: _Optional[str] = ..., volume: _Optional[_Union[_machine_spec_pb2.VolumeHandle, _Mapping]] = ..., tray_open: _Optional[bool] = ...) -> None: ...

class SetLink(_message.Message):
    __slots__ = ("nic_id", "up")
    NIC_ID_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    nic_id: str
    up: bool
    def __init__(self, nic_id: _Optional[str] = ..., up: _Optional[bool] = ...) -> None: ...

class SetCpu(_message.Message):
    __slots__ = ("sockets",)
    SOCKETS_FIELD_NUMBER: _ClassVar[int]
    sockets: int
    def __init__(self, sockets: _Optional[int] = ...) -> None: ...

class SetMemory(_message.Message):
    __slots__ = ("size_bytes",)
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    size_bytes: int
    def __init__(self, size_bytes: _Optional[int] = ...) -> None: ...

class GetOperationRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...

class CancelOperationRequest(_message.Message):
    __slots__ = ("operation_id",)
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    operation_id: str
    def __init__(self, operation_id: _Optional[str] = ...) -> None: ...
