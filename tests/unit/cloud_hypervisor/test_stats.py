"""Counters as Cloud Hypervisor tells them."""

from typing import Any

import pytest

from anyvisor.drivers.cloud_hypervisor import stats

NONE = (1 << 64) - 1
COUNTERS: dict[str, Any] = {
    "net1": {"rx_bytes": 70, "tx_bytes": 50, "tx_frames": 2, "rx_frames": 3},
    "vol1": {"read_bytes": 512, "write_bytes": 0, "read_ops": 1, "write_ops": 0, "read_latency_min": NONE},
    "_balloon": {"actual": 1},
}


def test_each_device_of_ours_has_its_counters():
    found = stats.machine(COUNTERS, {"memory_actual_size": 1 << 26}, ["vol1", "net1", "gone"])
    assert [(d.device_id, d.read_requests, d.read_bytes, d.write_requests) for d in found.disks] == [
        ("vol1", 1, 512, 0)
    ]
    assert [(n.device_id, n.received_bytes, n.received_packets, n.sent_bytes, n.sent_packets) for n in found.nics] == [
        ("net1", 70, 3, 50, 2)
    ]
    assert found.memory.balloon_bytes == 1 << 26


@pytest.mark.parametrize("counters", [{}, {"vol1": None}, {"vol1": {"read_bytes": -1}}, {"vol1": {"read_bytes": "x"}}])
def test_what_is_no_number_counts_as_none(counters: dict[str, Any]):
    found = stats.machine(counters, {"memory_actual_size": "much"}, ["vol1"])
    assert all(disk.read_bytes == 0 for disk in found.disks)
    assert not found.HasField("memory")
