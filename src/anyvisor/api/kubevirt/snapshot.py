"""Snapshots of virtual machines and their restoration."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import PersistentVolumeClaimSpec, TypedLocalObjectReference
from anyvisor.api.kubevirt.vm import VirtualMachineSpec, VirtualMachineStatus
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Duration, Schema, Time


class VirtualMachineSnapshotSpec(Model, frozen=True, kw_only=True):
    """What to take a snapshot of."""

    deletion_policy: str | None = None
    """`Delete` (the default) or `Retain`: what happens to the contents."""
    failure_deadline: Duration | None = None
    """How long it may take; 5 minutes when absent, 0 is no limit."""
    source: TypedLocalObjectReference


class Condition(Model, frozen=True, kw_only=True):
    """One aspect of the state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class Error(Model, frozen=True, kw_only=True):
    """What went wrong, and when."""

    message: str | None = None
    time: Time | None = None


class SnapshotVolumesLists(Model, frozen=True, kw_only=True):
    """The volumes that are in the snapshot, and those that are not."""

    excluded_volumes: Annotated[tuple[str, ...] | None, Schema(unique=True)] = None
    included_volumes: Annotated[tuple[str, ...] | None, Schema(unique=True)] = None


class SourceIndication(Model, frozen=True, kw_only=True):
    """How the snapshot was taken."""

    indication: str
    message: str


class VirtualMachineSnapshotStatus(Model, frozen=True, kw_only=True):
    """How the snapshot stands."""

    conditions: tuple[Condition, ...] | None = None
    creation_time: Annotated[Time | None, Schema(nullable=True)] = None
    error: Error | None = None
    indications: Annotated[tuple[str, ...] | None, Schema(unique=True)] = None
    phase: str | None = None
    ready_to_use: bool | None = None
    snapshot_volumes: SnapshotVolumesLists | None = None
    source_indications: tuple[SourceIndication, ...] | None = None
    source_uid: str | None = field(default=None, name="sourceUID")
    virtual_machine_snapshot_content_name: str | None = None


class VirtualMachineSnapshot(Model, frozen=True, kw_only=True):
    """The state of a virtual machine and its disks at one time."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineSnapshotSpec
    status: Annotated[VirtualMachineSnapshotStatus | None, Schema(nullable=True)] = None


class CapturedVirtualMachine(Model, frozen=True, kw_only=True):
    """The virtual machine as it was."""

    metadata: Annotated[ObjectMeta | None, Schema(nullable=True, opaque=True)] = None
    spec: VirtualMachineSpec | None = None
    status: Annotated[VirtualMachineStatus | None, Schema(nullable=True)] = None


class SourceSpec(Model, frozen=True, kw_only=True):
    """What was captured."""

    virtual_machine: CapturedVirtualMachine | None = None


class CapturedPersistentVolumeClaim(Model, frozen=True, kw_only=True):
    """A claim as it was."""

    metadata: Annotated[ObjectMeta | None, Schema(opaque=True)] = None
    spec: PersistentVolumeClaimSpec | None = None


class VolumeBackup(Model, frozen=True, kw_only=True):
    """The snapshot of one volume."""

    persistent_volume_claim: CapturedPersistentVolumeClaim
    volume_name: str
    volume_snapshot_name: str | None = None


class VirtualMachineSnapshotContentSpec(Model, frozen=True, kw_only=True):
    """What a snapshot holds."""

    source: SourceSpec
    virtual_machine_snapshot_name: str | None = None
    volume_backups: tuple[VolumeBackup, ...] | None = None


class VolumeSnapshotStatus(Model, frozen=True, kw_only=True):
    """The volume snapshot of one volume."""

    creation_time: Annotated[Time | None, Schema(nullable=True)] = None
    error: Error | None = None
    ready_to_use: bool | None = None
    volume_snapshot_name: str


class VirtualMachineSnapshotContentStatus(Model, frozen=True, kw_only=True):
    """How the contents stand."""

    creation_time: Annotated[Time | None, Schema(nullable=True)] = None
    error: Error | None = None
    ready_to_use: bool | None = None
    volume_snapshot_status: tuple[VolumeSnapshotStatus, ...] | None = None


class VirtualMachineSnapshotContent(Model, frozen=True, kw_only=True):
    """The contents of a snapshot."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineSnapshotContentSpec
    status: Annotated[VirtualMachineSnapshotContentStatus | None, Schema(nullable=True)] = None


class VolumeRestoreOverride(Model, frozen=True, kw_only=True):
    """Names and labels for one restored volume."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    restore_name: str | None = None
    volume_name: str | None = None


class VirtualMachineRestoreSpec(Model, frozen=True, kw_only=True):
    """What to restore, and to where."""

    patches: tuple[str, ...] | None = None
    target: TypedLocalObjectReference
    target_readiness_policy: Annotated[
        str | None,
        Schema(
            facts={
                "enum": ["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"],
                "default": "WaitGracePeriod",
            }
        ),
    ] = None
    """What happens while the target runs: `StopTarget`, `WaitGracePeriod`, `FailImmediate` or `WaitEventually`."""
    virtual_machine_snapshot_name: str
    volume_ownership_policy: str | None = None
    volume_restore_overrides: tuple[VolumeRestoreOverride, ...] | None = None
    volume_restore_policy: str | None = None


class VolumeRestore(Model, frozen=True, kw_only=True):
    """One restored volume."""

    data_volume_name: str | None = None
    persistent_volume_claim: str
    volume_name: str
    volume_snapshot_name: str


class VirtualMachineRestoreStatus(Model, frozen=True, kw_only=True):
    """How the restoration goes."""

    complete: bool | None = None
    conditions: tuple[Condition, ...] | None = None
    deleted_data_volumes: Annotated[tuple[str, ...] | None, Schema(unique=True)] = None
    restore_time: Time | None = None
    restores: tuple[VolumeRestore, ...] | None = None


class VirtualMachineRestore(Model, frozen=True, kw_only=True):
    """Brings a virtual machine back to a snapshot."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineRestoreSpec
    status: Annotated[VirtualMachineRestoreStatus | None, Schema(nullable=True)] = None
