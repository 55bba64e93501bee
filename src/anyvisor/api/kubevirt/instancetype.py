"""Undocumented."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.devices import GPU, HostDevice
from anyvisor.api.kubevirt.domain import NUMA, DiskIOThreads, Hugepages, LaunchSecurity, Realtime
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema


class CPUInstancetype(Model, frozen=True, kw_only=True):
    """Undocumented."""

    dedicated_cpu_placement: bool | None = field(default=None, name="dedicatedCPUPlacement")
    guest: Int64
    isolate_emulator_thread: bool | None = None
    max_sockets: Int64 | None = None
    model: str | None = None
    numa: NUMA | None = None
    realtime: Realtime | None = None


class MemoryInstancetype(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest: QuantityValue
    hugepages: Hugepages | None = None
    max_guest: QuantityValue | None = None
    overcommit_percent: Annotated[Int32 | None, Schema(facts={"minimum": 0, "maximum": 100})] = None


class VirtualMachineInstancetypeSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    annotations: dict[str, str] | None = None
    cpu: CPUInstancetype
    gpus: tuple[GPU, ...] | None = None
    host_devices: tuple[HostDevice, ...] | None = None
    io_threads: DiskIOThreads | None = None
    io_threads_policy: str | None = None
    launch_security: LaunchSecurity | None = None
    memory: MemoryInstancetype
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None


class VirtualMachineInstancetype(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancetypeSpec


class VirtualMachineClusterInstancetype(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancetypeSpec
