"""Numbers of one run: interleaved repeats, medians, ratios. Nothing here fails a test for being slow."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def milliseconds(start: float) -> float:
    """Since `start` (monotonic seconds)."""
    return (time.perf_counter() - start) * 1000


def row(name: str, values: Sequence[float]) -> str:
    """min, median and worst of one series, in milliseconds."""
    ordered = sorted(values)
    return f"{name:<44} min {ordered[0]:8.1f}   median {statistics.median(ordered):8.1f}   max {ordered[-1]:8.1f} ms"


def report(title: str, lines: Iterable[str]) -> None:
    """Print a block that `make bench` shows."""
    load = os.getloadavg()[0]
    print(f"\n== {title} (load {load:.1f})")
    for line in lines:
        print(f"   {line}")


def wait_until(done: Callable[[], bool], seconds: float = 60, step: float = 0.0002) -> None:
    """Poll finely: the price is the bench's own, on a core that the measured process does not need."""
    deadline = time.perf_counter() + seconds
    while not done():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not so after {seconds:.0f} s")
        time.sleep(step)


def has_content(path: Path) -> bool:
    """Whether a file exists and is not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def proportional_memory(pids: Iterable[int]) -> float:
    """PSS of processes, in MiB."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of processes so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
