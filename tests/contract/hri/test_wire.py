"""A change of the proto that breaks the wire fails here: against the form that was released, nothing may be lost."""

import copy
import json
from pathlib import Path
from typing import Any

import hridocs
import pytest

BASELINE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "hri" / "wire.json").read_text())
NOW = hridocs.wire(hridocs.descriptors())


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What of the old form the new one lost or changed."""
    found = [f"method {name}" for name, kind in old["methods"].items() if new["methods"].get(name) != kind]
    for section in ("messages", "enums"):
        for name, entries in old[section].items():
            present = new[section].get(name)
            if present is None:
                found.append(name)
                continue
            found += [f"{name} {number}" for number, entry in entries.items() if present.get(number) != entry]
    return found


def test_nothing_that_was_released_is_lost():
    assert breaks(BASELINE, NOW) == []


V1 = "anyvisor.hri.v1."


@pytest.mark.parametrize(
    ("where", "entry"),
    [
        (("methods", V1 + "MachineService/Prepare"), None),
        (("messages", V1 + "Disk"), None),
        (("messages", V1 + "Disk", "1"), None),
        (("messages", V1 + "Disk", "1"), ["renamed", "string", "single", ""]),
        (("messages", V1 + "Disk", "1"), ["id", "bytes", "single", ""]),
        (("messages", V1 + "Machine", "8"), ["disks", "." + V1 + "Disk", "single", ""]),
        (("enums", V1 + "Phase", "3"), None),
    ],
)
def test_each_kind_of_damage_is_found(where: tuple[str, ...], entry: list[str] | None):
    damaged: Any = copy.deepcopy(NOW)
    place: Any = damaged
    for step in where[:-1]:
        place = place[step]
    assert where[-1] in place
    if entry is None:
        del place[where[-1]]
    else:
        place[where[-1]] = entry
    assert len(breaks(NOW, damaged)) == 1


def test_an_addition_is_no_damage():
    more = copy.deepcopy(NOW)
    more["messages"]["anyvisor.hri.v1.Disk"]["99"] = ["new", "string", "single", ""]
    more["enums"]["anyvisor.hri.v1.Phase"]["99"] = "PHASE_NEW"
    assert breaks(NOW, more) == []


def test_every_enum_begins_with_what_is_not_stated():
    assert all(values["0"].endswith("_UNSPECIFIED") for values in NOW["enums"].values())


def test_generated_pages_are_fresh(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", ["hridocs", "--check"])
    assert hridocs.main() == 0
