"""Linux calls that Python 3.11 lacks: openat2, inotify, mount, PIDFD_GET_INFO."""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08
SAFE_RESOLVE: Final = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS

_SYS_OPENAT2: Final = 437  # the same on every architecture
_O_PATH_FLAGS: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_IN_CREATE: Final = 0x100
_IN_MOVED_TO: Final = 0x80
_IN_MODIFY: Final = 0x02
_IN_NONBLOCK: Final = os.O_NONBLOCK
_IN_CLOEXEC: Final = os.O_CLOEXEC

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def openat2(
    directory: int, path: str, flags: int = _O_PATH_FLAGS, mode: int = 0, *, resolve: int = SAFE_RESOLVE
) -> int:
    """Open `path` below `directory` without ever following a link or leaving it; openat2(2).

    `mode` is that of a file which O_CREAT makes.

    Raises:
        OSError: ELOOP for a link on the way, EXDEV for a way out, and those of open(2).
    """
    how = struct.pack("=QQQ", flags, mode, resolve)
    return _checked(_libc.syscall(_SYS_OPENAT2, directory, os.fsencode(path), how, len(how)), path)


_SYS_FSOPEN: Final = 430
_SYS_FSCONFIG: Final = 431
_SYS_FSMOUNT: Final = 432
_FSOPEN_CLOEXEC: Final = 1
_FSMOUNT_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6


def detached_proc() -> int:
    """A proc file system that is mounted nowhere, for what a container's own has read-only (CAP_SYS_ADMIN).

    The descriptor of its root is the caller's to close.
    """
    context = _checked(_libc.syscall(_SYS_FSOPEN, b"proc", _FSOPEN_CLOEXEC), "fsopen proc")
    try:
        _checked(_libc.syscall(_SYS_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), "fsconfig proc")
        return _checked(_libc.syscall(_SYS_FSMOUNT, context, _FSMOUNT_CLOEXEC, 0), "fsmount proc")
    finally:
        os.close(context)


# struct pidfd_info, version 0 (64 bytes): include/uapi/linux/pidfd.h of Linux 6.15
_PIDFD_INFO: Final = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO: Final = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT: Final = 1 << 3


def pidfd_exit_status(pidfd: int) -> int | None:
    """The wait status of an ended process that need not be our child; None when it runs or the kernel is too old.

    Needs Linux 6.15, and that the pidfd was opened before the end.
    """
    request = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0, *([0] * 11), 0))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, request)
    except OSError:
        return None
    fields = _PIDFD_INFO.unpack(request)
    return int(fields[-1]) if fields[0] & _PIDFD_INFO_EXIT else None


def mount_tmpfs(target: str, *, size: int, mode: int, uid: int, gid: int, inodes: int = 64) -> None:
    """Mount a tmpfs of at most `size` bytes and so many files."""
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC)
    options = f"size={size},mode={mode:o},uid={uid},gid={gid},nr_inodes={inodes}".encode()
    _checked(_libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", flags, options), target)


def bind(source: str, target: str) -> None:
    """Have the file `source` also at `target`, a file."""
    _checked(_libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(MS_BIND), None), target)


_SYS_OPEN_TREE: Final = 428
_SYS_MOUNT_SETATTR: Final = 442
_OPEN_TREE_CLONE: Final = 1
_AT_EMPTY_PATH: Final = 0x1000
_MOUNT_ATTR_RDONLY: Final = 0x1
_MOUNT_ATTR_NOSUID: Final = 0x2
_MOUNT_ATTR_NODEV: Final = 0x4
_MOUNT_ATTR_IDMAP: Final = 0x100000


def detached_mount(directory: int, namespace: int, *, read_only: bool) -> int:
    """The directory as a mount of its own, without set-uid programs and devices, that is mounted nowhere.

    Owners are translated by the user namespace (Linux 5.12, CAP_SYS_ADMIN). Its descriptor is the caller's to close.
    """
    flags = _AT_EMPTY_PATH | _OPEN_TREE_CLONE | os.O_CLOEXEC
    mount = _checked(_libc.syscall(_SYS_OPEN_TREE, directory, b"", flags), "open_tree")
    wanted = _MOUNT_ATTR_IDMAP | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | (_MOUNT_ATTR_RDONLY if read_only else 0)
    attributes = struct.pack("=QQQQ", wanted, 0, 0, namespace)
    try:
        _checked(
            _libc.syscall(_SYS_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, attributes, len(attributes)),
            "mount_setattr",
        )
    except OSError:
        os.close(mount)
        raise
    return mount


def unmount(target: str) -> None:
    """Take a mount away, also while something still uses it; nothing when none is there. A link is not followed."""
    if _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) < 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise OSError(number, os.strerror(number), target)


@dataclass(slots=True)
class Watch:
    """Tells when a name appears in a directory, or when a file is written to (inotify). To be closed."""

    descriptor: int

    @classmethod
    def open(cls, watched: int) -> "Watch":
        """Watch an open directory or file."""
        descriptor = _checked(_libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC), "inotify_init1")
        path = f"/proc/self/fd/{watched}".encode()
        try:
            mask = _IN_CREATE | _IN_MOVED_TO | _IN_MODIFY
            _checked(_libc.inotify_add_watch(descriptor, path, mask), "inotify_add_watch")
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    async def changed(self) -> None:
        """Wait until something changed since the last call."""
        await readable(self.descriptor)
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 65536)

    def close(self) -> None:
        """End the watch."""
        os.close(self.descriptor)


async def readable(descriptor: int) -> None:
    """Wait until the descriptor can be read; for a pidfd: until its process ended."""
    loop = asyncio.get_running_loop()
    await _ready(descriptor, loop.add_reader, loop.remove_reader)


async def writable(descriptor: int) -> None:
    """Wait until the descriptor can be written to; for a connecting socket: until it is known how that ended."""
    loop = asyncio.get_running_loop()
    await _ready(descriptor, loop.add_writer, loop.remove_writer)


async def _ready(
    descriptor: int, watch: Callable[[int, Callable[[], None]], None], leave: Callable[[int], bool]
) -> None:
    """Waits on a duplicate, as a loop watches one number only once."""
    duplicate = os.dup(descriptor)
    ready = asyncio.Event()
    try:
        watch(duplicate, ready.set)
        await ready.wait()
    finally:
        leave(duplicate)
        os.close(duplicate)
