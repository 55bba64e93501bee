"""Tests that need the official programs wait for a build that is under way, and for nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.kit import build

NAMES = ["apiserver"]
HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where somebody who builds holds a lock; nothing is built."""
    monkeypatch.setenv("ANYVISOR_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "_LOOK_SECONDS", 0.01)
    place = build.cache()
    place.mkdir(parents=True)
    return place / build._LOCK


def test_where_nobody_builds_nobody_waits(lock: Path) -> None:
    assert not build.wait_for_build(NAMES, 3600)
    lock.touch()
    assert not build.wait_for_build(NAMES, 3600)


def test_a_build_is_waited_for_while_there_is_patience(lock: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "held\n"
        assert build._is_held(lock)
        assert not build.wait_for_build(NAMES, 0.05)
        holder.stdin.close()
        assert holder.wait(60) == 0
    assert not build.wait_for_build(NAMES, 3600)


def test_what_is_there_is_taken_at_once(lock: Path) -> None:
    target = build.TARGETS["apiserver"]
    for program in build.programs(target):
        (lock.parent / program).touch()
    build._stamp(lock.parent, "apiserver").write_text(build._key("apiserver"))
    assert build.wait_for_build(NAMES, 0)


def test_without_room_on_the_disk_nothing_is_begun(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "NEEDED_BYTES", 1 << 62)
    (lock.parent / "go").touch(0o755)
    monkeypatch.setenv("PATH", str(lock.parent))
    with pytest.raises(build.CannotBuildError, match="GiB on the disk"):
        build.build(NAMES)
    assert not lock.with_name("apiserver").exists()
