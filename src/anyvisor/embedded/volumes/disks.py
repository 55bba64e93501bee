"""The disks on this machine: a directory per volume, with one raw file, which belongs to nobody but us."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from anyvisor.agent import linux
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.embedded.volumes.names import DISK

_SECTOR = 512
_COPY_BYTES = 4 << 20
_FILLING = f".{DISK}.filling"


class FillStoppedError(Exception):
    """Whoever asked for the fill does not want it any more."""


def _nothing(_done: int) -> None:
    return


def _never() -> bool:
    return False


class Disks:
    """Disks below one directory. Every name is checked by the kernel to stay below it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, volume: str, size: int, *, read_only: bool) -> OpenedClaim:
        """The volume's disk; at first it is made, sparse and `size` bytes long. Never shrunk, never grown.

        Raises:
            ClaimError: the disk cannot be made or opened.
        """
        try:
            directory = self._make_directory(volume)
            try:
                descriptor = self._open_disk(directory, size, read_only=read_only)
            finally:
                os.close(directory)
        except OSError as error:
            message = f"the disk of volume {volume} cannot be opened: {error.strerror}; free space or repair it"
            raise ClaimError("VolumeNotReady", message) from error
        return OpenedClaim(descriptor, os.fstat(descriptor).st_size)

    def is_there(self, volume: str) -> bool:
        """Whether the volume has its disk, whole."""
        return (self._root / volume / DISK).is_file()

    def fill(
        self,
        volume: str,
        size: int,
        content: int | None,
        *,
        preallocate: bool = False,
        progress: Callable[[int], None] = _nothing,
        stopped: Callable[[], bool] = _never,
    ) -> None:
        """Make the volume's disk of raw content, or of nothing, sparse. It has its name only when all of it is synced.

        Raises:
            FillStoppedError: `stopped` said so.
            OSError: it cannot be written; nothing is kept.
        """
        directory = self._make_directory(volume)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(_FILLING, flags, 0o600, dir_fd=directory)
            try:
                if content is not None:
                    _copy_sparsely(content, handle, progress, stopped)
                length = -(-size // _SECTOR) * _SECTOR
                os.ftruncate(handle, length)
                if preallocate:
                    os.posix_fallocate(handle, 0, length)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(_FILLING, DISK, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(_FILLING, dir_fd=directory)
            raise
        finally:
            os.close(directory)

    def open_state(self, volume: str, file: str) -> int:
        """A file of the volume for writing, empty at first.

        Raises:
            ClaimError: it cannot be made or opened.
        """
        try:
            directory = self._make_directory(volume)
            try:
                return linux.openat2(directory, file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            finally:
                os.close(directory)
        except OSError as error:
            message = f"{file} of volume {volume} cannot be opened: {error.strerror}; free space or repair it"
            raise ClaimError("VolumeNotReady", message) from error

    def open_directory(self, volume: str) -> int:
        """The volume's directory, made at first.

        Raises:
            ClaimError: it cannot be made or opened.
        """
        try:
            return self._make_directory(volume)
        except OSError as error:
            message = f"the directory of volume {volume} cannot be opened: {error.strerror}; free space or repair it"
            raise ClaimError("VolumeNotReady", message) from error

    def _make_directory(self, volume: str) -> int:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (self._root / volume).mkdir(mode=0o700)
        return self._open_directory(volume)

    def _open_directory(self, volume: str) -> int:
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return linux.openat2(root, volume, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(root)

    def _open_disk(self, directory: int, size: int, *, read_only: bool) -> int:
        flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        try:
            return linux.openat2(directory, DISK, flags)
        except FileNotFoundError:
            fresh = f".{DISK}"
            handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=directory)
            try:
                os.ftruncate(handle, -(-size // _SECTOR) * _SECTOR)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(fresh, DISK, src_dir_fd=directory, dst_dir_fd=directory)
            return linux.openat2(directory, DISK, flags)

    def remove(self, volume: str) -> None:
        """Delete a volume that we made; nothing when there is none."""
        if "/" not in volume and volume not in ("", ".", ".."):
            shutil.rmtree(self._root / volume, ignore_errors=True)


def _copy_sparsely(source: int, target: int, progress: Callable[[int], None], stopped: Callable[[], bool]) -> None:
    """The parts of `source` that hold data; in the kernel where the file systems can."""
    for begin, end in _parts(source):
        here = begin
        while here < end:
            if stopped():
                raise FillStoppedError
            here += _copy_some(source, target, here, min(end - here, _COPY_BYTES))
            progress(here)


def _copy_some(source: int, target: int, offset: int, count: int) -> int:
    try:
        done = os.copy_file_range(source, target, count, offset, offset)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        done = 0
    if done:
        return done
    data = os.pread(source, count, offset)
    if not data:
        raise OSError(errno.EIO, "its content became shorter while it was read")
    return os.pwrite(target, data, offset)


def _parts(source: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part that is no hole."""
    end = os.fstat(source).st_size
    here = 0
    while here < end:
        try:
            begin = os.lseek(source, here, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        here = os.lseek(source, begin, os.SEEK_HOLE)
        yield begin, here
