"""Counters of a QEMU, from answers as QEMU 7.2 gives them."""

from collections.abc import Mapping
from typing import Any

from anyvisor.drivers.qemu.qmp import QmpRefused
from anyvisor.drivers.qemu.qmp.protocol import Failure
from anyvisor.drivers.qemu.stats import NOT_TOLD, Counters, disks, guest_memory
from anyvisor.hri.v1.stats_pb2 import DiskStats, GuestMemoryStats

COUNTS = {
    "rd_operations": 1,
    "rd_bytes": 512,
    "rd_total_time_ns": 10,
    "wr_operations": 2,
    "wr_bytes": 1024,
    "wr_total_time_ns": 20,
    "flush_operations": 3,
    "flush_total_time_ns": 30,
    "rd_merged": 0,
}
BLOCKS = [
    {"device": "", "qdev": "/machine/peripheral/disk-root/virtio-backend", "node-name": "d0", "stats": COUNTS},
    {"device": "", "qdev": "/machine/peripheral/disk-cd.1", "stats": COUNTS},
    {"device": "", "node-name": "x", "stats": COUNTS},
    {"device": "", "qdev": "/machine/unattached/device[3]", "stats": COUNTS},
]


def test_disks_are_found_by_their_device() -> None:
    found = disks(BLOCKS)
    assert [disk.device_id for disk in found] == ["root", "cd.1"]
    assert found[0] == DiskStats(
        device_id="root",
        read_requests=1,
        read_bytes=512,
        read_nanoseconds=10,
        write_requests=2,
        write_bytes=1024,
        write_nanoseconds=20,
        flush_requests=3,
        flush_nanoseconds=30,
    )


def test_what_the_guest_does_not_tell_is_absent() -> None:
    assert guest_memory({}) == GuestMemoryStats()
    assert guest_memory({"last-update": 0, "stats": {"stat-free-memory": 1}}) == GuestMemoryStats()
    told = {"last-update": 7, "stats": {"stat-free-memory": 5, "stat-swap-in": 0, "stat-major-faults": NOT_TOLD}}
    found = guest_memory(told)
    assert (found.unused_bytes, found.swap_in_bytes, found.HasField("major_faults")) == (5, 0, False)


async def test_the_balloon_is_looked_for_once_and_polled() -> None:
    asked: list[tuple[str, Mapping[str, Any] | None]] = []
    answers: dict[str, Any] = {
        "query-cpus-fast": [{"cpu-index": 0, "thread-id": 77}],
        "query-blockstats": BLOCKS,
        "qom-list": [{"name": "device-b", "type": "child<virtio-balloon-pci-non-transitional>"}, {"name": "type"}],
        "qom-set": {},
        "qom-get": {"last-update": 1, "stats": {"stat-total-memory": 9}},
    }

    async def execute(name: str, arguments: Mapping[str, Any] | None) -> Any:
        asked.append((name, arguments))
        if name == "query-balloon":
            raise QmpRefused(name, Failure(1, "DeviceNotActive", "no balloon driver"))
        return answers[name]

    counters = Counters(execute)
    await counters.read()
    found = await counters.read()
    assert [vcpu.thread_id for vcpu in found.vcpus] == [77]
    assert (found.memory.total_bytes, found.memory.HasField("balloon_bytes")) == (9, False)
    assert [name for name, _ in asked].count("qom-list") == 1
    polled = [arguments for name, arguments in asked if name == "qom-set"]
    assert [each and each["path"] for each in polled] == ["/machine/peripheral/device-b"]
