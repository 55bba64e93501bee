"""Processes that are not our children: held by pidfd, recognized over a restart of ours, never mistaken for others."""

import asyncio
import contextlib
import os
import re
import select
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent import linux

_UNLIMITED: Final = 1 << 62
"""A limit of a cgroup v1 from here on is none."""
_PROC: Final = Path("/proc")
_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
REAPED_MILLISECONDS: Final = 1000
"""How long a parent may take to reap its child; after that nobody learns how it ended."""


def boot_id() -> str:
    """The id of this boot of the host."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for all time: a pid is reused, a pid with its start time in one boot is not."""

    boot_id: str
    pid: int
    start_time: int
    """Clock ticks since boot: field 22 of /proc/PID/stat."""


def start_time(pid: int) -> int | None:
    """When the process began; None when there is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    return int(stat.rpartition(")")[2].split()[19])


def identify(pid: int, pidfd: int) -> ProcessIdentity | None:
    """Name the process of a pidfd that is still running."""
    began = start_time(pid)
    if began is None or has_ended(pidfd):
        return None
    return ProcessIdentity(boot_id(), pid, began)


def open_process(identity: ProcessIdentity, current_boot: str | None = None) -> int | None:
    """A pidfd of exactly this process; None when it is gone. The pidfd is the caller's to close.

    Another boot means gone, and so does another start time: the pid then belongs to somebody else.
    """
    if identity.boot_id != (current_boot or boot_id()) or identity.pid <= 0:
        return None
    try:
        pidfd = os.pidfd_open(identity.pid)
    except (ProcessLookupError, OSError):
        return None
    if start_time(identity.pid) == identity.start_time and not has_ended(pidfd):
        return pidfd
    os.close(pidfd)
    return None


def has_ended(pidfd: int) -> bool:
    """Whether the process of the pidfd is gone or a zombie."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def send_signal(pidfd: int, number: signal.Signals) -> None:
    """Signal the process, whatever its pid is now; nothing when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: one of both is set, or none when nobody can know."""

    code: int | None = None
    signal: int | None = None

    def sentence(self) -> str:
        """Say it in words."""
        if self.signal is not None:
            name = signal.Signals(self.signal).name if self.signal in set(signal.Signals) else "unknown"
            return f"it was ended by signal {self.signal} ({name})"
        if self.code is not None:
            return f"it ended with exit code {self.code}"
        return "nobody saw how it ended"


async def exit_of(pidfd: int) -> Exit:
    """How the process of the pidfd ended, as far as the kernel tells.

    It tells once the parent has reaped the process, which is a moment after the pidfd became readable.
    """
    if linux.pidfd_exit_status(pidfd) is None:
        await asyncio.to_thread(_wait_reaped, pidfd)
    status = linux.pidfd_exit_status(pidfd)
    if status is None:
        return Exit()
    code = os.waitstatus_to_exitcode(status)
    return Exit(signal=-code) if code < 0 else Exit(code=code)


def _wait_reaped(pidfd: int) -> None:
    poller = select.poll()
    poller.register(pidfd, 0)  # nothing but POLLHUP, which is always told
    poller.poll(REAPED_MILLISECONDS)


def memory_cgroup(pid: int) -> str:
    """The directory that accounts the memory of a process, v1 or v2; empty when it cannot be told."""
    try:
        lines = (_PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return ""
    unified = ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return str(_CGROUP_ROOT / "memory" / path.lstrip("/"))
        if not controllers:
            base = _CGROUP_ROOT if (_CGROUP_ROOT / "cgroup.controllers").exists() else _CGROUP_ROOT / "unified"
            unified = str(base / path.lstrip("/"))
    return unified


def memory_is_limited(pid: int) -> bool:
    """Whether the process' own cgroup has a limit of memory, v1 or v2; also when it cannot be told."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with contextlib.suppress(OSError):
            text = (Path(memory_cgroup(pid)) / name).read_text().strip()
            return text != "max" and int(text) < _UNLIMITED
    return True


def out_of_memory_kills(cgroup: str) -> int:
    """How many processes of the cgroup the kernel killed for memory; 0 when it does not tell."""
    for name in ("memory.events", "memory.oom_control"):
        try:
            text = (Path(cgroup) / name).read_text()
        except OSError:
            continue
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        if found:
            return int(found[1])
    return 0
