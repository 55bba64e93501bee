"""A virtual machine instance: one run of a virtual machine."""

from typing import Annotated

from anyvisor.api.kubevirt.vmi_spec import VirtualMachineInstanceSpec
from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceStatus
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema


class VirtualMachineInstance(Model, frozen=True, kw_only=True):
    """One run of a virtual machine; it ends when the guest does."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstanceSpec
    status: Annotated[VirtualMachineInstanceStatus | None, Schema(nullable=True)] = None


class VirtualMachineInstanceTemplateSpec(Model, frozen=True, kw_only=True):
    """What instances are made from."""

    metadata: Annotated[ObjectMeta | None, Schema(nullable=True, opaque=True)] = None
    """Labels and annotations of the instances."""
    spec: VirtualMachineInstanceSpec | None = None
