"""Volumes placed in a launcher's directory: the file itself, under a name, whatever the launcher left there."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyvisor.agent import placing
from anyvisor.agent.launchers import Launcher, LauncherError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    process = subprocess.Popen(["/bin/sleep", "600"])
    (tmp_path / "dir").mkdir()
    directory = os.open(tmp_path / "dir", os.O_RDONLY | os.O_DIRECTORY)
    made = Launcher(process.pid, os.pidfd_open(process.pid), directory, 65534, 65534)
    yield made
    placing.remove(made, "disk")
    made.close()
    process.kill()
    process.wait()


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "volume").write_bytes(b"old")
    descriptor = os.open(tmp_path / "volume", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_what_is_written_under_the_name_is_in_the_volume(launcher: Launcher, volume: int, tmp_path: Path):
    placing.place(launcher, "disk", volume)
    (tmp_path / "dir" / "disk").write_bytes(b"new")
    assert (tmp_path / "volume").read_bytes() == b"new"
    placing.place(launcher, "disk", volume)
    placing.remove(launcher, "disk")
    assert os.listdir(tmp_path / "dir") == []
    assert (tmp_path / "volume").read_bytes() == b"new"
    placing.remove(launcher, "disk")


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_the_launcher_left_there_leads_nowhere(launcher: Launcher, volume: int, tmp_path: Path, kind: str):
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    left = tmp_path / "dir" / "disk"
    left.symlink_to(victim) if kind == "link" else left.write_bytes(b"mine")
    placing.place(launcher, "disk", volume)
    assert left.read_bytes() == b"old"
    assert not left.is_symlink()
    assert victim.read_bytes() == b"untouched"


def test_a_launcher_with_a_file_system_of_its_own_says_so(launcher: Launcher, volume: int):
    away = subprocess.Popen(["unshare", "--mount", "/bin/sleep", "600"])
    try:
        with pytest.raises(LauncherError, match="restart the VM to have the disk"):
            while os.readlink(f"/proc/{away.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                assert away.poll() is None
            placing.place(Launcher(away.pid, -1, launcher.directory, 0, 0), "disk", volume)
    finally:
        away.kill()
        away.wait()
