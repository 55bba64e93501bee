"""Counters as libvirt tells them."""

from typing import Any

import pytest

pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from anyvisor.drivers.libvirt import stats

RECORD: dict[str, Any] = {
    "vcpu.current": 2,
    "vcpu.maximum": 4,
    "vcpu.0.time": 5_000_000,
    "vcpu.1.state": 1,
    "balloon.current": 65536,
    "balloon.unused": 1024,
    "balloon.major_fault": 7,
}


def test_cpus_and_memory():
    found = stats.machine(RECORD)
    assert [(cpu.index, cpu.run_nanoseconds) for cpu in found.vcpus] == [(0, 5_000_000), (1, 0)]
    assert not found.vcpus[1].HasField("run_nanoseconds")
    assert (found.memory.balloon_bytes, found.memory.unused_bytes, found.memory.major_faults) == (1 << 26, 1 << 20, 7)
    assert not found.memory.HasField("swap_in_bytes")


@pytest.mark.parametrize("record", [{}, {"vcpu.current": -1}, {"vcpu.current": "2"}, {"balloon.current": 1 << 70}])
def test_what_is_no_number_is_absent(record: dict[str, Any]):
    found = stats.machine(record)
    assert list(found.vcpus) == []
    assert not found.HasField("memory")
