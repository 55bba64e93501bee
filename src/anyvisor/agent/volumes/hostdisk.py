"""`hostDisk`: a raw file in a directory of the host, which the launcher pod mounts.

The file is looked up by its name alone, below the directory that the pod has; neither is ever a link.
"""

import os
import stat
from typing import Any, Final

from anyvisor.agent import linux
from anyvisor.agent.open_error import OpenError
from anyvisor.api.quantity import QuantityError, parse_quantity

_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
MAY_CREATE: Final = "DiskOrCreate"


def open_disk(source: dict[str, Any], directory: int, at: str, *, less: int) -> int:
    """The disk's descriptor, the caller's to close; made sparse where the source says so.

    `less`: by how many percent a new disk may be smaller than asked for, where the host has not the space.

    Raises:
        OpenError: it is not there, cannot be made, or is no file that a guest may have.
    """
    path = str(source.get("path") or "")
    name = os.path.basename(path)
    if name in ("", ".", ".."):
        raise OpenError(f"{at}.path", "HostDiskNotUsable", f"{path!r} names no file", retry=False)
    try:
        descriptor = linux.openat2(directory, name, _FLAGS)
    except FileNotFoundError as error:
        if source.get("type") != MAY_CREATE:
            message = f"there is no disk {path} on this node; make it, or use type {MAY_CREATE}"
            raise OpenError(at, "HostDiskNotFound", message, retry=True) from error
        _create(source, directory, name, at, less)
        descriptor = linux.openat2(directory, name, _FLAGS)
    try:
        _check(os.fstat(descriptor), path, at)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _create(source: dict[str, Any], directory: int, name: str, at: str, less: int) -> None:
    """The file appears under its name once it has its size, and never in the place of another."""
    try:
        wanted = parse_quantity(source["capacity"]).value
    except (KeyError, QuantityError) as error:
        message = f"a new disk needs a capacity: {error}"
        raise OpenError(f"{at}.capacity", "HostDiskNotUsable", message, retry=False) from error
    room = os.fstatvfs(directory)
    size = wanted
    if room.f_bavail * room.f_frsize < wanted:
        size = wanted * (100 - less) // 100
        if room.f_bavail * room.f_frsize < size:
            message = f"a new disk of {wanted} bytes has only {room.f_bavail * room.f_frsize} bytes of space there"
            raise OpenError(f"{at}.capacity", "HostDiskNoSpace", f"{message}; free space", retry=True)
    fresh = f".{name}.new"
    descriptor = os.open(fresh, _FLAGS | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    try:
        os.ftruncate(descriptor, -(-size // 512) * 512)
        os.fsync(descriptor)
        os.link(fresh, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return
    finally:
        os.close(descriptor)
        os.unlink(fresh, dir_fd=directory)


def _check(status: os.stat_result, path: str, at: str) -> None:
    """A regular file, or a block device, that has no other name by which somebody might have slipped it in."""
    if stat.S_ISBLK(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise OpenError(f"{at}.path", "HostDiskNotUsable", f"{path} is no file", retry=False)
    if status.st_nlink > 1:
        message = f"{path} has a second name (hard link); a disk must have one, so that nobody slips another file in"
        raise OpenError(f"{at}.path", "HostDiskNotUsable", message, retry=False)
    if status.st_uid not in (0, os.geteuid()):
        message = f"{path} belongs to user {status.st_uid}; a disk of the host must belong to root"
        raise OpenError(f"{at}.path", "HostDiskNotUsable", message, retry=False)
