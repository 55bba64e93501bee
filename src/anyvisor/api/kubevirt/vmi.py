"""Undocumented."""

from typing import Annotated

from anyvisor.api.kubevirt.vmi_spec import VirtualMachineInstanceSpec
from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceStatus
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema


class VirtualMachineInstance(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstanceSpec
    status: Annotated[VirtualMachineInstanceStatus | None, Schema(nullable=True)] = None


class VirtualMachineInstanceTemplateSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    metadata: Annotated[ObjectMeta | None, Schema(nullable=True, opaque=True)] = None
    spec: VirtualMachineInstanceSpec | None = None
