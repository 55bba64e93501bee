"""A domain's counters from `virConnectGetAllDomainStats`, of its CPUs and memory. Pure.

The record is flat: `vcpu.0.time`, `balloon.unused`. Disks are not told of: libvirt names them by targets of its own.
"""

from collections.abc import Mapping
from typing import Any, Final

from anyvisor.hri.v1.stats_pb2 import GuestMemoryStats, MachineStats, VcpuStats

MAX_VCPUS: Final = 1024
_MAX: Final = (1 << 64) - 1
_KIB: Final = 1024
_MEMORY: Final = {
    "balloon_bytes": "current",
    "total_bytes": "available",
    "unused_bytes": "unused",
    "available_bytes": "usable",
    "disk_cache_bytes": "disk_caches",
    "swap_in_bytes": "swap_in",
    "swap_out_bytes": "swap_out",
}
_FAULTS: Final = {"major_faults": "major_fault", "minor_faults": "minor_fault"}


def machine(record: Mapping[str, Any]) -> MachineStats:
    """What libvirt says of one domain."""
    found = MachineStats()
    for index in range(min(_number(record, "vcpu.current") or 0, MAX_VCPUS)):
        found.vcpus.append(VcpuStats(index=index, run_nanoseconds=_number(record, f"vcpu.{index}.time")))
    told = {ours: _number(record, f"balloon.{theirs}") for ours, theirs in (_MEMORY | _FAULTS).items()}
    memory = {name: value * (_KIB if name in _MEMORY else 1) for name, value in told.items() if value is not None}
    if memory:
        found.memory.CopyFrom(GuestMemoryStats(**memory))
    return found


def _number(record: Mapping[str, Any], name: str) -> int | None:
    value = record.get(name)
    return value if isinstance(value, int) and 0 <= value <= _MAX // _KIB else None
