"""Linux facts that the processes of an instance rely on."""

import os
from pathlib import Path

import pytest

from anyvisor.embedded.confine import closed_ancestor
from anyvisor.embedded.system import device_groups


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another group")
@pytest.mark.parametrize(("mode", "group", "groups"), [(0o660, 108, [108]), (0o600, 108, []), (0o666, 0, [])])
def test_a_devices_group_is_given_only_where_it_helps(tmp_path: Path, mode: int, group: int, groups: list[int]) -> None:
    device = tmp_path / "kvm"
    device.touch()
    device.chmod(mode)
    os.chown(device, 0, group)
    assert device_groups(str(device)) == groups


def test_a_device_that_is_not_there_has_no_groups(tmp_path: Path) -> None:
    assert device_groups(str(tmp_path / "none")) == []


def test_the_topmost_closed_directory_is_found(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b" / "c"
    below.mkdir(parents=True)
    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 1:
            assert closed_ancestor(below) is not None
            return
    (tmp_path / "a").chmod(0o700)
    assert closed_ancestor(below) == tmp_path / "a"
    (tmp_path / "a").chmod(0o755)
    assert closed_ancestor(below) is None
