"""What the host counts for one VMM: its CPU time, memory and taps, from /proc alone. Blocks; to be run in a thread.

A process that ends meanwhile, or a file that an older kernel lacks, leaves its values out.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
NANO: Final = 1e-9


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """One tap, seen from the guest: received is what was sent into the guest."""

    received_bytes: int
    received_packets: int
    received_errors: int
    received_drops: int
    sent_bytes: int
    sent_packets: int
    sent_errors: int
    sent_drops: int


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Seconds that a thread ran, and that it was ready to run and had to wait."""

    run: float
    delay: float


@dataclass(frozen=True, slots=True)
class HostCounters:
    """Of one VMM."""

    user_seconds: float | None = None
    system_seconds: float | None = None
    resident_bytes: int | None = None
    threads: Mapping[int, ThreadTimes] = field(default_factory=dict[int, ThreadTimes])
    links: Mapping[str, LinkCounters] = field(default_factory=dict[str, LinkCounters])


def read(pid: int, threads: Iterable[int], *, links: bool) -> HostCounters:
    """All that /proc tells of a process. `links`: it is in a network namespace whose taps are ours."""
    place = _PROC / str(pid)
    user = system = None
    resident = None
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        user, system = int(fields[11]) / _TICKS, int(fields[12]) / _TICKS
        resident = int(fields[21]) * _PAGE
    times: dict[int, ThreadTimes] = {}
    for thread in threads:
        with contextlib.suppress(OSError, ValueError, IndexError):
            run, delay, *_ = (place / "task" / str(thread) / "schedstat").read_text().split()
            times[thread] = ThreadTimes(int(run) * NANO, int(delay) * NANO)
    found: dict[str, LinkCounters] = {}
    if links:
        with contextlib.suppress(OSError):
            found = parse_links((place / "net" / "dev").read_text())
    return HostCounters(user, system, resident, times, found)


def parse_links(text: str) -> dict[str, LinkCounters]:
    """The interfaces in /proc/PID/net/dev, turned around: what a tap received the guest has sent."""
    found: dict[str, LinkCounters] = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = [int(word) for word in rest.split()]
        if len(numbers) >= 12:
            received, sent = numbers[8:12], numbers[0:4]
            found[name.strip()] = LinkCounters(*received, *sent)
    return found
