"""A machine's counters by QMP. What a guest or an older QEMU does not tell is absent."""

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from anyvisor.drivers.qemu.qmp import QmpRefused
from anyvisor.hri.v1.stats_pb2 import DiskStats, GuestMemoryStats, MachineStats, VcpuStats

Execute = Callable[[str, Mapping[str, Any] | None], Awaitable[Any]]
"""Runs a QMP command."""

PERIPHERAL: Final = "/machine/peripheral"
POLL_SECONDS: Final = 10
"""How often the guest's balloon driver is asked."""
NOT_TOLD: Final = (1 << 64) - 1
_DISK: Final = re.compile(r"/machine/peripheral/disk-([^/]+)")
_MEMORY: Final = {
    "stat-total-memory": "total_bytes",
    "stat-free-memory": "unused_bytes",
    "stat-available-memory": "available_bytes",
    "stat-disk-caches": "disk_cache_bytes",
    "stat-swap-in": "swap_in_bytes",
    "stat-swap-out": "swap_out_bytes",
    "stat-major-faults": "major_faults",
    "stat-minor-faults": "minor_faults",
}


class Counters:
    """Asks one QEMU."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._balloon: str | None = None
        """The balloon's path in QEMU's object tree; empty = there is none, None = not looked for."""

    async def read(self) -> MachineStats:
        """All counters, now."""
        found = MachineStats(
            vcpus=vcpus(await self._execute("query-cpus-fast", None)),
            disks=disks(await self._execute("query-blockstats", None)),
        )
        balloon = await self._find_balloon()
        if balloon:
            found.memory.CopyFrom(await self._memory(balloon))
        return found

    async def _find_balloon(self) -> str:
        if self._balloon is None:
            listed: list[dict[str, Any]] = await self._execute("qom-list", {"path": PERIPHERAL})
            names = [each["name"] for each in listed if str(each.get("type", "")).startswith("child<virtio-balloon")]
            self._balloon = f"{PERIPHERAL}/{names[0]}" if names else ""
            if self._balloon:
                where = {"path": self._balloon, "property": "guest-stats-polling-interval"}
                await self._execute("qom-set", {**where, "value": POLL_SECONDS})
        return self._balloon

    async def _memory(self, balloon: str) -> GuestMemoryStats:
        told: dict[str, Any] = {}
        with contextlib.suppress(QmpRefused):  # the guest has no driver for it (yet)
            told = await self._execute("qom-get", {"path": balloon, "property": "guest-stats"})
        memory = guest_memory(told)
        with contextlib.suppress(QmpRefused):
            memory.balloon_bytes = int((await self._execute("query-balloon", None))["actual"])
        return memory


def vcpus(answer: Iterable[Mapping[str, Any]]) -> list[VcpuStats]:
    """Of `query-cpus-fast`."""
    return [VcpuStats(index=int(cpu["cpu-index"]), thread_id=int(cpu.get("thread-id", 0))) for cpu in answer]


def disks(answer: Iterable[Mapping[str, Any]]) -> list[DiskStats]:
    """Of `query-blockstats`: one entry for each disk of ours."""
    found: list[DiskStats] = []
    for entry in answer:
        name = _DISK.match(str(entry.get("qdev", "")))
        if name is None:
            continue
        stats: Mapping[str, int] = entry["stats"]
        found.append(
            DiskStats(
                device_id=name[1],
                read_requests=stats["rd_operations"],
                read_bytes=stats["rd_bytes"],
                read_nanoseconds=stats["rd_total_time_ns"],
                write_requests=stats["wr_operations"],
                write_bytes=stats["wr_bytes"],
                write_nanoseconds=stats["wr_total_time_ns"],
                flush_requests=stats["flush_operations"],
                flush_nanoseconds=stats["flush_total_time_ns"],
            )
        )
    return found


def guest_memory(answer: Mapping[str, Any]) -> GuestMemoryStats:
    """Of the balloon's `guest-stats`; nothing before the guest's driver told something for the first time."""
    memory = GuestMemoryStats()
    if not answer.get("last-update"):
        return memory
    stats: Mapping[str, int] = answer.get("stats", {})
    for name, field in _MEMORY.items():
        value = stats.get(name, NOT_TOLD)
        if value != NOT_TOLD:
            setattr(memory, field, value)
    return memory
