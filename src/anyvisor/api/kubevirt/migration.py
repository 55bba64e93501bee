"""A live migration of a virtual machine instance."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceMigrationState
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema, Time


class VirtualMachineInstanceMigrationTarget(Model, frozen=True, kw_only=True):
    """The machine arrives from another cluster."""

    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSource(Model, frozen=True, kw_only=True):
    """The machine leaves for another cluster."""

    connect_url: str = field(name="connectURL")
    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSpec(Model, frozen=True, kw_only=True):
    """Which machine moves."""

    added_node_selector: dict[str, str] | None = None
    """Labels that the new node must have, beside those that the machine asks for."""
    priority: str | None = None
    """`system-critical`, `user-triggered` or `system-maintenance`; set by controllers alone."""
    receive: VirtualMachineInstanceMigrationTarget | None = None
    send_to: VirtualMachineInstanceMigrationSource | None = None
    vmi_name: str | None = None
    """The instance that moves."""


class VirtualMachineInstanceMigrationCondition(Model, frozen=True, kw_only=True):
    """One aspect of the migration's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(Model, frozen=True, kw_only=True):
    """When a phase was reached."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class VirtualMachineInstanceMigrationStatus(Model, frozen=True, kw_only=True):
    """How the migration goes."""

    conditions: tuple[VirtualMachineInstanceMigrationCondition, ...] | None = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    phase: str | None = None
    """`Pending`, `Scheduling`, `Scheduled`, `PreparingTarget`, `TargetReady`, `Running`, `Succeeded` or `Failed`."""
    phase_transition_timestamps: tuple[VirtualMachineInstanceMigrationPhaseTransitionTimestamp, ...] | None = None
    synchronization_addresses: tuple[str, ...] | None = None


class VirtualMachineInstanceMigration(Model, frozen=True, kw_only=True):
    """One move of a running instance to another node; deleting it cancels the move."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstanceMigrationSpec
    status: Annotated[VirtualMachineInstanceMigrationStatus | None, Schema(nullable=True)] = None
