"""Our decisions equal the recorded ones, except where they are better; those are listed with their reasons."""

import json
from pathlib import Path
from typing import Any

import pytest
from replaying.admission import replay

from anyvisor.admission.dispatch import ADMITTERS

DATA = Path(__file__).parents[2] / "data" / "judges" / "admission_open.jsonl"
DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"
CASES: list[dict[str, Any]] = [
    case for case in map(json.loads, DATA.read_text().splitlines()) if case["kind"] in ADMITTERS
]

# Case -> the heading in docs/compatibility.md that says why we answer otherwise.
INTENDED = {"vm-run-006": "Decentralized live migration is on"}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_recorded_decision(case: dict[str, Any]) -> None:
    differences = replay(case)
    if case["id"] in INTENDED:
        assert differences, "the case is equal: take it out of the list"
    else:
        assert differences == []


def test_every_kind_is_among_the_cases() -> None:
    assert {case["kind"] for case in CASES} == set(ADMITTERS) - {"KubeVirt"}


@pytest.mark.parametrize("reason", sorted(set(INTENDED.values())))
def test_every_intended_difference_is_explained(reason: str) -> None:
    assert f"### {reason}\n" in DOCUMENT.read_text()
