from anyvisor.hri.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetInfoRequest(_message.Message):
    __slots__ = ("core_minor",)
    CORE_MINOR_FIELD_NUMBER: _ClassVar[int]
    core_minor: int
    def __init__(self, core_minor: _Optional[int] = ...) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("driver", "version", "vmm_name", "vmm_version", "min_minor", "max_minor", "manifest_digest", "boot_id", "profiles")
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VMM_NAME_FIELD_NUMBER: _ClassVar[int]
    VMM_VERSION_FIELD_NUMBER: _ClassVar[int]
    MIN_MINOR_FIELD_NUMBER: _ClassVar[int]
    MAX_MINOR_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    driver: str
    version: str
    vmm_name: str
    vmm_version: str
    min_minor: int
    max_minor: int
    manifest_digest: str
    boot_id: str
    profiles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, driver: _Optional[str] = ..., version: _Optional[str] = ..., vmm_name: _Optional[str] = ..., vmm_version: _Optional[str] = ..., min_minor: _Optional[int] = ..., max_minor: _Optional[int] = ..., manifest_digest: _Optional[str] = ..., boot_id: _Optional[str] = ..., profiles: _Optional[_Iterable[str]] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeResponse(_message.Message):
    __slots__ = ("ready", "conditions")
    READY_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    def __init__(self, ready: _Optional[bool] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("type", "status", "reason", "message")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    type: str
    status: bool
    reason: str
    message: str
    def __init__(self, type: _Optional[str] = ..., status: _Optional[bool] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ListEndpointsRequest(_message.Message):
    __slots__ = ("machine_id",)
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    def __init__(self, machine_id: _Optional[str] = ...) -> None: ...

class ListEndpointsResponse(_message.Message):
    __slots__ = ("endpoints",)
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    endpoints: _containers.RepeatedCompositeFieldContainer[_types_pb2.Endpoint]
    def __init__(self, endpoints: _Optional[_Iterable[_Union[_types_pb2.Endpoint, _Mapping]]] = ...) -> None: ...
