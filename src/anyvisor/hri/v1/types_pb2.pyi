from google.protobuf import any_pb2 as _any_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_PREPARED: _ClassVar[Phase]
    PHASE_STARTING: _ClassVar[Phase]
    PHASE_RUNNING: _ClassVar[Phase]
    PHASE_PAUSED: _ClassVar[Phase]
    PHASE_STOPPING: _ClassVar[Phase]
    PHASE_STOPPED: _ClassVar[Phase]
    PHASE_CRASHED: _ClassVar[Phase]
    PHASE_MOVING_OUT: _ClassVar[Phase]
    PHASE_MOVING_IN: _ClassVar[Phase]
    PHASE_LOST: _ClassVar[Phase]

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_REASON_UNSPECIFIED: _ClassVar[EndReason]
    END_REASON_GUEST_SHUTDOWN: _ClassVar[EndReason]
    END_REASON_GUEST_REBOOT: _ClassVar[EndReason]
    END_REASON_REQUESTED_SHUTDOWN: _ClassVar[EndReason]
    END_REASON_FORCED: _ClassVar[EndReason]
    END_REASON_PANIC: _ClassVar[EndReason]
    END_REASON_WATCHDOG: _ClassVar[EndReason]
    END_REASON_VMM_EXITED: _ClassVar[EndReason]
    END_REASON_VMM_KILLED: _ClassVar[EndReason]
    END_REASON_OUT_OF_MEMORY: _ClassVar[EndReason]
    END_REASON_MOVED: _ClassVar[EndReason]
    END_REASON_INTERNAL_ERROR: _ClassVar[EndReason]
    END_REASON_UNKNOWN: _ClassVar[EndReason]

class PauseReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAUSE_REASON_UNSPECIFIED: _ClassVar[PauseReason]
    PAUSE_REASON_USER: _ClassVar[PauseReason]
    PAUSE_REASON_IO_ERROR: _ClassVar[PauseReason]
    PAUSE_REASON_MIGRATION: _ClassVar[PauseReason]
    PAUSE_REASON_WATCHDOG: _ClassVar[PauseReason]
    PAUSE_REASON_INTERNAL_ERROR: _ClassVar[PauseReason]

class Accelerator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCELERATOR_UNSPECIFIED: _ClassVar[Accelerator]
    ACCELERATOR_KVM: _ClassVar[Accelerator]
    ACCELERATOR_MSHV: _ClassVar[Accelerator]
    ACCELERATOR_EMULATION: _ClassVar[Accelerator]
    ACCELERATOR_NONE: _ClassVar[Accelerator]
PHASE_UNSPECIFIED: Phase
PHASE_PREPARED: Phase
PHASE_STARTING: Phase
PHASE_RUNNING: Phase
PHASE_PAUSED: Phase
PHASE_STOPPING: Phase
PHASE_STOPPED: Phase
PHASE_CRASHED: Phase
PHASE_MOVING_OUT: Phase
PHASE_MOVING_IN: Phase
PHASE_LOST: Phase
END_REASON_UNSPECIFIED: EndReason
END_REASON_GUEST_SHUTDOWN: EndReason
END_REASON_GUEST_REBOOT: EndReason
END_REASON_REQUESTED_SHUTDOWN: EndReason
END_REASON_FORCED: EndReason
END_REASON_PANIC: EndReason
END_REASON_WATCHDOG: EndReason
END_REASON_VMM_EXITED: EndReason
END_REASON_VMM_KILLED: EndReason
END_REASON_OUT_OF_MEMORY: EndReason
END_REASON_MOVED: EndReason
END_REASON_INTERNAL_ERROR: EndReason
END_REASON_UNKNOWN: EndReason
PAUSE_REASON_UNSPECIFIED: PauseReason
PAUSE_REASON_USER: PauseReason
PAUSE_REASON_IO_ERROR: PauseReason
PAUSE_REASON_MIGRATION: PauseReason
PAUSE_REASON_WATCHDOG: PauseReason
PAUSE_REASON_INTERNAL_ERROR: PauseReason
ACCELERATOR_UNSPECIFIED: Accelerator
ACCELERATOR_KVM: Accelerator
ACCELERATOR_MSHV: Accelerator
ACCELERATOR_EMULATION: Accelerator
ACCELERATOR_NONE: Accelerator

class Endpoint(_message.Message):
    __slots__ = ("id", "purpose", "protocol", "protocol_version", "exclusive", "socket", "listen_descriptor", "vmm_path", "shared_with", "pair_descriptor", "device_id", "stop_script", "reader_logs")
    class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PURPOSE_UNSPECIFIED: _ClassVar[Endpoint.Purpose]
        PURPOSE_CONTROL: _ClassVar[Endpoint.Purpose]
        PURPOSE_STOP: _ClassVar[Endpoint.Purpose]
        PURPOSE_EVENTS: _ClassVar[Endpoint.Purpose]
        PURPOSE_CONSOLE: _ClassVar[Endpoint.Purpose]
        PURPOSE_DISPLAY: _ClassVar[Endpoint.Purpose]
        PURPOSE_GUEST_AGENT: _ClassVar[Endpoint.Purpose]
        PURPOSE_USB_REDIRECTION: _ClassVar[Endpoint.Purpose]
    PURPOSE_UNSPECIFIED: Endpoint.Purpose
    PURPOSE_CONTROL: Endpoint.Purpose
    PURPOSE_STOP: Endpoint.Purpose
    PURPOSE_EVENTS: Endpoint.Purpose
    PURPOSE_CONSOLE: Endpoint.Purpose
    PURPOSE_DISPLAY: Endpoint.Purpose
    PURPOSE_GUEST_AGENT: Endpoint.Purpose
    PURPOSE_USB_REDIRECTION: Endpoint.Purpose
    class Socket(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOCKET_UNSPECIFIED: _ClassVar[Endpoint.Socket]
        SOCKET_STREAM: _ClassVar[Endpoint.Socket]
        SOCKET_DGRAM: _ClassVar[Endpoint.Socket]
        SOCKET_SEQPACKET: _ClassVar[Endpoint.Socket]
        SOCKET_FIFO: _ClassVar[Endpoint.Socket]
    SOCKET_UNSPECIFIED: Endpoint.Socket
    SOCKET_STREAM: Endpoint.Socket
    SOCKET_DGRAM: Endpoint.Socket
    SOCKET_SEQPACKET: Endpoint.Socket
    SOCKET_FIFO: Endpoint.Socket
    ID_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    LISTEN_DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    VMM_PATH_FIELD_NUMBER: _ClassVar[int]
    SHARED_WITH_FIELD_NUMBER: _ClassVar[int]
    PAIR_DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    STOP_SCRIPT_FIELD_NUMBER: _ClassVar[int]
    READER_LOGS_FIELD_NUMBER: _ClassVar[int]
    id: str
    purpose: Endpoint.Purpose
    protocol: str
    protocol_version: str
    exclusive: bool
    socket: Endpoint.Socket
    listen_descriptor: int
    vmm_path: str
    shared_with: str
    pair_descriptor: int
    device_id: str
    stop_script: StopScript
    reader_logs: bool
    def __init__(self, id: _Optional[str] = ..., purpose: _Optional[_Union[Endpoint.Purpose, str]] = ..., protocol: _Optional[str] = ..., protocol_version: _Optional[str] = ..., exclusive: _Optional[bool] = ..., socket: _Optional[_Union[Endpoint.Socket, str]] = ..., listen_descriptor: _Optional[int] = ..., vmm_path: _Optional[str] = ..., shared_with: _Optional[str] = ..., pair_descriptor: _Optional[int] = ..., device_id: _Optional[str] = ..., stop_script: _Optional[_Union[StopScript, _Mapping]] = ..., reader_logs: _Optional[bool] = ...) -> None: ...

class StopScript(_message.Message):
    __slots__ = ("request", "finish")
    class Step(_message.Message):
        __slots__ = ("send", "expect")
        SEND_FIELD_NUMBER: _ClassVar[int]
        EXPECT_FIELD_NUMBER: _ClassVar[int]
        send: bytes
        expect: bytes
        def __init__(self, send: _Optional[bytes] = ..., expect: _Optional[bytes] = ...) -> None: ...
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    request: _containers.RepeatedCompositeFieldContainer[StopScript.Step]
    finish: _containers.RepeatedCompositeFieldContainer[StopScript.Step]
    def __init__(self, request: _Optional[_Iterable[_Union[StopScript.Step, _Mapping]]] = ..., finish: _Optional[_Iterable[_Union[StopScript.Step, _Mapping]]] = ...) -> None: ...

class DescriptorToken(_message.Message):
    __slots__ = ("handle", "token")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    handle: str
    token: bytes
    def __init__(self, handle: _Optional[str] = ..., token: _Optional[bytes] = ...) -> None: ...

class MachineState(_message.Message):
    __slots__ = ("machine_id", "phase", "end_reason", "pause_reason", "message", "generation", "handle", "accelerator", "vmm_version", "devices", "processes", "threads", "endpoints", "guest_agent", "memory_bytes", "graceful_stop_possible")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    VMM_VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    GUEST_AGENT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_STOP_POSSIBLE_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    phase: Phase
    end_reason: EndReason
    pause_reason: PauseReason
    message: str
    generation: int
    handle: bytes
    accelerator: Accelerator
    vmm_version: str
    devices: _containers.RepeatedCompositeFieldContainer[DeviceState]
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    threads: _containers.RepeatedCompositeFieldContainer[Thread]
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    guest_agent: GuestAgent
    memory_bytes: int
    graceful_stop_possible: bool
    def __init__(self, machine_id: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., pause_reason: _Optional[_Union[PauseReason, str]] = ..., message: _Optional[str] = ..., generation: _Optional[int] = ..., handle: _Optional[bytes] = ..., accelerator: _Optional[_Union[Accelerator, str]] = ..., vmm_version: _Optional[str] = ..., devices: _Optional[_Iterable[_Union[DeviceState, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ..., threads: _Optional[_Iterable[_Union[Thread, _Mapping]]] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., guest_agent: _Optional[_Union[GuestAgent, _Mapping]] = ..., memory_bytes: _Optional[int] = ..., graceful_stop_possible: _Optional[bool] = ...) -> None: ...

class DeviceState(_message.Message):
    __slots__ = ("id", "address", "state", "message")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[DeviceState.State]
        STATE_PLUGGED: _ClassVar[DeviceState.State]
        STATE_UNPLUGGING: _ClassVar[DeviceState.State]
        STATE_ERROR: _ClassVar[DeviceState.State]
    STATE_UNSPECIFIED: DeviceState.State
    STATE_PLUGGED: DeviceState.State
    STATE_UNPLUGGING: DeviceState.State
    STATE_ERROR: DeviceState.State
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    address: str
    state: DeviceState.State
    message: str
    def __init__(self, id: _Optional[str] = ..., address: _Optional[str] = ..., state: _Optional[_Union[DeviceState.State, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("pid", "role", "name")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[Process.Role]
        ROLE_VMM: _ClassVar[Process.Role]
        ROLE_HELPER: _ClassVar[Process.Role]
    ROLE_UNSPECIFIED: Process.Role
    ROLE_VMM: Process.Role
    ROLE_HELPER: Process.Role
    PID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    pid: int
    role: Process.Role
    name: str
    def __init__(self, pid: _Optional[int] = ..., role: _Optional[_Union[Process.Role, str]] = ..., name: _Optional[str] = ...) -> None: ...

class Thread(_message.Message):
    __slots__ = ("tid", "role", "index")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[Thread.Role]
        ROLE_VCPU: _ClassVar[Thread.Role]
        ROLE_IO: _ClassVar[Thread.Role]
        ROLE_EMULATOR: _ClassVar[Thread.Role]
    ROLE_UNSPECIFIED: Thread.Role
    ROLE_VCPU: Thread.Role
    ROLE_IO: Thread.Role
    ROLE_EMULATOR: Thread.Role
    TID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    tid: int
    role: Thread.Role
    index: int
    def __init__(self, tid: _Optional[int] = ..., role: _Optional[_Union[Thread.Role, str]] = ..., index: _Optional[int] = ...) -> None: ...

class GuestAgent(_message.Message):
    __slots__ = ("connected", "version")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    version: str
    def __init__(self, connected: _Optional[bool] = ..., version: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("code", "severity", "field", "capability", "have", "want", "message", "retry")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    code: str
    severity: str
    field: str
    capability: str
    have: str
    want: str
    message: str
    retry: str
    def __init__(self, code: _Optional[str] = ..., severity: _Optional[str] = ..., field: _Optional[str] = ..., capability: _Optional[str] = ..., have: _Optional[str] = ..., want: _Optional[str] = ..., message: _Optional[str] = ..., retry: _Optional[str] = ...) -> None: ...

class StatusDetails(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("findings", "operation_id")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    operation_id: str
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., operation_id: _Optional[str] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("id", "machine_id", "kind", "state", "percent", "message", "error_code", "findings")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Operation.State]
        STATE_RUNNING: _ClassVar[Operation.State]
        STATE_DONE: _ClassVar[Operation.State]
        STATE_FAILED: _ClassVar[Operation.State]
        STATE_CANCELLED: _ClassVar[Operation.State]
    STATE_UNSPECIFIED: Operation.State
    STATE_RUNNING: Operation.State
    STATE_DONE: Operation.State
    STATE_FAILED: Operation.State
    STATE_CANCELLED: Operation.State
    ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    id: str
    machine_id: str
    kind: str
    state: Operation.State
    percent: int
    message: str
    error_code: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, id: _Optional[str] = ..., machine_id: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[_Union[Operation.State, str]] = ..., percent: _Optional[int] = ..., message: _Optional[str] = ..., error_code: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...
