"""Drivers that were added: versions beside each other, for as long as a machine on record needs the old one."""

import json
from pathlib import Path

from anyvisor.embedded import driver_store
from anyvisor.embedded.instance import Instance
from anyvisor.hri import folders
from tests.unit.hri.test_folders import make

NAME = "fake.anyvisor.io"


def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path / "data", tmp_path / "run", "0", 0)


def put(where: Instance, source: Path, version: str, **changes: object) -> None:
    driver_store.put(where, folders.read(make(source, version=version, **changes)))  # type: ignore[arg-type]


def record(where: Instance, machine: str, version: str) -> Path:
    place = where.data_dir / "nodes/node-1/machines" / machine
    place.mkdir(parents=True)
    (place / "record.json").write_text(json.dumps({"driver": NAME, "driverVersion": version}))
    return place / "record.json"


def versions(found: list[folders.DriverFolder]) -> list[str]:
    return [folder.version for folder in found]


def test_a_version_stays_for_its_machines(tmp_path: Path):
    here = instance(tmp_path)
    assert driver_store.added(here) == []
    put(here, tmp_path / "a", "1")
    put(here, tmp_path / "b", "2")
    assert versions(driver_store.added(here)) == ["2"]
    held = record(here, "m", "1")
    assert versions(driver_store.retired(here)) == ["1"]
    driver_store.clean(here)
    assert versions(driver_store.retired(here)) == ["1"]
    held.unlink()
    assert driver_store.retired(here) == []
    driver_store.clean(here)
    assert sorted(path.name for path in (driver_store.root(here) / NAME).iterdir()) == ["2", "current"]
    driver_store.remove(here, NAME)
    assert driver_store.added(here) == []


def test_a_version_that_is_taken_over_goes_at_once(tmp_path: Path):
    here = instance(tmp_path)
    put(here, tmp_path / "a", "1")
    record(here, "m", "1")
    put(here, tmp_path / "b", "2", skew=[{"from": "1", "to": "2", "mode": "local"}])
    assert driver_store.retired(here) == []
    put(here, tmp_path / "c", "3", skew=[{"from": "1", "to": "3", "mode": "cold"}])
    assert versions(driver_store.retired(here)) == ["1"]


def test_a_driver_that_was_damaged_is_told_of_and_harms_no_other(tmp_path: Path):
    here = instance(tmp_path)
    put(here, tmp_path / "a", "1")
    put(here, tmp_path / "b", "1", driver="other.example.org")
    (driver_store.root(here) / NAME / "1" / "manifest.yaml").write_text("{")
    assert [folder.name for folder in driver_store.added(here)] == ["other.example.org"]
    assert list(driver_store.damaged(here)) == [NAME]
