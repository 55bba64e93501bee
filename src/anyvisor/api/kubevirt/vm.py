"""A virtual machine: the lasting object, whether it runs or not."""

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
    """The instance type that gives the machine its size."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class PreferenceMatcher(Model, frozen=True, kw_only=True):
    """The preference that gives the machine its device choices."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class VirtualMachineSpec(Model, frozen=True, kw_only=True):
    """When a virtual machine runs, and what its instances are."""

    data_volume_templates: tuple[DataVolumeTemplateSpec, ...] | None = None
    """DataVolumes that belong to the machine."""
    instancetype: InstancetypeMatcher | None = None
    preference: PreferenceMatcher | None = None
    run_strategy: str | None = None
    """`Always`, `RerunOnFailure`, `Manual`, `Halted`, `Once` or `WaitAsReceiver`."""
    running: bool | None = None
    """Older form of the run strategy: true is `Always`, false is `Halted`."""
    template: VirtualMachineInstanceTemplateSpec
    """What the instances are made from."""
    update_volumes_strategy: str | None = None
    """`Replacement` or `Migration`: what a changed volume does to a running machine."""


class VirtualMachineCondition(Model, frozen=True, kw_only=True):
    """One aspect of the machine's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    """`True`, `False` or `Unknown`."""
    type: str
    """`Ready`, `Paused`, `Failure`, `RestartRequired`, ..."""


class ControllerRevisionRef(Model, frozen=True, kw_only=True):
    """The revision that holds what was used."""

    name: str | None = None


class InstancetypeStatusRef(Model, frozen=True, kw_only=True):
    """The instance type or preference that was used."""

    controller_revision_ref: ControllerRevisionRef | None = None
    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None


class VirtualMachineMemoryDumpRequest(Model, frozen=True, kw_only=True):
    """A dump of the guest's memory into a claim."""

    claim_name: str
    end_timestamp: Time | None = None
    file_name: str | None = None
    message: str | None = None
    phase: str
    """`Associating`, `InProgress`, `Unmounting`, `Completed`, `Dissociating` or `Failed`."""
    remove: bool | None = None
    start_timestamp: Time | None = None


class VirtualMachineStartFailure(Model, frozen=True, kw_only=True):
    """How often the machine failed to start in a row."""

    consecutive_fail_count: Int32 | None = None
    last_failed_vmi_uid: str | None = field(default=None, name="lastFailedVMIUID")
    retry_after_timestamp: Time | None = None
    """When the next try is made."""


class VirtualMachineStateChangeRequest(Model, frozen=True, kw_only=True):
    """A start or stop that someone asked for."""

    action: str
    """`Start` or `Stop`."""
    data: dict[str, str] | None = None
    uid: str | None = None
    """The instance to stop."""


class AddVolumeOptions(Model, frozen=True, kw_only=True):
    """Add a disk to a running machine."""

    disk: Disk
    dry_run: tuple[str, ...] | None = None
    name: str
    volume_source: HotplugVolumeSource


class RemoveVolumeOptions(Model, frozen=True, kw_only=True):
    """Take a disk out of a running machine."""

    dry_run: tuple[str, ...] | None = None
    """`All`: check only."""
    name: str


class VirtualMachineVolumeRequest(Model, frozen=True, kw_only=True):
    """A disk that is to be added or taken out."""

    add_volume_options: AddVolumeOptions | None = None
    remove_volume_options: RemoveVolumeOptions | None = None


class VolumeSnapshotStatus(Model, frozen=True, kw_only=True):
    """Whether a volume can be in a snapshot."""

    enabled: bool
    name: str
    reason: str | None = None


class VolumeMigrationState(Model, frozen=True, kw_only=True):
    """Volumes that move from one claim to another."""

    migrated_volumes: tuple[StorageMigratedVolumeInfo, ...] | None = None


class VolumeUpdateState(Model, frozen=True, kw_only=True):
    """How a change of volumes goes."""

    volume_migration_state: VolumeMigrationState | None = None


class VirtualMachineStatus(Model, frozen=True, kw_only=True):
    """What is known of the virtual machine."""

    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, Schema(nullable=True)] = None
    conditions: tuple[VirtualMachineCondition, ...] | None = None
    created: bool | None = None
    """Whether an instance exists."""
    desired_generation: Int64 | None = None
    hypervisor: HypervisorStatus | None = None
    """The class that runs it."""
    instancetype_ref: Annotated[InstancetypeStatusRef | None, Schema(nullable=True)] = None
    memory_dump_request: Annotated[VirtualMachineMemoryDumpRequest | None, Schema(nullable=True)] = None
    observed_generation: Int64 | None = None
    preference_ref: Annotated[InstancetypeStatusRef | None, Schema(nullable=True)] = None
    printable_status: Annotated[str | None, Schema(facts={"default": "Stopped"})] = None
    """One word for the state: `Running`, `Stopped`, `Starting`, `ErrorUnschedulable`, ..."""
    ready: bool | None = None
    """Whether the instance runs and passes its readiness probe."""
    restore_in_progress: str | None = None
    run_strategy: str | None = None
    """The run strategy that is in force."""
    snapshot_in_progress: str | None = None
    start_failure: Annotated[VirtualMachineStartFailure | None, Schema(nullable=True)] = None
    state_change_requests: tuple[VirtualMachineStateChangeRequest, ...] | None = None
    """Starts and stops that were asked for and are not done."""
    volume_requests: tuple[VirtualMachineVolumeRequest, ...] | None = None
    volume_snapshot_statuses: tuple[VolumeSnapshotStatus, ...] | None = None
    volume_update_state: VolumeUpdateState | None = None


class VirtualMachine(Model, frozen=True, kw_only=True):
    """A virtual machine: it outlasts its runs."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineSpec
    status: Annotated[VirtualMachineStatus | None, Schema(nullable=True)] = None
