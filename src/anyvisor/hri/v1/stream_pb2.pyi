from anyvisor.hri.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STREAM_KIND_UNSPECIFIED: _ClassVar[StreamKind]
    STREAM_KIND_CONSOLE: _ClassVar[StreamKind]
    STREAM_KIND_DISPLAY: _ClassVar[StreamKind]
    STREAM_KIND_USB_REDIRECTION: _ClassVar[StreamKind]
    STREAM_KIND_VSOCK: _ClassVar[StreamKind]
    STREAM_KIND_GUEST_PORT: _ClassVar[StreamKind]
STREAM_KIND_UNSPECIFIED: StreamKind
STREAM_KIND_CONSOLE: StreamKind
STREAM_KIND_DISPLAY: StreamKind
STREAM_KIND_USB_REDIRECTION: StreamKind
STREAM_KIND_VSOCK: StreamKind
STREAM_KIND_GUEST_PORT: StreamKind

class OpenStreamRequest(_message.Message):
    __slots__ = ("machine_id", "kind", "device_id", "port", "token", "transport")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    kind: StreamKind
    device_id: str
    port: int
    token: _types_pb2.DescriptorToken
    transport: str
    def __init__(self, machine_id: _Optional[str] = ..., kind: _Optional[_Union[StreamKind, str]] = ..., device_id: _Optional[str] = ..., port: _Optional[int] = ..., token: _Optional[_Union[_types_pb2.DescriptorToken, _Mapping]] = ..., transport: _Optional[str] = ...) -> None: ...

class OpenStreamResponse(_message.Message):
    __slots__ = ("stream_id", "endpoint_id", "use_token", "address", "protocol", "protocol_version")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    USE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    endpoint_id: str
    use_token: bool
    address: str
    protocol: str
    protocol_version: str
    def __init__(self, stream_id: _Optional[str] = ..., endpoint_id: _Optional[str] = ..., use_token: _Optional[bool] = ..., address: _Optional[str] = ..., protocol: _Optional[str] = ..., protocol_version: _Optional[str] = ...) -> None: ...

class CloseStreamRequest(_message.Message):
    __slots__ = ("stream_id", "machine_id")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    machine_id: str
    def __init__(self, stream_id: _Optional[str] = ..., machine_id: _Optional[str] = ...) -> None: ...

class CloseStreamResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
