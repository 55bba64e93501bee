"""The evidence that each driver ships: whole, of that driver, and worth something only with the manifest it names."""

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pytest

from anyvisor.hri import evidence
from anyvisor.hri.packages import DriverPackage, load
from anyvisor.planning.evidence import SUITE, counts, standing
from anyvisor.planning.manifest import digest, parse
from anyvisor.planning.registry import registry

SHIPPED = ("qemu", "cloud-hypervisor", "libvirt", "fake")


def own_digest(result: Mapping[str, Any]) -> str:
    """As the program makes it: whoever edits a result by hand makes another."""
    left_out = ("results", "figures", "suite", "passed", "digest")
    proven = {
        **{name: value for name, value in result.items() if name not in left_out},
        "results": [(entry["id"], entry["outcome"]) for entry in result["results"]],
    }
    text = json.dumps(proven, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(params=SHIPPED)
def package(request: pytest.FixtureRequest) -> DriverPackage:
    return load(request.param)


def test_a_driver_ships_a_result_of_its_own_in_which_nothing_failed(package: DriverPackage) -> None:
    assert package.evidence
    for result in package.evidence:
        assert result["suite"]["name"] == SUITE
        assert result["driver"] == package.manifest["driver"]
        if result["manifest_digest"] == digest(package.manifest):
            assert result["driver_version"] == package.manifest["version"]
        assert result["digest"] == own_digest(result)
        assert result["passed"]
        assert {entry["outcome"] for entry in result["results"]} <= {"passed", "skipped"}
    assert package.spec["manifest"] == package.manifest
    assert [own_digest(result) for result in package.spec["evidence"]] == [one["digest"] for one in package.evidence]
    assert len(json.dumps(package.spec["evidence"])) < 10_000


def test_evidence_counts_for_the_manifest_that_it_names_alone(package: DriverPackage) -> None:
    """Where a manifest was changed, its old evidence proves nothing: `make conform ARGS=--write` makes it anew."""
    manifest = parse(package.manifest, registry())
    named = {str(result["manifest_digest"]) for result in package.evidence}
    for one in named:
        assert counts(standing(manifest, one, package.evidence))["supported"] > 0
    edited = {**package.manifest, "title": "another"}
    assert counts(standing(manifest, digest(edited), package.evidence))["supported"] == 0
    fits = digest(package.manifest) in named
    worths = counts(standing(manifest, digest(package.manifest), package.evidence))
    assert bool(worths["supported"]) == fits


def test_odd_results_are_kept_short_too() -> None:
    odd: list[Any] = [{"results": 1, "figures": [1]}, {"results": [1, {"id": 2, "title": "x"}], "x": None}]
    assert evidence.brief(odd) == [{"results": []}, {"results": [{"id": 2, "outcome": None}], "x": None}]


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "no JSON"), ("[1]", "no results"), ('"x"', "no results"), ("[" * 100_000, "no JSON")],
)
def test_evidence_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(evidence.EvidenceError, match=says):
        evidence.read(text)


def test_evidence_is_bounded() -> None:
    with pytest.raises(evidence.EvidenceError, match="more than"):
        evidence.read(" " * (evidence.MAX_BYTES + 1))
    assert evidence.read('{"a": 1}') == ({"a": 1},)
    text = files("anyvisor.drivers.qemu").joinpath(evidence.FILE).read_text(encoding="utf-8")
    assert evidence.read(text) == load("qemu").evidence
