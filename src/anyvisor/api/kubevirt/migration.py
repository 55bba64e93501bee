"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceMigrationState
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema, Time


class VirtualMachineInstanceMigrationTarget(Model, frozen=True, kw_only=True):
    """Undocumented."""

    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    connect_url: str = field(name="connectURL")
    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    added_node_selector: dict[str, str] | None = None
    priority: str | None = None
    receive: VirtualMachineInstanceMigrationTarget | None = None
    send_to: VirtualMachineInstanceMigrationSource | None = None
    vmi_name: str | None = None


class VirtualMachineInstanceMigrationCondition(Model, frozen=True, kw_only=True):
    """Undocumented."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(Model, frozen=True, kw_only=True):
    """Undocumented."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class VirtualMachineInstanceMigrationStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    conditions: tuple[VirtualMachineInstanceMigrationCondition, ...] | None = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    phase: str | None = None
    phase_transition_timestamps: tuple[VirtualMachineInstanceMigrationPhaseTransitionTimestamp, ...] | None = None
    synchronization_addresses: tuple[str, ...] | None = None


class VirtualMachineInstanceMigration(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstanceMigrationSpec
    status: Annotated[VirtualMachineInstanceMigrationStatus | None, Schema(nullable=True)] = None
