"""Undocumented."""

from msgspec import field

from anyvisor.api.core import TypedObjectReference
from anyvisor.api.kubevirt.vmi_status import VirtualMachineInstanceGuestOSInfo
from anyvisor.api.meta import LabelSelector, ListMeta, Model
from anyvisor.api.wire import Duration, Int32, Int64, Time


class StartOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None
    paused: bool | None = None


class StopOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    grace_period: Int64 | None = None
    kind: str | None = None


class RestartOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    grace_period_seconds: Int64 | None = None
    kind: str | None = None


class MigrateOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    added_node_selector: dict[str, str] | None = None
    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class PauseOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class UnpauseOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    kind: str | None = None


class FreezeUnfreezeTimeout(Model, frozen=True, kw_only=True):
    """Undocumented."""

    unfreeze_timeout: Duration


class EvacuateCancelOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    dry_run: tuple[str, ...] | None = None
    evacuation_node_name: str
    kind: str | None = None


class SEVSessionOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    dh_cert: str | None = None
    session: str | None = None


class SEVSecretOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    header: str | None = None
    secret: str | None = None


class SEVPlatformInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    cert_chain: str | None = None
    kind: str | None = None
    pdh: str | None = None


class SEVMeasurementInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_major: Int32 | None = None
    api_minor: Int32 | None = None
    api_version: str | None = None
    build_id: Int32 | None = field(default=None, name="buildID")
    kind: str | None = None
    loader_sha: str | None = field(default=None, name="loaderSHA")
    measurement: str | None = None
    policy: Int32 | None = None


class ObjectGraphOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    include_optional_nodes: bool | None = None
    label_selector: LabelSelector | None = None


class ObjectGraphNode(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    children: tuple["ObjectGraphNode", ...] | None = None
    kind: str | None = None
    labels: dict[str, str] | None = None
    object_reference: TypedObjectReference
    optional: bool | None = None


class VirtualMachineInstanceFileSystemDisk(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bus_type: str
    serial: str | None = None


class VirtualMachineInstanceFileSystem(Model, frozen=True, kw_only=True):
    """Undocumented."""

    disk: tuple[VirtualMachineInstanceFileSystemDisk, ...] | None = None
    disk_name: str
    file_system_type: str
    mount_point: str
    total_bytes: Int32
    used_bytes: Int32


class VirtualMachineInstanceFileSystemInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    disks: tuple[VirtualMachineInstanceFileSystem, ...]


class GuestAgentCommandInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    name: str


class VirtualMachineInstanceGuestOSUser(Model, frozen=True, kw_only=True):
    """Undocumented."""

    domain: str | None = None
    login_time: float | None = None
    user_name: str


class VirtualMachineInstanceGuestAgentInfo(Model, frozen=True, kw_only=True):
    """Undocumented."""

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
    """Undocumented."""

    api_version: str | None = None
    items: tuple[VirtualMachineInstanceGuestOSUser, ...]
    kind: str | None = None
    metadata: ListMeta | None = None


class VirtualMachineInstanceFileSystemList(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    items: tuple[VirtualMachineInstanceFileSystem, ...]
    kind: str | None = None
    metadata: ListMeta | None = None


class BackupOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

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
