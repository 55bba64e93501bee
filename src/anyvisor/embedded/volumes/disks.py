"""The disks on this machine: a directory per volume, with one raw file, which belongs to nobody but us."""

import contextlib
import os
import shutil
from pathlib import Path

from anyvisor.agent import linux
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.embedded.volumes.names import DISK

_SECTOR = 512


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
