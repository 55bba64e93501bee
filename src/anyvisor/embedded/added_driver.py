"""The process of a driver that was added: another program, confined as the drivers of this repository are.

It runs as a user that no other driver has, cannot gain privileges, sees of a closed data directory its own folder and
state alone, has an empty environment, and binds its two sockets itself in a directory that is its own.
"""

import os
from pathlib import Path
from typing import NoReturn

from anyvisor.embedded import confine, driver_process, system
from anyvisor.embedded.instance import Instance
from anyvisor.hri.folders import DriverFolder

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def place(instance: Instance, node: str, folder: DriverFolder) -> Path:
    """Where the sockets of this version are; short, as a socket's path has at most 107 bytes."""
    return driver_process.directory(instance, node, f"{folder.name[:40]}-{folder.version[:12]}")


def run(instance: Instance, node: str, folder: DriverFolder) -> NoReturn:
    """Become the driver."""
    user = instance.users.added(folder.name)
    sockets, state = place(instance, node, folder), instance.node_dir(node) / "drivers" / folder.name
    for path, mode in ((sockets, 0o711), (state, 0o700)):
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        os.chown(path, user, user)
    for name in ("hri.sock", "fd.sock"):
        (sockets / name).unlink(missing_ok=True)
    confine.become(user, [state, folder.directory], system.device_groups())
    os.chdir(folder.directory)
    os.umask(0o077)
    command = folder.command(str(sockets / "hri.sock"), str(sockets / "fd.sock"))
    environment = {"PATH": _SYSTEM_PATH, "HOME": str(state), "TMPDIR": str(state), "LANG": "C.UTF-8"}
    os.execve(command[0], command, environment)
