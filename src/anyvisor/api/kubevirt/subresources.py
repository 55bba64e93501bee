"""What subresources of machines take and answer."""

from msgspec import field

from anyvisor.api.core import TypedObjectReference
from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceGuestOSInfo
from anyvisor.api.meta import LabelSelector, ListMeta, Model
from anyvisor.api.wire import Duration, Int32, Int64, Time


class StartOptions(Model, frozen=True, kw_only=True):
    """How to start a virtual machine."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    """`All`: check only."""
    kind: str | None = None
    paused: bool | None = None
    """Whether the guest is made and waits."""


class StopOptions(Model, frozen=True, kw_only=True):
    """How to stop a virtual machine."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    grace_period: Int64 | None = None
    """Seconds that the guest has to shut down, in place of its own."""
    kind: str | None = None


class RestartOptions(Model, frozen=True, kw_only=True):
    """How to restart a virtual machine."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    grace_period_seconds: Int64 | None = None
    """0 does not wait for the guest; other values are refused."""
    kind: str | None = None


class MigrateOptions(Model, frozen=True, kw_only=True):
    """How to move a virtual machine."""

    added_node_selector: dict[str, str] | None = None
    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class PauseOptions(Model, frozen=True, kw_only=True):
    """How to pause a guest."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class UnpauseOptions(Model, frozen=True, kw_only=True):
    """How to let a guest go on."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class FreezeUnfreezeTimeout(Model, frozen=True, kw_only=True):
    """After how long frozen file systems are thawed; 0 is never."""

    unfreeze_timeout: Duration


class EvacuateCancelOptions(Model, frozen=True, kw_only=True):
    """Which evacuation to cancel."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    evacuation_node_name: str
    kind: str | None = None


class SEVSessionOptions(Model, frozen=True, kw_only=True):
    """The owner's session for an encrypted guest."""

    dh_cert: str | None = None
    session: str | None = None


class SEVSecretOptions(Model, frozen=True, kw_only=True):
    """A secret for an encrypted guest."""

    header: str | None = None
    secret: str | None = None


class SEVPlatformInfo(Model, frozen=True, kw_only=True):
    """Certificates of a host that encrypts guests."""

    api_version: str | None = None
    cert_chain: str | None = None
    kind: str | None = None
    pdh: str | None = None


class SEVMeasurementInfo(Model, frozen=True, kw_only=True):
    """The measurement of an encrypted guest."""

    api_major: Int32 | None = None
    api_minor: Int32 | None = None
    api_version: str | None = None
    build_id: Int32 | None = field(default=None, name="buildID")
    kind: str | None = None
    loader_sha: str | None = field(default=None, name="loaderSHA")
    measurement: str | None = None
    policy: Int32 | None = None


class ObjectGraphOptions(Model, frozen=True, kw_only=True):
    """Which objects of a graph to show."""

    include_optional_nodes: bool | None = None
    label_selector: LabelSelector | None = None


class ObjectGraphNode(Model, frozen=True, kw_only=True):
    """An object, and those that it needs."""

    api_version: str | None = None
    children: tuple["ObjectGraphNode", ...] | None = None
    kind: str | None = None
    labels: dict[str, str] | None = None
    object_reference: TypedObjectReference
    optional: bool | None = None


class VirtualMachineInstanceFileSystemDisk(Model, frozen=True, kw_only=True):
    """A disk that a file system is on."""

    bus_type: str
    serial: str | None = None


class VirtualMachineInstanceFileSystem(Model, frozen=True, kw_only=True):
    """A file system of the guest."""

    disk: tuple[VirtualMachineInstanceFileSystemDisk, ...] | None = None
    disk_name: str
    file_system_type: str
    mount_point: str
    total_bytes: Int32
    used_bytes: Int32


class VirtualMachineInstanceFileSystemInfo(Model, frozen=True, kw_only=True):
    """The file systems of the guest."""

    disks: tuple[VirtualMachineInstanceFileSystem, ...]


class GuestAgentCommandInfo(Model, frozen=True, kw_only=True):
    """A command of the guest agent."""

    enabled: bool | None = None
    name: str


class VirtualMachineInstanceGuestOSUser(Model, frozen=True, kw_only=True):
    """A user who is logged in to the guest."""

    domain: str | None = None
    login_time: float | None = None
    user_name: str


class VirtualMachineInstanceGuestAgentInfo(Model, frozen=True, kw_only=True):
    """What the guest agent says."""

    api_version: str | None = None
    fs_freeze_status: str | None = None
    fs_info: VirtualMachineInstanceFileSystemInfo | None = None
    guest_agent_version: str | None = None
    hostname: str | None = None
    kind: str | None = None
    os: VirtualMachineInstanceGuestOSInfo | None = None
    supported_commands: tuple[GuestAgentCommandInfo, ...] | None = None
    timezone: str | None = None
    user_list: tuple[VirtualMachineInstanceGuestOSUser, ...] | None = None


class VirtualMachineInstanceGuestOSUserList(Model, frozen=True, kw_only=True):
    """The users who are logged in to the guest."""

    api_version: str | None = None
    items: tuple[VirtualMachineInstanceGuestOSUser, ...]
    kind: str | None = None
    metadata: ListMeta | None = None


class VirtualMachineInstanceFileSystemList(Model, frozen=True, kw_only=True):
    """The file systems of the guest."""

    api_version: str | None = None
    items: tuple[VirtualMachineInstanceFileSystem, ...]
    kind: str | None = None
    metadata: ListMeta | None = None


class BackupOptions(Model, frozen=True, kw_only=True):
    """What a node's agent is told of a backup."""

    backup_cert: str | None = None
    backup_key: str | None = None
    backup_name: str | None = None
    backup_start_time: Time | None = None
    ca_cert: str | None = None
    cmd: str | None = None
    export_server_addr: str | None = None
    export_server_name: str | None = None
    incremental: str | None = None
    mode: str | None = None
    skip_quiesce: bool | None = None
    target_path: str | None = None
