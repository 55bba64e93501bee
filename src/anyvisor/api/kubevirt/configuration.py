"""Settings of the whole installation."""

from typing import Annotated

from msgspec import field

from anyvisor.api.meta import LabelSelector, Model
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema


class TokenBucketRateLimiter(Model, frozen=True, kw_only=True):
    """So many requests a second, with a burst."""

    burst: Int32
    qps: float


class RateLimiter(Model, frozen=True, kw_only=True):
    """How many requests a component sends."""

    token_bucket_rate_limiter: TokenBucketRateLimiter | None = None


class RESTClientConfiguration(Model, frozen=True, kw_only=True):
    """How a component speaks to the API server."""

    rate_limiter: RateLimiter | None = None


class ReloadableComponentConfiguration(Model, frozen=True, kw_only=True):
    """Settings of a component that take effect at once."""

    rest_client: RESTClientConfiguration | None = None


class ArchSpecificConfiguration(Model, frozen=True, kw_only=True):
    """Machines of one architecture."""

    emulated_machines: tuple[str, ...] | None = None
    """Machine types that may be asked for, with `*`."""
    machine_type: str | None = None
    """Machine type when none is asked for."""
    ovmf_path: str | None = None


class ArchConfiguration(Model, frozen=True, kw_only=True):
    """Machines by architecture."""

    amd64: ArchSpecificConfiguration | None = None
    arm64: ArchSpecificConfiguration | None = None
    default_architecture: str | None = None
    ppc64le: ArchSpecificConfiguration | None = None
    s390x: ArchSpecificConfiguration | None = None


class ChangedBlockTrackingSelectors(Model, frozen=True, kw_only=True):
    """Which machines have their changes recorded for incremental backups."""

    namespace_label_selector: LabelSelector | None = None
    virtual_machine_label_selector: LabelSelector | None = None


class CommonInstancetypesDeployment(Model, frozen=True, kw_only=True):
    """Whether the common instance types are installed."""

    enabled: Annotated[bool | None, Schema(nullable=True)] = None


class TDXAttestationConfiguration(Model, frozen=True, kw_only=True):
    """How guests prove themselves under TDX."""

    enforced: Annotated[bool | None, Schema(facts={"default": False})] = None
    qgs_socket_path: Annotated[str | None, Schema(facts={"default": "/var/run/tdx-qgs/qgs.socket"})] = None


class TDXConfiguration(Model, frozen=True, kw_only=True):
    """Settings for TDX."""

    attestation: TDXAttestationConfiguration | None = None


class ConfidentialComputeConfiguration(Model, frozen=True, kw_only=True):
    """Settings for guests that are protected from their host."""

    tdx: Annotated[TDXConfiguration | None, Schema(nullable=True)] = None


class DiskVerification(Model, frozen=True, kw_only=True):
    """Memory for checking disks from images."""

    memory_limit: QuantityValue


class LogVerbosity(Model, frozen=True, kw_only=True):
    """How much components log, from 0 to 9."""

    node_verbosity: dict[str, int] | None = None
    virt_api: Int32 | None = field(default=None, name="virtAPI")
    virt_controller: Int32 | None = None
    virt_handler: Int32 | None = None
    virt_launcher: Int32 | None = None
    virt_operator: Int32 | None = None
    virt_synchronization_controller: Int32 | None = None


class DeveloperConfiguration(Model, frozen=True, kw_only=True):
    """Feature gates and settings for development."""

    cluster_profiler: bool | None = None
    cpu_allocation_ratio: Int32 | None = None
    """Virtual CPUs for each CPU that is reserved; 10 when absent."""
    disabled_feature_gates: tuple[str, ...] | None = None
    """Features that are switched off."""
    disk_verification: DiskVerification | None = None
    feature_gates: tuple[str, ...] | None = None
    """Features that are switched on."""
    log_verbosity: LogVerbosity | None = None
    memory_overcommit: Annotated[Int32 | None, Schema(facts={"minimum": 10})] = None
    """Percentage of guest memory to reserved memory; 100 when absent."""
    minimum_cluster_tsc_frequency: Int64 | None = field(default=None, name="minimumClusterTSCFrequency")
    minimum_reserve_pvc_bytes: Int64 | None = field(default=None, name="minimumReservePVCBytes")
    node_selectors: dict[str, str] | None = None
    pvc_tolerate_less_space_up_to_percent: Int32 | None = None
    use_emulation: bool | None = None
    """Whether machines may run without hardware virtualization, which is many times slower."""


class HypervisorConfiguration(Model, frozen=True, kw_only=True):
    """The hypervisor that the reference implementation uses; use hypervisor classes here."""

    name: Annotated[str | None, Schema(facts={"enum": ["kvm", "hyperv-direct"]})] = None


class InstancetypeConfiguration(Model, frozen=True, kw_only=True):
    """How instance types are kept in machines."""

    reference_policy: Annotated[
        str | None, Schema(nullable=True, facts={"enum": ["reference", "expand", "expandAll"]})
    ] = None


class KSMConfiguration(Model, frozen=True, kw_only=True):
    """Nodes on which equal pages of memory are merged."""

    node_label_selector: LabelSelector | None = None


class LiveUpdateConfiguration(Model, frozen=True, kw_only=True):
    """How far running machines may grow."""

    max_cpu_sockets: Int64 | None = None
    max_guest: QuantityValue | None = None
    max_hotplug_ratio: Int64 | None = None


class NodeMediatedDeviceTypesConfig(Model, frozen=True, kw_only=True):
    """Mediated device types of some nodes."""

    mediated_device_types: tuple[str, ...] | None = None
    mediated_devices_types: tuple[str, ...] | None = None
    node_selector: dict[str, str]


class MediatedDevicesConfiguration(Model, frozen=True, kw_only=True):
    """Mediated devices to create on nodes."""

    enabled: bool | None = None
    mediated_device_types: tuple[str, ...] | None = None
    mediated_devices_types: tuple[str, ...] | None = None
    node_mediated_device_types: tuple[NodeMediatedDeviceTypesConfig, ...] | None = None


class MigrationConfiguration(Model, frozen=True, kw_only=True):
    """Settings for all live migrations."""

    allow_auto_converge: bool | None = None
    """Whether a busy guest may be slowed down."""
    allow_post_copy: bool | None = None
    """Whether a guest may move before its memory has."""
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: QuantityValue | None = None
    """Bytes each second at most; 0 is no limit."""
    completion_timeout_per_gib: Int64 | None = field(default=None, name="completionTimeoutPerGiB")
    """Seconds for each GiB of memory before a migration is ended."""
    disable_tls: bool | None = field(default=None, name="disableTLS")
    match_selinux_level_on_migration: bool | None = field(default=None, name="matchSELinuxLevelOnMigration")
    max_downtime_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1, "maximum": 2000000})] = None
    network: str | None = None
    """The NetworkAttachmentDefinition whose network migrations use."""
    node_drain_taint_key: str | None = None
    """The taint that empties a node."""
    parallel_migrations_per_cluster: Int64 | None = None
    """How many machines may move at once."""
    parallel_outbound_migrations_per_node: Int64 | None = None
    """How many machines may leave a node at once."""
    progress_timeout: Int64 | None = None
    """Seconds without progress before a migration is ended."""
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class ResourceRequirementsWithoutClaims(Model, frozen=True, kw_only=True):
    """What a container needs and may use."""

    limits: dict[str, QuantityValue] | None = None
    requests: dict[str, QuantityValue] | None = None


class InterfaceBindingMigration(Model, frozen=True, kw_only=True):
    """What a network binding does when its machine moves."""

    method: str | None = None


class InterfaceBindingPlugin(Model, frozen=True, kw_only=True):
    """A registered network binding."""

    compute_resource_overhead: ResourceRequirementsWithoutClaims | None = None
    domain_attachment_type: str | None = None
    downward_api: str | None = field(default=None, name="downwardAPI")
    migration: InterfaceBindingMigration | None = None
    network_attachment_definition: str | None = None
    sidecar_image: str | None = None


class NetworkConfiguration(Model, frozen=True, kw_only=True):
    """Settings for networks."""

    binding: dict[str, InterfaceBindingPlugin] | None = None
    default_network_interface: str | None = None
    """How machines without networks are connected: `bridge` or `masquerade`."""
    permit_bridge_interface_on_pod_network: bool | None = None
    """Whether guests may take their pod's place on its network."""
    permit_slirp_interface: bool | None = None


class MediatedHostDevice(Model, frozen=True, kw_only=True):
    """A mediated device that machines may use."""

    external_resource_provider: bool | None = None
    mdev_name_selector: str
    resource_name: str


class PciHostDevice(Model, frozen=True, kw_only=True):
    """A PCI device that machines may use."""

    external_resource_provider: bool | None = None
    pci_vendor_selector: str
    """`vendor:product`, in hexadecimal."""
    resource_name: str


class USBSelector(Model, frozen=True, kw_only=True):
    """A USB device by vendor and product."""

    product: str
    vendor: str


class USBHostDevice(Model, frozen=True, kw_only=True):
    """USB devices that machines may use."""

    external_resource_provider: bool | None = None
    resource_name: str
    selectors: tuple[USBSelector, ...] | None = None


class PermittedHostDevices(Model, frozen=True, kw_only=True):
    """The host's devices that machines may use."""

    mediated_devices: tuple[MediatedHostDevice, ...] | None = None
    pci_host_devices: tuple[PciHostDevice, ...] | None = None
    usb: tuple[USBHostDevice, ...] | None = None


class PersistentReservationConfiguration(Model, frozen=True, kw_only=True):
    """Whether SCSI reservations are possible."""

    enabled: Annotated[bool | None, Schema(nullable=True)] = None


class CustomProfile(Model, frozen=True, kw_only=True):
    """A seccomp profile of the node, or the runtime's own."""

    localhost_profile: str | None = None
    runtime_default_profile: bool | None = None


class VirtualMachineInstanceProfile(Model, frozen=True, kw_only=True):
    """The seccomp profile of machines."""

    custom_profile: CustomProfile | None = None


class SeccompConfiguration(Model, frozen=True, kw_only=True):
    """Which system calls are allowed."""

    virtual_machine_instance_profile: VirtualMachineInstanceProfile | None = None


class SMBiosConfiguration(Model, frozen=True, kw_only=True):
    """What SMBIOS says of the guest's maker and product."""

    family: str | None = None
    manufacturer: str | None = None
    product: str | None = None
    sku: str | None = None
    version: str | None = None


class SupportContainerResources(Model, frozen=True, kw_only=True):
    """What a helper container needs."""

    resources: ResourceRequirementsWithoutClaims
    type: str


class TLSConfiguration(Model, frozen=True, kw_only=True):
    """TLS of all servers."""

    ciphers: Annotated[tuple[str, ...] | None, Schema(unique=True)] = None
    min_tls_version: Annotated[
        str | None, Schema(facts={"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]})
    ] = field(default=None, name="minTLSVersion")


class VirtTemplateDeployment(Model, frozen=True, kw_only=True):
    """Whether templates of virtual machines are installed."""

    enabled: Annotated[bool | None, Schema(nullable=True)] = None


class DisableFreePageReporting(Model, frozen=True, kw_only=True):
    """Guests don't give unused memory back."""


class DisableSerialConsoleLog(Model, frozen=True, kw_only=True):
    """The serial console's output is not kept unless a machine asks for it."""


class VirtualMachineOptions(Model, frozen=True, kw_only=True):
    """Defaults for machines."""

    disable_free_page_reporting: DisableFreePageReporting | None = None
    disable_serial_console_log: DisableSerialConsoleLog | None = None


class KubeVirtConfiguration(Model, frozen=True, kw_only=True):
    """Settings of the whole installation."""

    additional_guest_memory_overhead_ratio: str | None = None
    """Factor on the computed memory overhead, a decimal number."""
    api_configuration: ReloadableComponentConfiguration | None = None
    architecture_configuration: ArchConfiguration | None = None
    auto_cpu_limit_namespace_label_selector: LabelSelector | None = field(
        default=None, name="autoCPULimitNamespaceLabelSelector"
    )
    changed_block_tracking_label_selectors: Annotated[ChangedBlockTrackingSelectors | None, Schema(nullable=True)] = (
        None
    )
    common_instancetypes_deployment: Annotated[CommonInstancetypesDeployment | None, Schema(nullable=True)] = None
    confidential_compute: Annotated[ConfidentialComputeConfiguration | None, Schema(nullable=True)] = None
    controller_configuration: ReloadableComponentConfiguration | None = None
    cpu_model: str | None = None
    """Processor model of guests that name none."""
    cpu_request: QuantityValue | None = None
    """Processor share that machines without a request get."""
    default_runtime_class: str | None = None
    developer_configuration: DeveloperConfiguration | None = None
    emulated_machines: tuple[str, ...] | None = None
    """Machine types that may be asked for, with `*`."""
    eviction_strategy: str | None = None
    """When a node is emptied, for machines that say nothing."""
    handler_configuration: ReloadableComponentConfiguration | None = None
    hypervisors: Annotated[tuple[HypervisorConfiguration, ...] | None, Schema(facts={"maxItems": 1})] = None
    """The reference's own choice of hypervisor; use hypervisor classes here."""
    image_pull_policy: str | None = None
    instancetype: Annotated[InstancetypeConfiguration | None, Schema(nullable=True)] = None
    ksm_configuration: KSMConfiguration | None = None
    live_update_configuration: LiveUpdateConfiguration | None = None
    machine_type: str | None = None
    """Machine type of guests that name none."""
    mediated_devices_configuration: MediatedDevicesConfiguration | None = None
    mem_balloon_stats_period: Int64 | None = None
    migrations: MigrationConfiguration | None = None
    min_cpu_model: str | None = field(default=None, name="minCPUModel")
    network: NetworkConfiguration | None = None
    obsolete_cpu_models: dict[str, bool] | None = field(default=None, name="obsoleteCPUModels")
    ovmf_path: str | None = None
    permitted_host_devices: PermittedHostDevices | None = None
    persistent_reservation_configuration: Annotated[
        PersistentReservationConfiguration | None, Schema(nullable=True)
    ] = None
    role_aggregation_strategy: Annotated[str | None, Schema(facts={"enum": ["AggregateToDefault", "Manual"]})] = None
    seccomp_configuration: SeccompConfiguration | None = None
    selinux_launcher_type: str | None = None
    smbios: SMBiosConfiguration | None = None
    support_container_resources: Annotated[tuple[SupportContainerResources, ...] | None, Schema(keys=("type",))] = None
    supported_guest_agent_versions: tuple[str, ...] | None = None
    tls_configuration: TLSConfiguration | None = None
    virt_template_deployment: Annotated[VirtTemplateDeployment | None, Schema(nullable=True)] = None
    virtual_machine_instances_per_node: Int32 | None = None
    virtual_machine_options: VirtualMachineOptions | None = None
    vm_rollout_strategy: Annotated[str | None, Schema(nullable=True, facts={"enum": ["Stage", "LiveUpdate"]})] = None
    """`Stage` (changes wait for a restart) or `LiveUpdate`."""
    vm_state_storage_class: str | None = None
    """Storage class for UEFI variables and TPM contents that are kept."""
    webhook_configuration: ReloadableComponentConfiguration | None = None
