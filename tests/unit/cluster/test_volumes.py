"""How large a claim's new disk becomes."""

from typing import Any

import pytest

from anyvisor.agent.volumes.source import ClaimError
from anyvisor.cluster.volumes import claimed_bytes, disk_bytes, holder

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
