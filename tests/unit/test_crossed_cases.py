"""Worlds that cross what recorded cases have one by one: each rule must hold beside every other.

The inputs are this project's; the outcomes are facts of the API. The format is that of the recorded cases.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tools.replay import kind_of

CASES: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data" / "crossed.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_crossed_case(case: dict[str, Any]) -> None:
    assert import_module(f"replaying.{kind_of(case['id'])}").replay(case) == []


def test_every_kind_is_crossed() -> None:
    kinds = {"admission", "podspec", "subresource", "vm_reconcile", "vmi_reconcile"}
    assert {kind_of(case["id"]) for case in CASES} == kinds
