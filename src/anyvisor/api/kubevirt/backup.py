"""Full and incremental backups of running machines."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import TypedLocalObjectReference
from anyvisor.api.meta import Condition, Model, ObjectMeta
from anyvisor.api.wire import Duration, Schema


class VirtualMachineBackupSpec(Model, frozen=True, kw_only=True):
    """What to back up, to where."""

    force_full_backup: bool | None = None
    mode: Annotated[str | None, Schema(facts={"enum": ["Push", "Pull"]})] = None
    """`Push` (into a claim) or `Pull` (clients read)."""
    pvc_name: str | None = None
    skip_quiesce: bool | None = None
    source: Annotated[
        TypedLocalObjectReference,
        Schema(
            rules=(
                "has(self.apiGroup)",
                ("!has(self.apiGroup) || self.apiGroup == 'kubevirt.io' || self.apiGroup == 'backup.kubevirt.io'"),
                (
                    "!has(self.apiGroup) || "
                    "(self.apiGroup == 'kubevirt.io' && "
                    "self.kind == 'VirtualMachine') || "
                    "(self.apiGroup == 'backup.kubevirt.io' && "
                    "self.kind == 'VirtualMachineBackupTracker')"
                ),
                "self.name != ''",
            )
        ),
    ]
    token_secret_ref: str | None = None
    ttl_duration: Duration | None = None


class BackupVolumeInfo(Model, frozen=True, kw_only=True):
    """One volume of a backup, with the addresses to read it."""

    data_endpoint: str | None = None
    map_endpoint: str | None = None
    volume_name: str


class VirtualMachineBackupStatus(Model, frozen=True, kw_only=True):
    """How the backup stands."""

    checkpoint_name: str | None = None
    conditions: Annotated[tuple[Condition, ...] | None, Schema(keys=("type",))] = None
    endpoint_cert: str | None = None
    export_uid: str | None = field(default=None, name="exportUID")
    included_volumes: tuple[BackupVolumeInfo, ...] | None = None
    type: str | None = None


class VirtualMachineBackup(Model, frozen=True, kw_only=True):
    """One backup of a machine."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: Annotated[
        VirtualMachineBackupSpec,
        Schema(
            rules=(
                "self == oldSelf",
                'has(self.pvcName) && self.pvcName != ""',
                ("!has(self.mode) || self.mode != 'Pull' || (has(self.tokenSecretRef) && self.tokenSecretRef != \"\")"),
            )
        ),
    ]
    status: Annotated[VirtualMachineBackupStatus | None, Schema(nullable=True)] = None


class VirtualMachineBackupTrackerSpec(Model, frozen=True, kw_only=True):
    """Which machine's backups are tracked."""

    source: Annotated[
        TypedLocalObjectReference,
        Schema(
            rules=(
                "has(self.apiGroup) && self.apiGroup == 'kubevirt.io'",
                "self.kind == 'VirtualMachine'",
                "self.name != ''",
            )
        ),
    ]


class BackupCheckpoint(Model, frozen=True, kw_only=True):
    """The point from which the next incremental backup starts."""

    creation_time: str | None = None
    name: str | None = None
    volumes: tuple[BackupVolumeInfo, ...] | None = None


class VirtualMachineBackupTrackerStatus(Model, frozen=True, kw_only=True):
    """The last point that was reached."""

    checkpoint_redefinition_required: bool | None = None
    latest_checkpoint: BackupCheckpoint | None = None


class VirtualMachineBackupTracker(Model, frozen=True, kw_only=True):
    """Remembers up to where a machine has been backed up."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: Annotated[VirtualMachineBackupTrackerSpec, Schema(rules=("self == oldSelf",))]
    status: VirtualMachineBackupTrackerStatus | None = None
