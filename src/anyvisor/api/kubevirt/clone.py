"""Copies of virtual machines."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import TypedLocalObjectReference
from anyvisor.api.kubevirt.snapshot import Condition
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema, Time


class VirtualMachineCloneTemplateFilters(Model, frozen=True, kw_only=True):
    """Labels and annotations that instances of the copy keep."""

    annotation_filters: tuple[str, ...] | None = None
    label_filters: tuple[str, ...] | None = None


class VirtualMachineCloneSpec(Model, frozen=True, kw_only=True):
    """What to copy, to which name."""

    annotation_filters: tuple[str, ...] | None = None
    label_filters: tuple[str, ...] | None = None
    new_mac_addresses: dict[str, str] | None = None
    new_smbios_serial: str | None = field(default=None, name="newSMBiosSerial")
    patches: tuple[str, ...] | None = None
    source: TypedLocalObjectReference
    target: TypedLocalObjectReference | None = None
    template: VirtualMachineCloneTemplateFilters | None = None
    volume_name_policy: Annotated[str | None, Schema(facts={"enum": ["RandomizeNames", "PrefixTargetName"]})] = None


class VirtualMachineCloneStatus(Model, frozen=True, kw_only=True):
    """How the copy goes."""

    conditions: tuple[Condition, ...] | None = None
    creation_time: Annotated[Time | None, Schema(nullable=True)] = None
    phase: str | None = None
    restore_name: Annotated[str | None, Schema(nullable=True)] = None
    snapshot_name: Annotated[str | None, Schema(nullable=True)] = None
    target_name: Annotated[str | None, Schema(nullable=True)] = None


class VirtualMachineClone(Model, frozen=True, kw_only=True):
    """Makes a copy of a virtual machine or of a snapshot."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineCloneSpec
    status: Annotated[VirtualMachineCloneStatus | None, Schema(nullable=True)] = None
