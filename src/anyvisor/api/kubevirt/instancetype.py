"""Sizes of virtual machines."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.devices import GPU, HostDevice
from anyvisor.api.kubevirt.domain import NUMA, DiskIOThreads, Hugepages, LaunchSecurity, Realtime
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema


class CPUInstancetype(Model, frozen=True, kw_only=True):
    """The processors of a size."""

    dedicated_cpu_placement: bool | None = field(default=None, name="dedicatedCPUPlacement")
    guest: Int64
    """Virtual CPUs."""
    isolate_emulator_thread: bool | None = None
    max_sockets: Int64 | None = None
    model: str | None = None
    numa: NUMA | None = None
    realtime: Realtime | None = None


class MemoryInstancetype(Model, frozen=True, kw_only=True):
    """The memory of a size."""

    guest: QuantityValue
    hugepages: Hugepages | None = None
    max_guest: QuantityValue | None = None
    overcommit_percent: Annotated[Int32 | None, Schema(facts={"minimum": 0, "maximum": 100})] = None
    """Percentage of the guest's memory that is not reserved."""


class VirtualMachineInstancetypeSpec(Model, frozen=True, kw_only=True):
    """Processors, memory and devices that a machine of this size has."""

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
    """A size of virtual machines, in one namespace."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancetypeSpec


class VirtualMachineClusterInstancetype(Model, frozen=True, kw_only=True):
    """A size of virtual machines, for all namespaces."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancetypeSpec
