"""The place of one pod on the host: a small memory file system with the launcher's private directory and its log."""

import contextlib
import os
import shutil
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent import handover, linux
from anyvisor.embedded.podrunner.mounts import Content, memory, write
from anyvisor.launcher import shim

SIZE: Final = 4 * 1024 * 1024
"""Bytes for sockets, serial log and standard error together; charged to the pod's memory, and full at worst."""
LAUNCHER: Final = "l"
LOG: Final = "log"
MOUNTS: Final = "m"
"""Below it, what the pod's volumes hold, at the paths where its container has them; for root alone."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Paths of one pod. `separate`: the launcher has a user of its own, and we may mount."""

    root: Path
    separate: bool

    @property
    def launcher_dir(self) -> Path:
        """The launcher's own directory; what lies in it is hostile."""
        return self.root / LAUNCHER

    @property
    def log(self) -> Path:
        """Standard output and error of launcher and VMM."""
        return self.root / LOG

    @property
    def mounts(self) -> Path:
        """What the pod's containers have mounted, by path."""
        return self.root / MOUNTS

    def create_mounts(self, content: Content) -> None:
        """Fill the pod's volumes, in memory where we may mount; nothing for a pod without."""
        if not content:
            return
        self.mounts.mkdir(mode=0o700)
        if self.separate:
            size, inodes = memory(content)
            with contextlib.suppress(PermissionError):
                linux.mount_tmpfs(str(self.mounts), size=size, mode=0o700, uid=0, gid=0, inodes=inodes)
        write(self.mounts, content)

    def create(self, user: int, group: int) -> None:
        """Make everything anew; what a crash of ours left here is removed first."""
        self.remove()
        self.root.mkdir(mode=0o711, parents=True)
        if self.separate:
            with contextlib.suppress(PermissionError):  # in a container that may not mount, a directory must do
                linux.mount_tmpfs(str(self.root), size=SIZE, mode=0o711, uid=0, gid=0)
        self.launcher_dir.mkdir(mode=0o700)
        if self.separate:
            os.chown(self.launcher_dir, user, group)

    def open_log(self) -> int:
        """The log, for the launcher to append to; the caller's to close."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.log, flags, 0o600)

    def open_launcher_dir(self) -> int:
        """The launcher's directory, opened by way of our own; the caller's to close."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.launcher_dir, flags)

    def waiting_shim(self) -> int:
        """The pid of a shim that waits here for a plan, 0 when none does."""
        try:
            directory = self.open_launcher_dir()
        except OSError:
            return 0
        try:
            inode = linux.openat2(directory, shim.SOCKET_NAME)
        except OSError:
            return 0
        finally:
            os.close(directory)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            if not stat.S_ISSOCK(os.fstat(inode).st_mode):
                return 0
            connection.setblocking(False)
            connection.connect(f"/proc/self/fd/{inode}")
            return handover.peer_of(connection)[0]
        except OSError:
            return 0
        finally:
            connection.close()
            os.close(inode)

    def remove(self) -> None:
        """Remove everything; nothing when there is nothing."""
        if self.separate:
            with contextlib.suppress(PermissionError):
                linux.unmount(str(self.root))
        shutil.rmtree(self.root, ignore_errors=True)
