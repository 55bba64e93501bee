from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatsRequest(_message.Message):
    __slots__ = ("machine_ids",)
    MACHINE_IDS_FIELD_NUMBER: _ClassVar[int]
    machine_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, machine_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("machines",)
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    machines: _containers.RepeatedCompositeFieldContainer[MachineStats]
    def __init__(self, machines: _Optional[_Iterable[_Union[MachineStats, _Mapping]]] = ...) -> None: ...

class MachineStats(_message.Message):
    __slots__ = ("machine_id", "vcpus", "memory", "disks", "nics")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    VCPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    NICS_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    vcpus: _containers.RepeatedCompositeFieldContainer[VcpuStats]
    memory: GuestMemoryStats
    disks: _containers.RepeatedCompositeFieldContainer[DiskStats]
    nics: _containers.RepeatedCompositeFieldContainer[NicStats]
    def __init__(self, machine_id: _Optional[str] = ..., vcpus: _Optional[_Iterable[_Union[VcpuStats, _Mapping]]] = ..., memory: _Optional[_Union[GuestMemoryStats, _Mapping]] = ..., disks: _Optional[_Iterable[_Union[DiskStats, _Mapping]]] = ..., nics: _Optional[_Iterable[_Union[NicStats, _Mapping]]] = ...) -> None: ...

class VcpuStats(_message.Message):
    __slots__ = ("index", "thread_id", "run_nanoseconds")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    index: int
    thread_id: int
    run_nanoseconds: int
    def __init__(self, index: _Optional[int] = ..., thread_id: _Optional[int] = ..., run_nanoseconds: _Optional[int] = ...) -> None: ...

class GuestMemoryStats(_message.Message):
    __slots__ = ("balloon_bytes", "total_bytes", "unused_bytes", "available_bytes", "disk_cache_bytes", "swap_in_bytes", "swap_out_bytes", "major_faults", "minor_faults")
    BALLOON_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNUSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_OUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAJOR_FAULTS_FIELD_NUMBER: _ClassVar[int]
    MINOR_FAULTS_FIELD_NUMBER: _ClassVar[int]
    balloon_bytes: int
    total_bytes: int
    unused_bytes: int
    available_bytes: int
    disk_cache_bytes: int
    swap_in_bytes: int
    swap_out_bytes: int
    major_faults: int
    minor_faults: int
    def __init__(self, balloon_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., unused_bytes: _Optional[int] = ..., available_bytes: _Optional[int] = ..., disk_cache_bytes: _Optional[int] = ..., swap_in_bytes: _Optional[int] = ..., swap_out_bytes: _Optional[int] = ..., major_faults: _Optional[int] = ..., minor_faults: _Optional[int] = ...) -> None: ...

class DiskStats(_message.Message):
    __slots__ = ("device_id", "read_requests", "read_bytes", "read_nanoseconds", "write_requests", "write_bytes", "write_nanoseconds", "flush_requests", "flush_nanoseconds")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    READ_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    WRITE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WRITE_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITE_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_NANOSECONDS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    read_requests: int
    read_bytes: int
    read_nanoseconds: int
    write_requests: int
    write_bytes: int
    write_nanoseconds: int
    flush_requests: int
    flush_nanoseconds: int
    def __init__(self, device_id: _Optional[str] = ..., read_requests: _Optional[int] = ..., read_bytes: _Optional[int] = ..., read_nanoseconds: _Optional[int] = ..., write_requests: _Optional[int] = ..., write_bytes: _Optional[int] = ..., write_nanoseconds: _Optional[int] = ..., flush_requests: _Optional[int] = ..., flush_nanoseconds: _Optional[int] = ...) -> None: ...

class NicStats(_message.Message):
    __slots__ = ("device_id", "received_bytes", "received_packets", "received_errors", "received_drops", "sent_bytes", "sent_packets", "sent_errors", "sent_drops")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_PACKETS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_ERRORS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_DROPS_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_PACKETS_FIELD_NUMBER: _ClassVar[int]
    SENT_ERRORS_FIELD_NUMBER: _ClassVar[int]
    SENT_DROPS_FIELD_NUMBER: _ClassVar[int]
    device_id: str
    received_bytes: int
    received_packets: int
    received_errors: int
    received_drops: int
    sent_bytes: int
    sent_packets: int
    sent_errors: int
    sent_drops: int
    def __init__(self, device_id: _Optional[str] = ..., received_bytes: _Optional[int] = ..., received_packets: _Optional[int] = ..., received_errors: _Optional[int] = ..., received_drops: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., sent_packets: _Optional[int] = ..., sent_errors: _Optional[int] = ..., sent_drops: _Optional[int] = ...) -> None: ...
