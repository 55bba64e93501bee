"""Recorded calls on subresources must come out equal; the listed differences are in docs/compatibility.md."""

import json
from pathlib import Path
from typing import Any

import pytest
from replaying.subresource import replay

CASES = Path(__file__).parents[2] / "data" / "judges" / "subresource_open.jsonl"


def cases() -> list[Any]:
    found = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [pytest.param(case, id=case["id"]) for case in found]


@pytest.mark.parametrize("case", cases())
def test_recorded(case: dict[str, Any]) -> None:
    assert replay(case) == []
