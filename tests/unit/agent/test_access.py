"""The right to open a file anew, given to one user."""

import os
from pathlib import Path

import pytest

from anyvisor.agent import access

USER = 54321
OTHER = 54322


def opens(uid: int, descriptor: int, flags: int) -> bool:
    """Whether a process of that user can open the file through its own descriptor."""
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            os.open(f"/proc/self/fd/{descriptor}", flags)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(("mode", "may_write"), [(os.O_RDWR, True), (os.O_RDONLY, False)])
def test_as_the_descriptor_is_open_and_for_nobody_else(tmp_path: Path, mode: int, may_write: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be other users")
    path = tmp_path / "volume"
    path.touch(0o600)
    descriptor = os.open(path, mode)
    try:
        assert not opens(USER, descriptor, os.O_RDONLY)
        try:
            access.grant(descriptor, USER)
        except OSError as error:
            pytest.skip(f"no access control lists on this file system: {error}")
        access.grant(descriptor, USER)
        assert opens(USER, descriptor, os.O_RDONLY)
        assert opens(USER, descriptor, os.O_RDWR) == may_write
        assert not opens(OTHER, descriptor, os.O_RDONLY)
    finally:
        os.close(descriptor)


def test_what_is_allowed_already_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.touch()
    path.chmod(0o644)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        access.grant(descriptor, USER)
        access.grant(descriptor, os.geteuid())
        assert "system.posix_acl_access" not in os.listxattr(path)
    finally:
        os.close(descriptor)


def test_list_in_the_kernels_form() -> None:
    entries = {(1, 0xFFFFFFFF): 6, (4, 0xFFFFFFFF): 4, (32, 0xFFFFFFFF): 0}
    made = access.with_user(entries, USER, 6)
    assert made[2, USER] == 6
    assert made[16, 0xFFFFFFFF] == 6
    assert access.decode(access.encode(made)) == made
    with pytest.raises(OSError, match="unknown form"):
        access.decode(b"\x03\0\0\0")
