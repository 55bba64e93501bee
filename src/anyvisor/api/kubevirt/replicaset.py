"""A number of equal virtual machine instances."""

from typing import Annotated

from anyvisor.api.kubevirt.vmi import VirtualMachineInstanceTemplateSpec
from anyvisor.api.meta import LabelSelector, Model, ObjectMeta
from anyvisor.api.wire import Int32, Schema, Time


class VirtualMachineInstanceReplicaSetSpec(Model, frozen=True, kw_only=True):
    """How many instances of what."""

    paused: bool | None = None
    """Whether nothing is made or deleted for now."""
    replicas: Int32 | None = None
    """How many; 1 when absent."""
    selector: LabelSelector
    template: VirtualMachineInstanceTemplateSpec


class VirtualMachineInstanceReplicaSetCondition(Model, frozen=True, kw_only=True):
    """One aspect of the set's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class VirtualMachineInstanceReplicaSetStatus(Model, frozen=True, kw_only=True):
    """How many there are."""

    conditions: tuple[VirtualMachineInstanceReplicaSetCondition, ...] | None = None
    label_selector: str | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None


class VirtualMachineInstanceReplicaSet(Model, frozen=True, kw_only=True):
    """Keeps a number of equal instances running."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstanceReplicaSetSpec
    status: Annotated[VirtualMachineInstanceReplicaSetStatus | None, Schema(nullable=True)] = None
