from anyvisor.hri.v1 import identity_pb2 as _identity_pb2
from anyvisor.hri.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NodeFacts(_message.Message):
    __slots__ = ("health", "conditions", "accelerators", "withdrawn_capabilities", "cpu_models", "machine_profiles", "vmm_version", "limits", "devices_needed", "withdrawal_reasons")
    class Health(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HEALTH_UNSPECIFIED: _ClassVar[NodeFacts.Health]
        HEALTH_UNDETECTED: _ClassVar[NodeFacts.Health]
        HEALTH_UNHEALTHY: _ClassVar[NodeFacts.Health]
        HEALTH_HEALTHY: _ClassVar[NodeFacts.Health]
    HEALTH_UNSPECIFIED: NodeFacts.Health
    HEALTH_UNDETECTED: NodeFacts.Health
    HEALTH_UNHEALTHY: NodeFacts.Health
    HEALTH_HEALTHY: NodeFacts.Health
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class WithdrawalReasonsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    ACCELERATORS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    CPU_MODELS_FIELD_NUMBER: _ClassVar[int]
    MACHINE_PROFILES_FIELD_NUMBER: _ClassVar[int]
    VMM_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_NEEDED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWAL_REASONS_FIELD_NUMBER: _ClassVar[int]
    health: NodeFacts.Health
    conditions: _containers.RepeatedCompositeFieldContainer[_identity_pb2.Condition]
    accelerators: _containers.RepeatedCompositeFieldContainer[AcceleratorFact]
    withdrawn_capabilities: _containers.RepeatedScalarFieldContainer[str]
    cpu_models: _containers.RepeatedScalarFieldContainer[str]
    machine_profiles: _containers.RepeatedScalarFieldContainer[str]
    vmm_version: str
    limits: _containers.ScalarMap[str, int]
    devices_needed: _containers.RepeatedScalarFieldContainer[str]
    withdrawal_reasons: _containers.ScalarMap[str, str]
    def __init__(self, health: _Optional[_Union[NodeFacts.Health, str]] = ..., conditions: _Optional[_Iterable[_Union[_identity_pb2.Condition, _Mapping]]] = ..., accelerators: _Optional[_Iterable[_Union[AcceleratorFact, _Mapping]]] = ..., withdrawn_capabilities: _Optional[_Iterable[str]] = ..., cpu_models: _Optional[_Iterable[str]] = ..., machine_profiles: _Optional[_Iterable[str]] = ..., vmm_version: _Optional[str] = ..., limits: _Optional[_Mapping[str, int]] = ..., devices_needed: _Optional[_Iterable[str]] = ..., withdrawal_reasons: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AcceleratorFact(_message.Message):
    __slots__ = ("accelerator", "opens", "runs_guest", "message")
    ACCELERATOR_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    RUNS_GUEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    accelerator: _types_pb2.Accelerator
    opens: bool
    runs_guest: bool
    message: str
    def __init__(self, accelerator: _Optional[_Union[_types_pb2.Accelerator, str]] = ..., opens: _Optional[bool] = ..., runs_guest: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...
