"""The kinds that custom resource definitions are made for: names, versions, subresources and printer columns."""

from dataclasses import dataclass, field
from typing import Final

from anyvisor.api.anyvisor import v1alpha1
from anyvisor.api.kubevirt import (
    backup,
    clone,
    export,
    importing,
    instancetype,
    kubevirt,
    migration,
    plugin,
    policy,
    pool,
    preference,
    preset,
    replicaset,
    snapshot,
    vm,
    vmi,
)
from anyvisor.api.meta import Model

AGE: Final = ".metadata.creationTimestamp"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; those of priority 1 only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Version:
    """A served version; all versions of a kind share one schema."""

    name: str
    storage: bool = True
    deprecated: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource finds its numbers."""

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ".status.labelSelector"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of custom resource. `served` kinds are installed; of the others only the models exist so far."""

    model: type[Model]
    group: str
    versions: tuple[Version, ...]
    plural: str
    short: tuple[str, ...] = ()
    namespaced: bool = True
    categories: tuple[str, ...] = ("all",)
    status: bool = True
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()
    labels: dict[str, str] = field(default_factory=lambda: {"kubevirt.io": ""})
    served: bool = False

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.model.__name__

    @property
    def definition(self) -> str:
        """The name of its definition."""
        return f"{self.plural}.{self.group}"


def _ready(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


_AGE: Final = Column("Age", AGE, "date")
_V1: Final = (Version("v1"), Version("v1alpha3", storage=False, deprecated=True))
_V1BETA1: Final = (Version("v1beta1"), Version("v1alpha1", storage=False, deprecated=True))
_ONLY_V1BETA1: Final = (Version("v1beta1"),)
_V1ALPHA1: Final = (Version("v1alpha1"),)
_REPLICAS: Final = (
    Column("Desired", ".spec.replicas", "integer"),
    Column("Current", ".status.replicas", "integer"),
    Column("Ready", ".status.readyReplicas", "integer"),
    _AGE,
)

KUBEVIRT: Final = (
    Kind(
        model=vm.VirtualMachine,
        group="kubevirt.io",
        versions=_V1,
        plural="virtualmachines",
        short=("vm", "vms"),
        columns=(_AGE, Column("Status", ".status.printableStatus"), Column("Ready", _ready("Ready"))),
        served=True,
    ),
    Kind(
        model=vmi.VirtualMachineInstance,
        group="kubevirt.io",
        versions=_V1,
        plural="virtualmachineinstances",
        short=("vmi", "vmis"),
        status=False,
        columns=(
            _AGE,
            Column("Phase", ".status.phase"),
            Column("IP", ".status.interfaces[0].ipAddress"),
            Column("NodeName", ".status.nodeName"),
            Column("Ready", _ready("Ready")),
            Column("Live-Migratable", _ready("LiveMigratable"), priority=1),
            Column("Paused", _ready("Paused"), priority=1),
        ),
        served=True,
    ),
    Kind(
        model=migration.VirtualMachineInstanceMigration,
        group="kubevirt.io",
        versions=_V1,
        plural="virtualmachineinstancemigrations",
        short=("vmim", "vmims"),
        columns=(Column("Phase", ".status.phase"), Column("VMI", ".spec.vmiName")),
        served=True,
    ),
    Kind(
        model=replicaset.VirtualMachineInstanceReplicaSet,
        group="kubevirt.io",
        versions=_V1,
        plural="virtualmachineinstancereplicasets",
        short=("vmirs", "vmirss"),
        scale=Scale(),
        columns=_REPLICAS,
        served=True,
    ),
    Kind(
        model=kubevirt.KubeVirt,
        group="kubevirt.io",
        versions=_V1,
        plural="kubevirts",
        short=("kv", "kvs"),
        columns=(_AGE, Column("Phase", ".status.phase")),
        labels={"operator.kubevirt.io": ""},
        served=True,
    ),
    Kind(
        model=preset.VirtualMachineInstancePreset,
        group="kubevirt.io",
        versions=(Version("v1", storage=False, deprecated=True), Version("v1alpha3", deprecated=True)),
        plural="virtualmachineinstancepresets",
        short=("vmipreset", "vmipresets"),
        status=False,
    ),
)

SISTERS: Final = (
    Kind(
        model=snapshot.VirtualMachineSnapshot,
        group="snapshot.kubevirt.io",
        versions=_V1BETA1,
        plural="virtualmachinesnapshots",
        short=("vmsnapshot", "vmsnapshots"),
        columns=(
            Column("SourceKind", ".spec.source.kind"),
            Column("SourceName", ".spec.source.name"),
            Column("Phase", ".status.phase"),
            Column("ReadyToUse", ".status.readyToUse", "boolean"),
            Column("CreationTime", ".status.creationTime", "date"),
            Column("Error", ".status.error.message"),
        ),
    ),
    Kind(
        model=snapshot.VirtualMachineSnapshotContent,
        group="snapshot.kubevirt.io",
        versions=_V1BETA1,
        plural="virtualmachinesnapshotcontents",
        short=("vmsnapshotcontent", "vmsnapshotcontents"),
        columns=(
            Column("ReadyToUse", ".status.readyToUse", "boolean"),
            Column("CreationTime", ".status.creationTime", "date"),
            Column("Error", ".status.error.message"),
        ),
    ),
    Kind(
        model=snapshot.VirtualMachineRestore,
        group="snapshot.kubevirt.io",
        versions=_V1BETA1,
        plural="virtualmachinerestores",
        short=("vmrestore", "vmrestores"),
        columns=(
            Column("TargetKind", ".spec.target.kind"),
            Column("TargetName", ".spec.target.name"),
            Column("Complete", ".status.complete", "boolean"),
            Column("RestoreTime", ".status.restoreTime", "date"),
        ),
    ),
    Kind(
        model=export.VirtualMachineExport,
        group="export.kubevirt.io",
        versions=(Version("v1"), Version("v1beta1", storage=False, deprecated=True)),
        plural="virtualmachineexports",
        short=("vmexport", "vmexports"),
        columns=(
            Column("SourceKind", ".spec.source.kind"),
            Column("SourceName", ".spec.source.name"),
            Column("Phase", ".status.phase"),
        ),
    ),
    Kind(
        model=clone.VirtualMachineClone,
        group="clone.kubevirt.io",
        versions=_V1BETA1,
        plural="virtualmachineclones",
        short=("vmclone", "vmclones"),
        columns=(
            Column("Phase", ".status.phase"),
            Column("SourceVirtualMachine", ".spec.source.name"),
            Column("TargetVirtualMachine", ".spec.target.name"),
        ),
    ),
    Kind(
        model=pool.VirtualMachinePool,
        group="pool.kubevirt.io",
        versions=_V1BETA1,
        plural="virtualmachinepools",
        short=("vmpool", "vmpools"),
        scale=Scale(),
        columns=_REPLICAS,
    ),
    Kind(
        model=instancetype.VirtualMachineInstancetype,
        group="instancetype.kubevirt.io",
        versions=_ONLY_V1BETA1,
        plural="virtualmachineinstancetypes",
        short=("vminstancetype", "vminstancetypes", "vmf", "vmfs"),
        status=False,
        served=True,
    ),
    Kind(
        model=instancetype.VirtualMachineClusterInstancetype,
        group="instancetype.kubevirt.io",
        versions=_ONLY_V1BETA1,
        plural="virtualmachineclusterinstancetypes",
        short=("vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"),
        namespaced=False,
        categories=(),
        status=False,
        served=True,
    ),
    Kind(
        model=preference.VirtualMachinePreference,
        group="instancetype.kubevirt.io",
        versions=_ONLY_V1BETA1,
        plural="virtualmachinepreferences",
        short=("vmpref", "vmprefs", "vmp", "vmps"),
        status=False,
        served=True,
    ),
    Kind(
        model=preference.VirtualMachineClusterPreference,
        group="instancetype.kubevirt.io",
        versions=_ONLY_V1BETA1,
        plural="virtualmachineclusterpreferences",
        short=("vmcp", "vmcps"),
        namespaced=False,
        categories=(),
        status=False,
        served=True,
    ),
    Kind(
        model=policy.MigrationPolicy,
        group="migrations.kubevirt.io",
        versions=_V1ALPHA1,
        plural="migrationpolicies",
        namespaced=False,
    ),
    Kind(
        model=backup.VirtualMachineBackup,
        group="backup.kubevirt.io",
        versions=_V1ALPHA1,
        plural="virtualmachinebackups",
        short=("vmbackup", "vmbackups"),
        columns=(
            Column("SourceKind", ".spec.source.kind"),
            Column("SourceName", ".spec.source.name"),
            Column("Type", ".status.type"),
            Column("CheckpointName", ".status.checkpointName"),
        ),
    ),
    Kind(
        model=backup.VirtualMachineBackupTracker,
        group="backup.kubevirt.io",
        versions=_V1ALPHA1,
        plural="virtualmachinebackuptrackers",
        short=("vmbackuptracker", "vmbackuptrackers"),
        columns=(
            Column("SourceKind", ".spec.source.kind"),
            Column("SourceName", ".spec.source.name"),
            Column("LatestCheckpoint", ".status.latestCheckpoint.name"),
            Column("CheckpointTime", ".status.latestCheckpoint.creationTime", "date"),
        ),
    ),
    Kind(
        model=plugin.Plugin,
        group="plugin.kubevirt.io",
        versions=_V1ALPHA1,
        plural="plugins",
        namespaced=False,
        categories=(),
        status=False,
    ),
)

ANYVISOR: Final = (
    Kind(
        model=v1alpha1.HypervisorDriver,
        group="anyvisor.io",
        versions=_V1ALPHA1,
        plural="hypervisordrivers",
        short=("hvdriver",),
        namespaced=False,
        categories=(),
        status=False,
        columns=(Column("Version", ".spec.manifest.version"), _AGE),
        labels={},
        served=True,
    ),
    Kind(
        model=v1alpha1.HypervisorClass,
        group="anyvisor.io",
        versions=_V1ALPHA1,
        plural="hypervisorclasses",
        short=("hvclass",),
        namespaced=False,
        categories=(),
        status=False,
        columns=(Column("Driver", ".spec.driver"), Column("Default", ".spec.default", "boolean"), _AGE),
        labels={},
        served=True,
    ),
    Kind(
        model=v1alpha1.HypervisorNode,
        group="anyvisor.io",
        versions=_V1ALPHA1,
        plural="hypervisornodes",
        short=("hvnode",),
        namespaced=False,
        categories=(),
        columns=(
            Column("Drivers", ".status.drivers[*].driver"),
            Column("Agent", ".status.agent.endpoint", priority=1),
            _AGE,
        ),
        labels={},
        served=True,
    ),
)

KINDS: Final = (*KUBEVIRT, *SISTERS, *ANYVISOR)

_IMPORTER: Final = "cdi.kubevirt.io"
IMPORTS: Final = (
    Kind(
        model=importing.DataVolume,
        group=_IMPORTER,
        versions=_ONLY_V1BETA1,
        plural="datavolumes",
        short=("dv", "dvs"),
        columns=(
            Column("Phase", ".status.phase"),
            Column("Progress", ".status.progress"),
            Column("Restarts", ".status.restartCount", "integer"),
            _AGE,
        ),
        labels={},
    ),
    Kind(
        model=importing.VolumeImportSource,
        group=_IMPORTER,
        versions=_ONLY_V1BETA1,
        plural="volumeimportsources",
        categories=(),
        status=False,
        labels={},
    ),
    Kind(
        model=importing.VolumeCloneSource,
        group=_IMPORTER,
        versions=_ONLY_V1BETA1,
        plural="volumeclonesources",
        categories=(),
        status=False,
        labels={},
    ),
)
"""Kinds that a cluster has from its importer, and an instance from us."""
