"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.domain import Machine
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema, Time


class VirtualMachineInstanceBackupVolumeInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    volume_name: str


class VirtualMachineInstanceBackupStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    backup_msg: str | None = None
    backup_name: str | None = None
    checkpoint_name: str | None = None
    completed: bool | None = None
    end_timestamp: Time | None = None
    failed: bool | None = None
    quiesce_status: str | None = None
    start_timestamp: Time | None = None
    volumes: tuple[VirtualMachineInstanceBackupVolumeInfo, ...] | None = None


class ChangedBlockTrackingStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    backup_status: Annotated[VirtualMachineInstanceBackupStatus | None, Schema(nullable=True)] = None
    state: str


class VirtualMachineInstanceCondition(Model, frozen=True, kw_only=True):
    """Undocumented."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class CPUTopology(Model, frozen=True, kw_only=True):
    """Undocumented."""

    cores: Int64 | None = None
    sockets: Int64 | None = None
    threads: Int64 | None = None


class VirtualMachineInstanceGuestOSInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    id: str | None = None
    kernel_release: str | None = None
    kernel_version: str | None = None
    machine: str | None = None
    name: str | None = None
    pretty_name: str | None = None
    version: str | None = None
    version_id: str | None = None


class HypervisorStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    accelerator: str | None = None
    class_: str | None = None
    driver: str | None = None
    driver_version: str | None = None
    hri_minor: Int32 | None = None
    plan_digest: str | None = None


class VirtualMachineInstanceNetworkInterface(Model, frozen=True, kw_only=True):
    """Undocumented."""

    info_source: str | None = None
    interface_name: str | None = None
    ip_address: str | None = None
    ip_addresses: tuple[str, ...] | None = None
    link_state: str | None = None
    mac: str | None = None
    name: str | None = None
    pod_interface_name: str | None = None
    queue_count: Int32 | None = None


class InitrdInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class KernelInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class KernelBootStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    initrd_info: InitrdInfo | None = None
    kernel_info: KernelInfo | None = None


class MemoryStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest_at_boot: QuantityValue | None = None
    guest_current: QuantityValue | None = None
    guest_requested: QuantityValue | None = None
    memory_overhead: QuantityValue | None = None


class PersistentVolumeClaimInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    access_modes: tuple[str, ...] | None = None
    capacity: dict[str, QuantityValue] | None = None
    claim_name: str | None = None
    filesystem_overhead: Annotated[str | None, Schema(facts={"pattern": "^(0(?:\\.\\d{1,3})?|1)$"})] = None
    preallocated: bool | None = None
    requests: dict[str, QuantityValue] | None = None
    volume_mode: str | None = None


class StorageMigratedVolumeInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    destination_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="destinationPVCInfo")
    source_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="sourcePVCInfo")
    volume_name: str


class DowntimeTuningOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    cooldown_seconds: Annotated[Int32 | None, Schema(facts={"minimum": 1})] = None
    initial_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1})] = None
    start_after_iteration: Annotated[Int64 | None, Schema(facts={"minimum": 1})] = None
    steps: Annotated[Int32 | None, Schema(facts={"minimum": 1})] = None


class StallDetectorOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    completion_timeout_factor: QuantityValue | None = None
    ewma_alpha: QuantityValue | None = None
    patience_window_decay_factor: QuantityValue | None = None
    precopy_possible_factor: QuantityValue | None = None
    search_local_minima: bool | None = None
    stall_margin: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 100})] = None
    stall_progress_timeout: Annotated[Int64 | None, Schema(facts={"minimum": 0})] = None
    switchover_timeout: Annotated[Int64 | None, Schema(facts={"minimum": 0})] = None


class ExperimentalMigrationOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    compression: Annotated[str | None, Schema(facts={"enum": ["none", "zstd"]})] = None
    downtime_tuning: DowntimeTuningOptions | None = None
    stall_detector: StallDetectorOptions | None = None


class VMIMConfigurationOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: QuantityValue | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    disable_tls: bool | None = field(default=None, name="disableTLS")
    experimental: ExperimentalMigrationOptions | None = None
    match_selinux_level_on_migration: bool | None = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1, "maximum": 2000000})] = None
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: Int64 | None = None
    parallel_outbound_migrations_per_node: Int64 | None = None
    progress_timeout: Int64 | None = None
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class VirtualMachineInstanceMigrationSourceState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    domain_name: str | None = None
    domain_namespace: str | None = None
    migration_uid: str | None = field(default=None, name="migrationUID")
    node: str | None = None
    node_selectors: dict[str, str] | None = None
    persistent_state_pvc_name: str | None = field(default=None, name="persistentStatePVCName")
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")


class VirtualMachineInstanceMigrationTargetState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    attachment_pod_uid: str | None = field(default=None, name="attachmentPodUID")
    cpu_set: tuple[int, ...] | None = None
    direct_migration_node_ports: dict[str, int] | None = None
    domain_detected: bool | None = None
    domain_name: str | None = None
    domain_namespace: str | None = None
    domain_ready_timestamp: Time | None = None
    migration_uid: str | None = field(default=None, name="migrationUID")
    node: str | None = None
    node_address: str | None = None
    node_topology: str | None = None
    persistent_state_pvc_name: str | None = field(default=None, name="persistentStatePVCName")
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(default=None, name="virtualMachineInstanceUID")


class VirtualMachineInstanceMigrationState(Model, frozen=True, kw_only=True):
    """Undocumented."""

    abort_requested: bool | None = None
    abort_status: str | None = None
    completed: bool | None = None
    end_timestamp: Annotated[Time | None, Schema(nullable=True)] = None
    failed: bool | None = None
    failure_reason: str | None = None
    migration_configuration: VMIMConfigurationOptions | None = None
    migration_network_type: str | None = None
    migration_policy_name: str | None = None
    migration_uid: str | None = None
    mode: str | None = None
    source_node: str | None = None
    source_persistent_state_pvc_name: str | None = field(default=None, name="sourcePersistentStatePVCName")
    source_pod: str | None = None
    source_state: VirtualMachineInstanceMigrationSourceState | None = None
    start_timestamp: Annotated[Time | None, Schema(nullable=True)] = None
    target_attachment_pod_uid: str | None = field(default=None, name="targetAttachmentPodUID")
    target_cpu_set: tuple[int, ...] | None = field(default=None, name="targetCPUSet")
    target_direct_migration_node_ports: dict[str, int] | None = None
    target_memory_overhead: QuantityValue | None = None
    target_node: str | None = None
    target_node_address: str | None = None
    target_node_domain_detected: bool | None = None
    target_node_domain_ready_timestamp: Time | None = None
    target_node_topology: str | None = None
    target_persistent_state_pvc_name: str | None = field(default=None, name="targetPersistentStatePVCName")
    target_pod: str | None = None
    target_state: VirtualMachineInstanceMigrationTargetState | None = None


class VirtualMachineInstancePhaseTransitionTimestamp(Model, frozen=True, kw_only=True):
    """Undocumented."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class TopologyHints(Model, frozen=True, kw_only=True):
    """Undocumented."""

    tsc_frequency: Int64 | None = None


class ContainerDiskInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class HotplugVolumeStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    attach_pod_name: str | None = None
    attach_pod_uid: str | None = field(default=None, name="attachPodUID")


class DomainMemoryDumpInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str | None = None
    end_timestamp: Time | None = None
    start_timestamp: Time | None = None
    target_file_name: str | None = None


class VolumeStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    container_disk_volume: ContainerDiskInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: DomainMemoryDumpInfo | None = None
    message: str | None = None
    name: str
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None
    phase: str | None = None
    reason: str | None = None
    size: Int64 | None = None
    target: str


class VirtualMachineInstanceStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""

    vsock_cid: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = field(
        default=None, name="VSOCKCID"
    )
    active_pods: dict[str, str] | None = None
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, Schema(nullable=True)] = None
    conditions: tuple[VirtualMachineInstanceCondition, ...] | None = None
    current_cpu_topology: CPUTopology | None = field(default=None, name="currentCPUTopology")
    evacuation_node_name: str | None = None
    fs_freeze_status: str | None = None
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(default=None, name="guestOSInfo")
    hypervisor: HypervisorStatus | None = None
    interfaces: tuple[VirtualMachineInstanceNetworkInterface, ...] | None = None
    kernel_boot_status: KernelBootStatus | None = None
    launcher_container_image_version: str | None = None
    machine: Machine | None = None
    memory: MemoryStatus | None = None
    migrated_volumes: tuple[StorageMigratedVolumeInfo, ...] | None = None
    migration_method: str | None = None
    migration_state: VirtualMachineInstanceMigrationState | None = None
    migration_transport: str | None = None
    node_name: str | None = None
    phase: str | None = None
    phase_transition_timestamps: tuple[VirtualMachineInstancePhaseTransitionTimestamp, ...] | None = None
    qos_class: str | None = None
    reason: str | None = None
    runtime_user: Int64 | None = None
    selinux_context: str | None = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: str | None = None
    volume_status: tuple[VolumeStatus, ...] | None = None
