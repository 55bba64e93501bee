"""How large a claim's new disk becomes."""

import os
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.volumes.source import ClaimError
from anyvisor.cluster.opener import device_group
from anyvisor.cluster.volumes import claimed_bytes, disk_bytes, holder, open_device

MIB = 1 << 20


@pytest.mark.parametrize(
    ("claimed", "free", "size"),
    [
        (64 * MIB, 100_000 * MIB, 64 * MIB),
        (64 * MIB + 17, 100_000 * MIB, 64 * MIB),
        (64 * MIB, 60 * MIB + 5, 60 * MIB),
        (0, 500 * MIB + 9, 500 * MIB),
    ],
)
def test_a_disk_is_as_large_as_its_claim_not_as_the_nodes_disk(claimed: int, free: int, size: int) -> None:
    assert disk_bytes("data", claimed, free) == size


@pytest.mark.parametrize(("claimed", "free"), [(64 * MIB, 20 * MIB), (64 * MIB, 0), (0, 0)])
def test_a_file_system_that_is_too_small_is_told(claimed: int, free: int) -> None:
    with pytest.raises(ClaimError, match=r"claim data asks for \d+ bytes, and its file system has \d+ free"):
        disk_bytes("data", claimed, free)


def test_the_claims_size_is_read_from_the_status() -> None:
    def entry(name: str, **info: Any) -> dict[str, Any]:
        return {"name": name, "persistentVolumeClaimInfo": info}

    listed = [
        entry("a", requests={"storage": "1Gi"}, capacity={"storage": "2Gi"}),
        entry("b", capacity={"storage": "64Mi"}),
        {"name": "c"},
    ]
    vmi: dict[str, Any] = {"status": {"volumeStatus": listed}}
    assert [claimed_bytes(vmi, name) for name in "abcd"] == [1 << 30, 64 * MIB, 0, 0]


def test_what_comes_while_the_guest_runs_is_in_a_pod_of_its_own() -> None:
    plugged = {"name": "late", "hotplugVolume": {"attachPodName": "hp-volume-a", "attachPodUID": "another"}}
    vmi: dict[str, Any] = {"status": {"volumeStatus": [{"name": "root"}, plugged]}}
    assert holder(vmi, "root", "launcher") == ("launcher", "compute")
    assert holder(vmi, "late", "launcher") == ("another", "hotplug-disk")


@pytest.mark.parametrize(
    ("listed", "group"),
    [
        ("9:name=systemd:/a\n3:devices:/k8s/pod1/c\n0::/\n", "devices/k8s/pod1/c"),
        ("4:cpu,devices:/pod\n", "devices/pod"),
        ("0::/kubepods.slice/pod1.slice/cri-c.scope\n", "kubepods.slice/pod1.slice/cri-c.scope"),
    ],
)
def test_the_group_that_decides_on_devices(listed: str, group: str) -> None:
    assert device_group(listed) == group


@pytest.mark.skipif(not os.path.exists("/proc/1/root/proc"), reason="the first process cannot be looked into")
def test_what_a_container_has_is_opened_in_its_place(tmp_path: Path) -> None:
    file = tmp_path / "device"
    file.write_bytes(b"disk")
    inode = os.open(file, os.O_PATH)
    try:
        opened = open_device(os.getpid(), inode, os.O_RDONLY)
        assert os.pread(opened, 4, 0) == b"disk"
        os.close(opened)
        file.chmod(0)
        with pytest.raises(OSError, match="No such"):
            open_device(2**22 + 7, inode, os.O_RDONLY)
    finally:
        os.close(inode)
