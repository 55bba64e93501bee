"""Claims and their proof: a result of another manifest, or one that failed, proves nothing."""

from typing import Any

import pytest

from anyvisor.planning.evidence import counts, standing
from tests.unit.planning.builders import driver

CAPABILITIES = {
    "boot.kernel": {"state": "yes"},
    "disk.serial": {"state": "yes"},
    "disk.shareable": {"state": "yes", "level": "experimental"},
    "ops.rootless": {"state": "yes"},
    "boot.uefi": {"state": "no"},
}
DIGEST = "sha256:" + "a" * 64


def result(*passed: str, **changes: Any) -> dict[str, Any]:
    """A result of the suite."""
    return {
        "suite": {"name": "anyvisor-conform"},
        "manifest_digest": DIGEST,
        "results": [{"id": check, "outcome": "passed"} for check in passed],
        **changes,
    }


NONE: set[str] = set()
WHOLE = ("run.boot", "claims.honoured", "machine.disks")


@pytest.mark.parametrize(
    ("results", "proven"),
    [
        ([], NONE),
        ([result(*WHOLE)], {"boot.kernel", "disk.serial"}),
        ([result("run.boot")], {"boot.kernel"}),
        ([result("run.boot"), result("claims.honoured", "machine.disks")], {"boot.kernel", "disk.serial"}),
        ([result(*WHOLE, manifest_digest="sha256:" + "b" * 64)], NONE),
        ([result(*WHOLE, suite={"name": "another"})], NONE),
        ([result(results=[{"id": "run.boot", "outcome": "passed"}, {"id": "x", "outcome": "failed"}])], NONE),
        ([result(results=[{"id": "run.boot", "outcome": "skipped"}])], NONE),
        ([{}, {"suite": 1}, result(results="no"), result(results=[1, None])], NONE),
    ],
)
def test_supported_needs_proof(results: list[dict[str, Any]], proven: set[str]):
    found = standing(driver(CAPABILITIES).manifest, DIGEST, results)
    assert {name for name, worth in found.items() if worth == "supported" and name in CAPABILITIES} == proven
    assert found["disk.shareable"] == "experimental"
    assert found["ops.rootless"] == "claimed"
    assert "boot.uefi" not in found
    assert sum(counts(found).values()) == len(found)
