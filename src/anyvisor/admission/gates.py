"""Feature gates of the configuration object: `spec.configuration.developerConfiguration`.

A generally available gate is always on, a beta gate is on unless it is disabled, an alpha or deprecated gate is off
unless it is enabled, a discontinued gate cannot be enabled. An explicit enable beats an explicit disable.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from anyvisor.admission.values import mapping, strings


class Stage(StrEnum):
    """Where in its life a gate is."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "generally available"
    DEPRECATED = "deprecated"
    DISCONTINUED = "discontinued"


_BY_STAGE: dict[Stage, str] = {
    Stage.ALPHA: """
        AlignCPUs CPUManager ConfigurableHypervisor ContainerPathVolumes CrossArchitectureVirtualization
        DownwardMetrics EnableVirtioFsStorageVolumes ExperimentalIgnitionSupport FirmwareAutoSelection GraceIO
        GraceIOVirtualization HostDevices HostDisk HypervStrictCheck IOMMUFD IncrementalBackup
        MigrationDowntimeTuning MigrationStallDetection NetworkDevicesWithDRA OCIExport ObjectGraph
        PCINUMAAwareTopology Plugins PortRangesSpec ReservedOverheadMemlock Root Sidecar UtilityVolumes
        VGPULiveMigration VMStatsCollector VSOCK WorkloadEncryptionTDX
    """,
    Stage.BETA: """
        DecentralizedLiveMigration DeclarativeHotplugVolumes ExternalNetResourceInjection GPUsWithDRA
        HostDevicesWithDRA ImageVolume KubevirtSeccompProfile NodeRestriction OptOutRoleAggregation PasstBinding
        PodSecondaryInterfaceNamingUpgrade RebootPolicy Snapshot Template WorkloadEncryptionSEV
    """,
    Stage.GA: """
        AutoResourceLimitsGate BochsDisplayForEFIGuests CPUNodeDiscovery ClusterProfiler
        CommonInstancetypesDeploymentGate DisableCustomSELinuxPolicy DynamicPodInterfaceNaming
        EnableVirtioFsConfigVolumes ExpandDisks GPU HotplugNICs InstancetypeReferencePolicy
        LibvirtHooksServerAndClient LiveMigration LiveUpdateNADRef MigrationPriorityQueue NUMA
        NetworkBindingPlugins NonRoot PSA PanicDevices PersistentReservation SRIOVLiveMigration SecureExecution
        VMExport VMLiveUpdateFeatures VMPersistentState VideoConfig VmiMemoryOverheadReport VolumeMigration
        VolumesUpdateStrategy
    """,
    Stage.DEPRECATED: "DisableMDEVConfiguration DockerSELinuxMCSWorkaround HotplugVolumes MultiArchitecture",
    Stage.DISCONTINUED: "ExperimentalVirtiofsSupport Macvtap Passt PasstIPStackMigration",
}
GATES: dict[str, Stage] = {name: stage for stage, names in _BY_STAGE.items() for name in names.split()}

_GA = frozenset(name for name, stage in GATES.items() if stage is Stage.GA)
_BETA = frozenset(name for name, stage in GATES.items() if stage is Stage.BETA)


def enabled_gates(developer_configuration: Any) -> frozenset[str]:
    """The gates that are on."""
    settings = mapping(developer_configuration)
    on = strings(settings.get("featureGates"))
    off = strings(settings.get("disabledFeatureGates"))
    if not on and not off:
        return _GA | _BETA
    known = {name for name in on if GATES.get(name) not in (None, Stage.DISCONTINUED)}
    return _GA | (_BETA - set(off)) | known


def warnings(listed: Sequence[str]) -> list[str]:
    """A sentence for each listed gate that no longer does anything useful."""
    sentences: list[str] = []
    for name in listed:
        stage = GATES.get(name)
        if stage is Stage.GA:
            sentences.append(f"feature gate {name} is generally available and always on; remove it from the list")
        elif stage is Stage.DEPRECATED:
            sentences.append(f"feature gate {name} is deprecated and will go away; stop relying on it")
        elif stage is Stage.DISCONTINUED:
            sentences.append(f"feature gate {name} is discontinued and has no effect; remove it from the list")
        elif stage is None:
            sentences.append(f"feature gate {name} is unknown and has no effect; check its spelling")
    return sentences
