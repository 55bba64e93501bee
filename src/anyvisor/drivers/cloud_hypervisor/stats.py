"""A machine's counters from `vm.counters` and `vm.info`. Pure.

Latencies are left out: they are averages without a sum, and an idle disk reports the largest number there is.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from anyvisor.hri.v1.stats_pb2 import DiskStats, GuestMemoryStats, MachineStats, NicStats

_MAX: Final = (1 << 64) - 1
_DISK: Final = {
    "read_requests": "read_ops",
    "read_bytes": "read_bytes",
    "write_requests": "write_ops",
    "write_bytes": "write_bytes",
}
_NIC: Final = {
    "received_bytes": "rx_bytes",
    "received_packets": "rx_frames",
    "sent_bytes": "tx_bytes",
    "sent_packets": "tx_frames",
}


def machine(counters: Mapping[str, Any], info: Mapping[str, Any], devices: Collection[str]) -> MachineStats:
    """The counters of the machine's own `devices`; others (balloon, console) have none that anybody asks for."""
    found = MachineStats()
    for name in sorted(devices):
        told = counters.get(name)
        if not isinstance(told, dict):
            continue
        told = cast("dict[str, Any]", told)
        if "read_bytes" in told:
            found.disks.append(DiskStats(device_id=name, **_numbers(told, _DISK)))
        elif "rx_bytes" in told:
            found.nics.append(NicStats(device_id=name, **_numbers(told, _NIC)))
    memory = _number(info.get("memory_actual_size"))
    if memory:
        found.memory.CopyFrom(GuestMemoryStats(balloon_bytes=memory))
    return found


def _numbers(told: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, int]:
    return {ours: _number(told.get(theirs)) for ours, theirs in names.items()}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MAX else 0
