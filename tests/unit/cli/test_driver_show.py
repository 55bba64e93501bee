"""`anyvisor driver show`: each statement with what it is worth."""

from typing import Any

import pytest

from anyvisor.cli import driver_show
from anyvisor.cli.main import CommandError
from anyvisor.planning.manifest import digest
from tests.unit.planning.builders import manifest

STATED = {
    "disk.serial": {"note": "at most 20 bytes"},
    "boot.kernel": {},
    "boot.uefi": {"state": False, "note": "no firmware"},
    "change.cpu": {"when": "cold"},
    "memory.hugepages": {"level": "experimental", "values": ["2Mi", "1Gi"]},
}


def shown(**spec: Any) -> dict[str, tuple[str, ...]]:
    raw = manifest(STATED)
    driver = {"metadata": {"name": "test"}, "spec": {"manifest": raw, **spec}}
    return {name: tuple(rest) for name, *rest in driver_show.rows(driver)}


def test_each_statement_with_its_standing() -> None:
    checks = [{"id": name, "outcome": "passed"} for name in ("run.boot",)]
    proof = {
        "suite": {"name": "anyvisor-conform"},
        "manifest_digest": digest(manifest(STATED)),
        "results": checks,
    }
    found = shown(evidence=[proof, "odd"])
    assert found["boot.kernel"] == ("supported", "-", "-")
    assert found["disk.serial"] == ("claimed", "-", "at most 20 bytes")
    assert found["boot.uefi"] == ("no", "-", "no firmware")
    assert found["change.cpu"] == ("claimed", "only while it is stopped", "-")
    assert found["memory.hugepages"] == ("experimental", "2Mi,1Gi", "-")
    assert found["cpu.count"][1] == "up to 16"
    assert list(found) == sorted(found)
    assert shown()["boot.kernel"][0] == "claimed"


def test_a_manifest_that_cannot_be_used() -> None:
    with pytest.raises(CommandError, match="the manifest of x cannot be used"):
        list(driver_show.rows({"metadata": {"name": "x"}, "spec": {"manifest": {}}}))
