"""Files that a VMM opens by name while it runs: volumes, bound over an empty file in the launcher's directory.

What lies in that directory is the launcher's and hostile, so a file is made anew, and bound over by its own inode: no
link can lead elsewhere. A launcher in a mount namespace of its own (a pod of a cluster) would not see it.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

from anyvisor.agent import access, linux
from anyvisor.agent.launchers import Launcher, LauncherError

CAPABILITY: Final = "ops.placed"
"""Of a driver whose VMM opens volumes by name while it runs."""
_FLAGS: Final = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def place(launcher: Launcher, name: str, descriptor: int) -> None:
    """Have the open volume under `name` in the launcher's directory, with the launcher's right to open it.

    Raises:
        LauncherError: the volume cannot be shown there; the message says why.
    """
    if os.readlink(f"/proc/{launcher.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
        raise LauncherError(
            "its VMM opens disks by name, and the launcher has a file system of its own here, where none can be shown; "
            "restart the VM to have the disk"
        )
    remove(launcher, name)
    try:
        access.grant(descriptor, launcher.uid)
        made = os.open(name, _FLAGS, 0o600, dir_fd=launcher.directory)
        try:
            linux.bind(f"/proc/self/fd/{descriptor}", f"/proc/self/fd/{made}")
        except OSError:
            os.unlink(name, dir_fd=launcher.directory)
            raise
        finally:
            os.close(made)
    except OSError as error:
        raise LauncherError(
            f"the volume cannot be shown to the launcher: {error.strerror}; run the agent as root, "
            "or restart the VM to have the disk"
        ) from error


def remove(launcher: Launcher, name: str) -> None:
    """Take it away; nothing when there is nothing. The end of the pod takes away what is left."""
    where = Path(f"/proc/self/fd/{launcher.directory}") / name
    with contextlib.suppress(OSError):
        linux.unmount(str(where))
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=launcher.directory)
