"""A directory of root's as another user's: who owns what, and what that user can do with it."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from anyvisor.embedded.podrunner import shares

USER = 20_123

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: directories are shared by root alone")


def run_as_user(directory: Path, command: str, *, read_only: bool) -> "subprocess.CompletedProcess[str]":
    """Run a command in the shared directory, as its server would stand there."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    shared = asyncio.run(shares.for_user(handle, USER, USER, read_only=read_only))
    os.close(handle)
    become = ["/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--groups=44", "--"]
    enter = ["/usr/bin/nsenter", f"--user=/proc/self/fd/{shared.namespace}", "--"]
    inside = ["/bin/sh", "-c", f"cd /proc/self/fd/{shared.directory} && {command}"]
    try:
        return subprocess.run(
            [*become, *enter, *inside],
            pass_fds=(shared.directory, shared.namespace),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(shared.directory)
        os.close(shared.namespace)


def test_what_the_user_writes_is_roots(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "old").write_text("old")
    done = run_as_user(tmp_path, "id -u; id -G; cat old; echo new >new; ls -ln new", read_only=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0\n0\nold-rw-")
    assert " 0 0 " in done.stdout
    assert ((tmp_path / "new").stat().st_uid, (tmp_path / "new").read_text()) == (0, "new\n")


def test_what_is_somebody_elses_is_not_the_users(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    os.chown(tmp_path / "other", 1234, 1234)
    (tmp_path / "other").chmod(0o600)
    done = run_as_user(tmp_path, "cat other", read_only=False)
    assert "Permission denied" in done.stderr


def test_read_only_is_read_only_for_the_owner_too(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    done = run_as_user(tmp_path, "cat old; chmod 777 old; echo new >new", read_only=True)
    assert done.stdout == "old"
    assert done.stderr.count("Read-only file system") == 2
    assert os.listdir(tmp_path) == ["old"]
