"""Drivers as folders: everything that is wrong is said at once, before anything is installed."""

import json
from pathlib import Path

import pytest

from anyvisor.hri import folders, manifests

BASE = manifests.packaged("anyvisor.hri.fake").data


def make(place: Path, *, program: str = "driver", mode: int = 0o755, **changes: object) -> Path:
    """A folder."""
    place.mkdir(exist_ok=True)
    (place / "manifest.yaml").write_text(json.dumps({**BASE, **changes}))
    (place / program).write_text("#!/bin/sh\n")
    (place / program).chmod(mode)
    return place


def test_a_folder_is_read(tmp_path: Path):
    (tmp_path / "evidence.json").write_text(json.dumps({"digest": "x"}))
    found = folders.read(make(tmp_path, version="2.0"))
    assert (found.name, found.version) == ("fake.anyvisor.io", "2.0")
    assert found.command("/h", "/f") == [str(tmp_path / "driver"), "--hri", "/h", "--fd", "/f"]
    assert found.evidence == ({"digest": "x"},)


def test_the_manifest_says_how_it_is_started(tmp_path: Path):
    command = ["./bin", "serve", "--socket={hri}"]
    found = folders.read(make(tmp_path, program="bin", process={"command": command}))
    assert found.command("/h", "/f")[1:] == ["serve", "--socket=/h"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": 0o644}, "not there or not executable"),
        ({"program": "other"}, "not there or not executable"),
        ({"process": {"command": ["/bin/sh", "{hri}"]}}, "must lie in the driver's folder"),
        ({"process": {"command": ["../x", "{hri}"]}}, "must lie in the driver's folder"),
        ({"process": {"command": ["./driver"]}}, "take {hri}"),
        ({"version": "1/../2"}, "version"),
        ({"driver": "Not A Name"}, "driver"),
        ({"capabilities": {"warp.drive": {"state": "yes"}}}, "no such capability"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changes: dict[str, object], said: str):
    with pytest.raises(folders.FolderError, match=said):
        folders.read(make(tmp_path, **changes))  # type: ignore[arg-type]


def test_no_manifest_or_a_broken_one(tmp_path: Path):
    with pytest.raises(folders.FolderError, match="there is no manifest"):
        folders.read(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(folders.FolderError, match=r"manifest\.json"):
        folders.read(tmp_path)


@pytest.mark.parametrize("text", ["{", "3", "[1]", '"x"'])
def test_evidence_that_is_none(tmp_path: Path, text: str):
    make(tmp_path)
    (tmp_path / "evidence.json").write_text(text)
    with pytest.raises(folders.FolderError, match=r"evidence\.json"):
        folders.read(tmp_path)
