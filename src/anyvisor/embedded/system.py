"""Linux calls that Python 3.11 lacks. Imported before the zygote forks, so that a child loads nothing."""

import ctypes
import grp
import os
import pwd
import signal
import stat
from collections.abc import Iterable, Sequence

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS = 0x0002_0000
CLONE_NEWNET = 0x4000_0000
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_NO_NEW_PRIVS = 38
_MS_BIND = 0x1000
_MS_PRIVATE = 1 << 18
_MS_REC = 0x4000


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into a namespace (setns(2))."""
    _check(_libc.setns(descriptor, kind), "setns")


def unshare(flags: int) -> None:
    """Leave shared namespaces (unshare(2))."""
    _check(_libc.unshare(flags), "unshare")


def own_mounts() -> None:
    """Get a mount namespace of our own, whose changes nobody else sees."""
    unshare(CLONE_NEWNS)
    _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "make mounts private")


def bind(source: str, target: str) -> None:
    """Show the directory `source` at `target`, too."""
    _check(
        _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(_MS_BIND), None), f"bind {target}"
    )


def mount_empty(target: str) -> None:
    """Cover `target` with an empty directory that everybody may enter."""
    options = b"mode=0755,size=64k"
    _check(_libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", ctypes.c_ulong(0), options), f"cover {target}")


def set_name(name: str) -> None:
    """Set the name that `ps` and `top` show (15 bytes)."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Be killed when the parent ends: a component never outlives its supervisor."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        os._exit(0)


def forbid_new_privileges() -> None:
    """No set-uid program can raise this process's rights any more."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def device_groups(device: str = "/dev/kvm") -> list[int]:
    """The group that may use the device that virtualizes, where it is not everybody's; else none."""
    try:
        status = os.stat(device)
    except OSError:
        return []
    shared = stat.S_IRGRP | stat.S_IWGRP
    return [status.st_gid] if status.st_mode & shared == shared and status.st_gid != 0 else []


def uid_of(account: str) -> int:
    """The user id of an account; raises KeyError when the host has none of that name."""
    return pwd.getpwnam(account).pw_uid


def group_ids(names: Iterable[str]) -> list[int]:
    """The ids of those groups that the host has."""
    known = {entry.gr_name: entry.gr_gid for entry in grp.getgrall()}
    return [known[name] for name in names if name in known]


def become(uid: int, gid: int, groups: Sequence[int] = ()) -> None:
    """Drop to an unprivileged user for good; a no-op when it is already ours."""
    if os.geteuid() == uid:
        return
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
