"""Names on objects that clients, other components and KubeVirt's ecosystem rely on.

Source: KubeVirt's API (core/v1) and Kubernetes' well-known labels; spelled as those spell them.
"""

from typing import Final

# Finalizers
VMI_FINALIZER: Final = "kubevirt.io/foregroundDeleteVirtualMachine"
VMI_FINALIZER_OLD: Final = "foregroundDeleteVirtualMachine"
VM_FINALIZER: Final = "kubevirt.io/virtualMachineControllerFinalize"
ORPHAN_FINALIZER: Final = "orphan"

# Labels
DOMAIN_LABEL: Final = "kubevirt.io"
LAUNCHER: Final = "virt-launcher"
HOTPLUG_DISK: Final = "hotplug-disk"
CREATED_BY_LABEL: Final = "kubevirt.io/created-by"
NODE_NAME_LABEL: Final = "kubevirt.io/nodeName"
OUTDATED_LAUNCHER_LABEL: Final = "kubevirt.io/outdatedLauncherImage"
MEMORY_HOTPLUG_RATIO_LABEL: Final = "kubevirt.io/memory-hotplug-overhead-ratio"
MIGRATION_TARGET_NODE_LABEL: Final = "kubevirt.io/migrationTargetNodeName"
SCHEDULABLE_LABEL: Final = "kubevirt.io/schedulable"
VM_NAME_LABEL: Final = "vm.kubevirt.io/name"
VMI_ID_LABEL: Final = "vmi.kubevirt.io/id"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
STATE_CLAIM_LABEL: Final = "persistent-state-for"
APPLY_STORAGE_PROFILE_LABEL: Final = "cdi.kubevirt.io/applyStorageProfile"

# Annotations
LATEST_VERSION: Final = "kubevirt.io/latest-observed-api-version"
STORAGE_VERSION: Final = "kubevirt.io/storage-observed-api-version"
API_VERSION_SEEN: Final = "v1"
VM_GENERATION: Final = "kubevirt.io/vm-generation"
CREATE_MIGRATION_TARGET: Final = "kubevirt.io/create-migration-target"
RESTORE_RUN_STRATEGY: Final = "kubevirt.io/restore-run-strategy"
IMMEDIATE_DATA_VOLUMES: Final = "kubevirt.io/immediate-data-volume-creation"
EPHEMERAL_PROVISIONING: Final = "kubevirt.io/ephemeral-provisioning"
TRANSPORT_UNIX: Final = "kubevirt.io/migrationTransportUnix"
MEMORY_OVERHEAD: Final = "kubevirt.io/memory-overhead-bytes"
DOMAIN: Final = "kubevirt.io/domain"
SKIP_BACKUP_HOOKS: Final = "kubevirt.io/skip-backup-hooks"
PLAN: Final = "anyvisor.io/plan"
EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
EVICTION_IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
EVICT: Final = "descheduler.alpha.kubernetes.io/evict"
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
NETWORK_STATUS: Final = "k8s.v1.cni.cncf.io/network-status"
DEFAULT_NETWORK: Final = "v1.multus-cni.io/default-network"

# VMI phases
UNSET: Final = ""
PENDING: Final = "Pending"
SCHEDULING: Final = "Scheduling"
SCHEDULED: Final = "Scheduled"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
WAITING_FOR_SYNC: Final = "WaitingForSync"
STARTING: Final = frozenset({UNSET, PENDING, SCHEDULING, SCHEDULED})
"""On the way to a running guest."""

# Conditions
READY: Final = "Ready"
SYNCHRONIZED: Final = "Synchronized"
PROVISIONING: Final = "Provisioning"
PAUSED: Final = "Paused"
POD_SCHEDULED: Final = "PodScheduled"
DATA_VOLUMES_READY: Final = "DataVolumesReady"
EVICTION_REQUESTED: Final = "EvictionRequested"
MIGRATION_REQUIRED: Final = "MigrationRequired"
VCPU_CHANGE: Final = "HotVCPUChange"
MEMORY_CHANGE: Final = "HotMemoryChange"
VOLUMES_CHANGE: Final = "VolumesChange"
FAILURE: Final = "Failure"
RESTART_REQUIRED: Final = "RestartRequired"
MANUAL_RECOVERY_REQUIRED: Final = "ManualRecoveryRequired"
UNPAUSED: Final = "kubevirt.io/virtual-machine-unpaused"

# Reasons of conditions and events
UNSCHEDULABLE: Final = "Unschedulable"
SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
FAILED_CREATE: Final = "FailedCreate"
SUCCESSFUL_DELETE: Final = "SuccessfulDelete"
FAILED_DELETE: Final = "FailedDelete"
PVC_NOT_FOUND: Final = "FailedPvcNotFound"
PVC_NOT_READY: Final = "PVCNotReady"
DATA_VOLUME_IMPORT_FAILED: Final = "FailedDataVolumeImport"
CONTAINER_NOT_MADE: Final = frozenset({"CreateContainerError", "CreateContainerConfigError"})
ERR_IMAGE_PULL: Final = "ErrImagePull"
IMAGE_PULL_BACK_OFF: Final = "ImagePullBackOff"
NODE_UNRESPONSIVE: Final = "NodeUnresponsive"
