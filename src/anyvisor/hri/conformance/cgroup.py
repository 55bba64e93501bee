"""A memory control group of our own, of either version: what a VMM really needs, and an end for lack of memory."""

import contextlib
import itertools
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

ROOT: Final = Path("/sys/fs/cgroup")
_REMOVE_SECONDS: Final = 5.0
_COUNT: Final = itertools.count(1)


class CgroupError(Exception):
    """None can be made here; the message says why."""


class Cgroup:
    """A context manager that removes the group; the processes in it must have ended."""

    def __init__(self, name: str) -> None:
        self._v1 = (ROOT / "memory").is_dir()
        parent = ROOT / "memory" if self._v1 else ROOT
        self._path = parent / name
        try:
            self._path.mkdir()
            if not self._file("peak").exists():
                self._path.rmdir()
                raise CgroupError(f"{parent} counts no peak of memory")
        except OSError as error:
            raise CgroupError(f"no control group can be made below {parent}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = time.monotonic() + _REMOVE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                self._path.rmdir()
                return
            time.sleep(0.05)

    @property
    def procs(self) -> str:
        """The file that a process writes its pid to."""
        return str(self._path / "cgroup.procs")

    def peak(self) -> int:
        """The most that was charged at a time, in bytes."""
        return int(self._file("peak").read_text())

    def unmapped_cache(self) -> int:
        """Page cache that no process has mapped: the kernel takes it back before it lacks memory."""
        stat = dict(line.split() for line in (self._path / "memory.stat").read_text().splitlines())
        prefix = "total_" if self._v1 else ""
        files = int(stat.get(f"{prefix}active_file", "0")) + int(stat.get(f"{prefix}inactive_file", "0"))
        return max(files - int(stat.get(f"{prefix}mapped_file" if self._v1 else "file_mapped", "0")), 0)

    def usage(self) -> int:
        """What is charged now."""
        return int(self._file("usage").read_text())

    def limit(self, size: int) -> None:
        """Allow so much, without swap where that can be said."""
        self._file("limit").write_text(str(size))
        with contextlib.suppress(OSError):
            (self._path / ("memory.memsw.limit_in_bytes" if self._v1 else "memory.swap.max")).write_text(
                str(size) if self._v1 else "0"
            )

    def _file(self, what: str) -> Path:
        names = {
            "peak": ("memory.max_usage_in_bytes", "memory.peak"),
            "usage": ("memory.usage_in_bytes", "memory.current"),
            "limit": ("memory.limit_in_bytes", "memory.max"),
        }
        return self._path / names[what][0 if self._v1 else 1]


def name_for(machine: str) -> str:
    """A name that no other run has, nor an earlier machine of this one, whose group may still be there."""
    return f"anyvisor-{os.getpid()}-{next(_COUNT)}-{machine}"
