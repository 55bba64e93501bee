"""The entry point of the replays."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools import replay

CASE: dict[str, Any] = {
    "id": "vmi-x-001",
    "kind": "VirtualMachineInstance",
    "object": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": {"domain": {"devices": {}}}},
    "context": {"architecture": "amd64", "configuration": {}},
    "allowed": False,
    "causes": [{"field": "", "type": "FieldValueRequired"}],
    "stage": "mutate",
}


def written(path: Path, *cases: object) -> str:
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))
    return str(path)


@pytest.mark.parametrize(
    ("case_id", "module"),
    [
        ("vm-reconcile-x-001", "vm_reconcile"),
        ("vmi-reconcile-x-001", "vmi_reconcile"),
        ("podspec-x-001", "podspec"),
        ("subresource-x-001", "subresource"),
        ("vm-template-001", "admission"),
        ("eviction-001", "admission"),
    ],
)
def test_the_id_tells_the_kind(case_id: str, module: str) -> None:
    assert replay.kind_of(case_id) == module


def test_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([written(tmp_path / "cases", CASE)]) == 0
    assert capsys.readouterr().out == "1 of 1 equal\n"


def test_different_and_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {**CASE, "id": "vmi-x-002", "allowed": True}
    assert replay.main([written(tmp_path / "cases", CASE, other, {"id": "vmi-x-003"})]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("vmi-x-002: allowed=False instead of True")
    assert told[1].startswith("vmi-x-003: KeyError")
    assert told[2] == "1 of 3 equal"


def test_usage(tmp_path: Path) -> None:
    assert replay.main([""]) == 2
    assert replay.main([str(tmp_path / "none")]) == 2


def test_cases_of_another_kind_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main([written(tmp_path / "cases", {"cmd": "virtctl version", "calls": []})]) == 2
    assert "have no id" in capsys.readouterr().err
