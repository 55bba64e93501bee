"""The helpers of a machine: programs that its launcher started beside the VMM.

They are found by the launcher's session, which they and nobody else share; the kernel does not give its number away
while one of them lives. So they are known after a restart of ours, too, without a record of their pids.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anyvisor.agent import linux, processes
from anyvisor.agent.records import HelperRecord, Record
from anyvisor.hri.v1.machine_pb2 import Helper

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 5.0
"""How long a helper may take to write its state once its VMM is gone."""
_PROC: Final = Path("/proc")

Member = tuple[tuple[str, ...], int]
"""Command line and pidfd of a process."""


class Helpers:
    """Watches the helpers of one machine, and waits for them at its end. Owns pidfds only."""

    def __init__(self, record: Callable[[], Record], ended: Callable[[HelperRecord], None]) -> None:
        self._record = record
        self._ended = ended
        self._watched: dict[int, HelperRecord] = {}
        """By pidfd."""
        self._followed = False

    async def follow(self) -> None:
        """Watch those that run; one that should and does not is told at once."""
        record = self._record()
        if not record.helpers or self._followed:
            return
        self._followed = True
        found = await asyncio.to_thread(_members, record.pid)
        loop = asyncio.get_running_loop()
        for helper in record.helpers:
            pidfd = _take(found, helper.program)
            if pidfd is None:
                self._ended(helper)
                continue
            self._watched[pidfd] = helper
            loop.add_reader(pidfd, self._gone, pidfd)
        for _, pidfd in found:
            os.close(pidfd)

    async def finished(self) -> None:
        """Wait until all are gone, now that the VMM is. Who takes too long is killed, if it was seen beside the VMM."""
        for pidfd, helper in list(self._watched.items()):
            asyncio.get_running_loop().remove_reader(pidfd)
            await _end(pidfd, helper.program, certain=True)
        self.close()
        record = self._record()
        if self._followed or not record.helpers or record.boot_id != processes.boot_id():
            return
        programs = {helper.program for helper in record.helpers}
        for words, pidfd in await asyncio.to_thread(_members, record.pid):
            try:
                if found := programs.intersection(words):
                    await _end(pidfd, found.pop(), certain=False)
            finally:
                os.close(pidfd)

    def close(self) -> None:
        """Watch no longer; no process is touched."""
        while self._watched:
            self._unwatch(next(iter(self._watched)))

    def _gone(self, pidfd: int) -> None:
        helper = self._watched[pidfd]
        self._unwatch(pidfd)
        self._ended(helper)

    def _unwatch(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        del self._watched[pidfd]
        os.close(pidfd)


def is_fatal(helper: HelperRecord) -> bool:
    """Whether the machine ends with it."""
    return helper.on_exit == Helper.ON_EXIT_FATAL


async def _end(pidfd: int, program: str, *, certain: bool) -> None:
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await linux.readable(pidfd)
    except TimeoutError:
        log.warning("%s has not ended %g s after its VMM", program, FLUSH_SECONDS)
        if certain:
            processes.send_signal(pidfd, signal.SIGKILL)
            await linux.readable(pidfd)


def _take(found: list[Member], program: str) -> int | None:
    for index, (words, _) in enumerate(found):
        if program in words:
            return found.pop(index)[1]
    return None


def _members(session: int) -> list[Member]:
    """Command line and pidfd of all processes of a session but its leader, the pidfds the caller's to close.

    A helper that another program becomes stands in that one's command line until then.
    """
    found: list[Member] = []
    for entry in os.listdir(_PROC):
        pid = int(entry) if entry.isdecimal() else session
        if pid == session or _session(pid) != session:
            continue
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(pid)
            if _session(pid) == session and not processes.has_ended(pidfd):
                found.append((_command(pid), pidfd))
            else:
                os.close(pidfd)
    return found


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _command(pid: int) -> tuple[str, ...]:
    try:
        return tuple(os.fsdecode((_PROC / str(pid) / "cmdline").read_bytes()).split("\0"))
    except OSError:
        return ()
