"""One name, one driver: a second that claims it is refused, or left out and told of."""

from pathlib import Path

import pytest

from anyvisor.embedded import components
from anyvisor.hri.packages import DriverError, load, load_all
from tests.unit.embedded.test_driver_store import NAME, instance, put


def test_two_packages_that_claim_one_name():
    assert [package.name for package in load_all(["qemu", "fake"])] == ["qemu", "fake"]
    with pytest.raises(DriverError, match=r"qemu and qemu both call themselves qemu.anyvisor.io: serve one of them"):
        load_all(["qemu", "qemu"])


def test_a_driver_that_was_added_under_the_name_of_one_of_ours_is_left_out(tmp_path: Path):
    here = instance(tmp_path)
    put(here, tmp_path / "a", "1")
    alone = components._of_drivers(here, ["node-1"], [])
    assert [component.name for component in alone] == ["agent-node-1", f"driver-{NAME}-1-node-1"]
    beside = components._of_drivers(here, ["node-1"], [load("fake")])
    assert [component.name for component in beside] == ["agent-node-1"]
