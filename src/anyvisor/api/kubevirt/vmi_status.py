"""What is known of a virtual machine instance."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.domain import Machine
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema, Time


class VirtualMachineInstanceBackupVolumeInfo(Model, frozen=True, kw_only=True):
    """One volume of a backup."""

    volume_name: str


class VirtualMachineInstanceBackupStatus(Model, frozen=True, kw_only=True):
    """How a backup goes."""

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
    """Whether changes to disks are recorded for incremental backups."""

    backup_status: Annotated[VirtualMachineInstanceBackupStatus | None, Schema(nullable=True)] = None
    state: str


class VirtualMachineInstanceCondition(Model, frozen=True, kw_only=True):
    """One aspect of the machine's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    """`True`, `False` or `Unknown`."""
    type: str
    """`Ready`, `Paused`, `LiveMigratable`, `AgentConnected`, ..."""


class CPUTopology(Model, frozen=True, kw_only=True):
    """Sockets, cores and threads that the guest has now."""

    cores: Int64 | None = None
    sockets: Int64 | None = None
    threads: Int64 | None = None


class VirtualMachineInstanceGuestOSInfo(Model, frozen=True, kw_only=True):
    """What the guest agent says of the operating system."""

    id: str | None = None
    kernel_release: str | None = None
    kernel_version: str | None = None
    machine: str | None = None
    name: str | None = None
    pretty_name: str | None = None
    version: str | None = None
    version_id: str | None = None


class HypervisorStatus(Model, frozen=True, kw_only=True):
    """Which class and driver the machine was given, and which plan it runs by."""

    accelerator: str | None = None
    """What virtualizes CPU and memory: `kvm`, `mshv` or `emulation`."""
    class_: str | None = None
    """The HypervisorClass that was resolved when the machine was made."""
    driver: str | None = None
    """The HypervisorDriver of that class."""
    driver_version: str | None = None
    """Version of the driver that started the machine."""
    hri_minor: Int32 | None = None
    """Minor version of the hypervisor runtime interface that the machine was started with."""
    images: dict[str, str] | None = None
    """The digest that each image of the machine stood for when it started, by the name in its spec."""
    plan_digest: str | None = None
    """`sha256:` and the hash of the plan that the node's agent executes."""
    reason: str | None = None
    """Why this class, where the machine left the choice to the planner (`auto`)."""
    runner_up: str | None = None
    """The class that would have been next then."""


class VirtualMachineInstanceNetworkInterface(Model, frozen=True, kw_only=True):
    """One interface as it is."""

    info_source: str | None = None
    """Where the facts come from: `domain`, `guest-agent` or `multus-status`."""
    interface_name: str | None = None
    """Its name inside the guest."""
    ip_address: str | None = None
    """The address that others reach it by."""
    ip_addresses: tuple[str, ...] | None = None
    link_state: str | None = None
    mac: str | None = None
    name: str | None = None
    pod_interface_name: str | None = None
    queue_count: Int32 | None = None


class InitrdInfo(Model, frozen=True, kw_only=True):
    """Checksum of the initial RAM disk."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class KernelInfo(Model, frozen=True, kw_only=True):
    """Checksum of the kernel."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class KernelBootStatus(Model, frozen=True, kw_only=True):
    """What was started directly."""

    initrd_info: InitrdInfo | None = None
    kernel_info: KernelInfo | None = None


class MemoryStatus(Model, frozen=True, kw_only=True):
    """The guest's memory at start, now, and as asked for."""

    guest_at_boot: QuantityValue | None = None
    guest_current: QuantityValue | None = None
    guest_requested: QuantityValue | None = None
    memory_overhead: QuantityValue | None = None


class PersistentVolumeClaimInfo(Model, frozen=True, kw_only=True):
    """What the claim of a volume offers."""

    access_modes: tuple[str, ...] | None = None
    capacity: dict[str, QuantityValue] | None = None
    claim_name: str | None = None
    filesystem_overhead: Annotated[str | None, Schema(facts={"pattern": "^(0(?:\\.\\d{1,3})?|1)$"})] = None
    preallocated: bool | None = None
    requests: dict[str, QuantityValue] | None = None
    volume_mode: str | None = None


class StorageMigratedVolumeInfo(Model, frozen=True, kw_only=True):
    """A volume that moves from one claim to another."""

    destination_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="destinationPVCInfo")
    source_pvc_info: PersistentVolumeClaimInfo | None = field(default=None, name="sourcePVCInfo")
    volume_name: str


class DowntimeTuningOptions(Model, frozen=True, kw_only=True):
    """How the allowed pause grows during a live migration."""

    cooldown_seconds: Annotated[Int32 | None, Schema(facts={"minimum": 1})] = None
    initial_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1})] = None
    start_after_iteration: Annotated[Int64 | None, Schema(facts={"minimum": 1})] = None
    steps: Annotated[Int32 | None, Schema(facts={"minimum": 1})] = None


class StallDetectorOptions(Model, frozen=True, kw_only=True):
    """When a live migration counts as stuck."""

    completion_timeout_factor: QuantityValue | None = None
    ewma_alpha: QuantityValue | None = None
    patience_window_decay_factor: QuantityValue | None = None
    precopy_possible_factor: QuantityValue | None = None
    search_local_minima: bool | None = None
    stall_margin: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 100})] = None
    stall_progress_timeout: Annotated[Int64 | None, Schema(facts={"minimum": 0})] = None
    switchover_timeout: Annotated[Int64 | None, Schema(facts={"minimum": 0})] = None


class ExperimentalMigrationOptions(Model, frozen=True, kw_only=True):
    """Options of live migration that may change."""

    compression: Annotated[str | None, Schema(facts={"enum": ["none", "zstd"]})] = None
    downtime_tuning: DowntimeTuningOptions | None = None
    stall_detector: StallDetectorOptions | None = None


class VMIMConfigurationOptions(Model, frozen=True, kw_only=True):
    """The settings that a live migration runs with."""

    allow_auto_converge: bool | None = None
    """Whether a busy guest may be slowed down."""
    allow_post_copy: bool | None = None
    """Whether the guest may move before its memory has."""
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: QuantityValue | None = None
    """Bytes each second at most; 0 is no limit."""
    completion_timeout_per_gib: Int64 | None = field(default=None, name="completionTimeoutPerGiB")
    """Seconds for each GiB of memory before the migration is ended."""
    disable_tls: bool | None = field(default=None, name="disableTLS")
    experimental: ExperimentalMigrationOptions | None = None
    match_selinux_level_on_migration: bool | None = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1, "maximum": 2000000})] = None
    """Longest pause of the guest, in milliseconds."""
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: Int64 | None = None
    parallel_outbound_migrations_per_node: Int64 | None = None
    progress_timeout: Int64 | None = None
    """Seconds without progress before the migration is ended."""
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class VirtualMachineInstanceMigrationSourceState(Model, frozen=True, kw_only=True):
    """The leaving side of a live migration."""

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
    """The arriving side of a live migration."""

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
    """How a live migration goes, or went."""

    abort_requested: bool | None = None
    abort_status: str | None = None
    completed: bool | None = None
    end_timestamp: Annotated[Time | None, Schema(nullable=True)] = None
    failed: bool | None = None
    failure_reason: str | None = None
    """Why it failed."""
    migration_configuration: VMIMConfigurationOptions | None = None
    migration_network_type: str | None = None
    migration_policy_name: str | None = None
    migration_uid: str | None = None
    mode: str | None = None
    """`PreCopy`, `PostCopy` or `Paused`."""
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
    """When a phase was reached."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class TopologyHints(Model, frozen=True, kw_only=True):
    """What a node must offer for this machine to move there."""

    tsc_frequency: Int64 | None = None


class ContainerDiskInfo(Model, frozen=True, kw_only=True):
    """Checksum of a disk from an image."""

    checksum: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = None


class HotplugVolumeStatus(Model, frozen=True, kw_only=True):
    """The pod that brings a volume to a running machine."""

    attach_pod_name: str | None = None
    attach_pod_uid: str | None = field(default=None, name="attachPodUID")


class DomainMemoryDumpInfo(Model, frozen=True, kw_only=True):
    """Where a memory dump went."""

    claim_name: str | None = None
    end_timestamp: Time | None = None
    start_timestamp: Time | None = None
    target_file_name: str | None = None


class VolumeStatus(Model, frozen=True, kw_only=True):
    """One volume as it is."""

    container_disk_volume: ContainerDiskInfo | None = None
    hotplug_volume: HotplugVolumeStatus | None = None
    memory_dump_volume: DomainMemoryDumpInfo | None = None
    message: str | None = None
    """Why it stands where it stands."""
    name: str
    persistent_volume_claim_info: PersistentVolumeClaimInfo | None = None
    phase: str | None = None
    """`Pending`, `Bound`, `AttachedToNode`, `MountedToPod`, `Ready`, `Detaching`, ..."""
    reason: str | None = None
    size: Int64 | None = None
    target: str
    """The disk's name as the first disks of a guest are named: `vda`, `sda`."""


class VirtualMachineInstanceStatus(Model, frozen=True, kw_only=True):
    """What is known of the machine."""

    vsock_cid: Annotated[Int64 | None, Schema(facts={"minimum": 0, "maximum": 4294967295})] = field(
        default=None, name="VSOCKCID"
    )
    """Address of the guest's socket to the host."""
    active_pods: dict[str, str] | None = None
    """Pods that may run the guest, by UID, with their nodes."""
    changed_block_tracking: Annotated[ChangedBlockTrackingStatus | None, Schema(nullable=True)] = None
    conditions: tuple[VirtualMachineInstanceCondition, ...] | None = None
    current_cpu_topology: CPUTopology | None = field(default=None, name="currentCPUTopology")
    evacuation_node_name: str | None = None
    """The node that it has to leave."""
    fs_freeze_status: str | None = None
    """`frozen` while the guest's file systems are."""
    guest_os_info: VirtualMachineInstanceGuestOSInfo | None = field(default=None, name="guestOSInfo")
    hypervisor: HypervisorStatus | None = None
    """The class and driver that run it."""
    interfaces: tuple[VirtualMachineInstanceNetworkInterface, ...] | None = None
    kernel_boot_status: KernelBootStatus | None = None
    launcher_container_image_version: str | None = None
    machine: Machine | None = None
    memory: MemoryStatus | None = None
    migrated_volumes: tuple[StorageMigratedVolumeInfo, ...] | None = None
    migration_method: str | None = None
    """`LiveMigration` or `BlockMigration`."""
    migration_state: VirtualMachineInstanceMigrationState | None = None
    migration_transport: str | None = None
    node_name: str | None = None
    """The node that it runs on."""
    phase: str | None = None
    """`Pending`, `Scheduling`, `Scheduled`, `Running`, `Succeeded`, `Failed` or `Unknown`."""
    phase_transition_timestamps: tuple[VirtualMachineInstancePhaseTransitionTimestamp, ...] | None = None
    qos_class: str | None = None
    """`Guaranteed`, `Burstable` or `BestEffort`."""
    reason: str | None = None
    """One word for why the machine is in this phase."""
    runtime_user: Int64 | None = None
    """User ID that the guest's process runs as."""
    selinux_context: str | None = None
    topology_hints: TopologyHints | None = None
    virtual_machine_revision_name: str | None = None
    volume_status: tuple[VolumeStatus, ...] | None = None
