"""A program of its own that opens one device as a container may: `opener.py PID SOCKET DEVICE FLAGS`.

The kernel lets a process open the devices of its control group only, and the agent's own allows no disks. So this
short process joins the control group of the container that the device was given to, opens what descriptor DEVICE
stands for (opened with O_PATH by the agent, following no link), and sends the result over descriptor SOCKET. It ends
at once; the agent itself gains nothing. Only the standard library: it is started on its own.
"""

import ctypes
import os
import socket
import sys
from pathlib import Path

HOST = 1
"""The host's first process: its view of control groups is not that of a container."""
CLONE_NEWCGROUP = 0x02000000
GROUPS = "sys/fs/cgroup"


def main(arguments: list[str]) -> int:
    """Join, open, send. The sentence of a failure goes to the standard error."""
    pid, channel, device, flags = map(int, arguments)
    try:
        _see_all_groups()
        _join(pid)
        opened = os.open(f"/proc/self/fd/{device}", flags | os.O_CLOEXEC)
    except OSError as error:
        sys.stderr.write(error.strerror or str(error))
        return error.errno or 1
    with socket.socket(fileno=channel) as connection:
        socket.send_fds(connection, [b"device"], [opened])
    return 0


def _see_all_groups() -> None:
    """Paths of control groups are then told from the host's root, not from our own container's."""
    namespace = os.open(f"/proc/{HOST}/ns/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWCGROUP):
        number = ctypes.get_errno()
        raise OSError(number, f"the host's control groups cannot be seen: {os.strerror(number)}")
    os.close(namespace)


def _join(pid: int) -> None:
    """Join the group that decides on devices: that of the v1 hierarchy, else the only one."""
    root = Path(f"/proc/{HOST}/root") / GROUPS
    group = device_group(Path(f"/proc/{pid}/cgroup").read_text())
    (root / group / "cgroup.procs").write_text(str(os.getpid()))


def device_group(listed: str) -> str:
    """Where the group is below the mounted hierarchies, from /proc/PID/cgroup; raises OSError for none."""
    unified = ""
    for line in listed.splitlines():
        number, controllers, path = line.split(":", 2)
        if "devices" in controllers.split(","):
            return f"devices{path}"
        if number == "0" and not controllers:
            unified = path.lstrip("/")
    if not unified:
        raise OSError("the container has no control group")
    return unified


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
