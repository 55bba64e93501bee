"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.datavolume import DataVolumeTemplateSpec
from anyvisor.api.kubevirt.devices import Disk
from anyvisor.api.kubevirt.vmi import VirtualMachineInstanceTemplateSpec
from anyvisor.api.kubevirt.vmi_status import ChangedBlockTrackingStatus, HypervisorStatus, StorageMigratedVolumeInfo
from anyvisor.api.kubevirt.volumes import HotplugVolumeSource
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int32, Int64, Schema, Time


class InstancetypeMatcher(Model, frozen=True, kw_only=True):
    """Undocumented."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class PreferenceMatcher(Model, frozen=True, kw_only=True):
    """Undocumented."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class VirtualMachineSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    data_volume_templates: tuple[DataVolumeTemplateSpec, ...] | None = None
    instancetype: InstancetypeMatcher | None = None
    preference: PreferenceMatcher | None = None
    run_strategy: str | None = None
    running: bool | None = None
    template: VirtualMachineInstanceTemplateSpec
    update_volumes_strategy: str | None = None


class VirtualMachineCondition(Model, frozen=True, kw_only=True):
    """Undocumented."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class ControllerRevisionRef(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str | None = None


class InstancetypeStatusRef(Model, frozen=True, kw_only=True):
    """Undocumented."""

    controller_revision_ref: ControllerRevisionRef | None = None
    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None


class VirtualMachineMemoryDumpRequest(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str
    end_timestamp: Time | None = None
    file_name: str | None = None
    message: str | None = None
    phase: str
    remove: bool | None = None
    start_timestamp: Time | None = None


class VirtualMachineStartFailure(Model, frozen=True, kw_only=True):
    """Undocumented."""

    consecutive_fail_count: Int32 | None = None
    last_failed_vmi_uid: str | None = field(default=None, name="lastFailedVMIUID")
    retry_after_timestamp: Time | None = None


class VirtualMachineStateChangeRequest(Model, frozen=True, kw_only=True):
    """Undocumented."""

    action: str
    data: dict[str, str] | None = None
    uid: str | None = None


class AddVolumeOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    disk: Disk
    dry_run: tuple[str, ...] | None = None
    name: str
    volume_source: HotplugVolumeSource


class RemoveVolumeOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    dry_run: tuple[str, ...] | None = None
    name: str


class VirtualMachineVolumeRequest(Model, frozen=True, kw_only=True):
    """Undocumented."""

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class VolumeSnapshotStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool
    name: str
    reason: str | None = None


class VolumeMigrationState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    migrated_volumes: tuple[StorageMigratedVolumeInfo, ...] | None = None


class VolumeUpdateState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    volume_migration_state: VolumeMigrationState | None = None


class VirtualMachineStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, Schema(nullable=True)] = None
    conditions: tuple[VirtualMachineCondition, ...] | None = None
    created: bool | None = None
    desired_generation: Int64 | None = None
    hypervisor: HypervisorStatus | None = None
    instancetype_ref: Annotated[InstancetypeStatusRef | None, Schema(nullable=True)] = None
    memory_dump_request: Annotated[VirtualMachineMemoryDumpRequest | None, Schema(nullable=True)] = None
    observed_generation: Int64 | None = None
    preference_ref: Annotated[InstancetypeStatusRef | None, Schema(nullable=True)] = None
    printable_status: Annotated[str | None, Schema(facts={"default": "Stopped"})] = None
    ready: bool | None = None
    restore_in_progress: str | None = None
    run_strategy: str | None = None
    snapshot_in_progress: str | None = None
    start_failure: Annotated[VirtualMachineStartFailure | None, Schema(nullable=True)] = None
    state_change_requests: tuple[VirtualMachineStateChangeRequest, ...] | None = None
    volume_requests: tuple[VirtualMachineVolumeRequest, ...] | None = None
    volume_snapshot_statuses: tuple[VolumeSnapshotStatus, ...] | None = None
    volume_update_state: VolumeUpdateState | None = None


class VirtualMachine(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineSpec
    status: Annotated[VirtualMachineStatus | None, Schema(nullable=True)] = None
