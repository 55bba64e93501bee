"""Directories of the host that pods name (`hostPath`): opened only where nobody but the administrator could have put
something else in their place.

A kubelet follows any path, and leaves it to a policy who may name one. On this machine the paths are those of its
administrator: every directory on the way must belong to root or to us, must not be writable for others, and is never a
link.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

from anyvisor.agent import linux

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
SYSTEM: Final = tuple(
    Path(path) for path in ("/proc", "/sys", "/dev", "/etc", "/boot", "/usr", "/bin", "/lib", "/sbin")
)
"""Never a place for disks, whoever owns it."""


class HostPathError(PermissionError):
    """A host path is not one that a guest's disk may lie in; `strerror` says why."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(errno.EPERM, f"{path} {why}")


def open_directory(path: str, create: bool, forbidden: tuple[Path, ...] = ()) -> int:
    """The directory at an absolute path, the caller's to close. `create` makes what is missing, for root alone.

    Raises:
        HostPathError: somebody else could change what lies there. OSError: it cannot be opened.
    """
    wanted = PurePosixPath(path)
    if not wanted.is_absolute() or ".." in wanted.parts or "\0" in path:
        raise HostPathError(path, "is no absolute path without '..'")
    for place in (*SYSTEM, *forbidden):
        if wanted.is_relative_to(place):
            raise HostPathError(path, f"lies in {place}, which is no place for disks; use a directory of its own")
    current = os.open("/", _FLAGS)
    walked = PurePosixPath("/")
    try:
        for step in wanted.parts[1:]:
            walked /= step
            below = _step(current, step, str(walked), create)
            os.close(current)
            current = below
    except BaseException:
        os.close(current)
        raise
    return current


def _step(directory: int, name: str, walked: str, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=directory)
    try:
        descriptor = linux.openat2(directory, name, _FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise HostPathError(walked, "is a link; name the directory itself") from error
        raise
    try:
        check_owner(os.fstat(descriptor), walked)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_owner(status: os.stat_result, path: str) -> None:
    """Raise HostPathError unless root or we own it, and nobody else may replace what lies in it."""
    if status.st_uid not in (0, os.geteuid()):
        raise HostPathError(path, f"belongs to user {status.st_uid}; it must belong to root")
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others_write and not status.st_mode & stat.S_ISVTX:
        raise HostPathError(path, "can be written by other users; take that right away (chmod go-w)")
