"""What the interface costs with this driver: calls, plans, a machine's first byte, its end, its memory, the driver's.

Numbers, no verdicts: they belong to the machine that they were taken on, and stand beside the checks in the report.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.hri.conformance.running import END_SECONDS, GONE_SECONDS, booted
from anyvisor.hri.conformance.session import CheckFailedError, CheckSkippedError, Session
from anyvisor.hri.errors import HriError

CALLS: Final = 200
BOOTS: Final = 5
MACHINES: Final = 100
"""Planned at once, for the driver's memory of each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a bench. `value` is None where it could not be taken, and `note` says why."""

    id: str
    title: str
    unit: str
    value: float | None
    note: str = ""


Measure = Callable[[Session], Awaitable[Sequence[Figure]]]


async def run(session: Session) -> list[Figure]:
    """All figures, one measure after another."""
    found: list[Figure] = []
    for name, measure in (("calls", _calls), ("machine", _machine), ("driver", _driver)):
        try:
            found += await measure(session)
        except (CheckSkippedError, CheckFailedError, HriError, TimeoutError, OSError) as error:
            found.append(Figure(f"bench.{name}", "not measured", "", None, str(error)))
    return found


async def _calls(session: Session) -> list[Figure]:
    """The price of a call, and of planning a machine."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        await session.client.get_info()
    call = (time.perf_counter() - begin) / CALLS
    plans: list[float] = []
    for _ in range(CALLS // 4):
        machine = session.spec()
        begin = time.perf_counter()
        async with session.cleanup(machine.id):
            await session.client.prepare(machine, [], generation=1)
            plans.append(time.perf_counter() - begin)
    return [
        Figure("bench.call", "GetInfo, one after another", "ms", _ms(call)),
        Figure("bench.prepare", "Prepare of a small machine, median", "ms", _ms(statistics.median(plans))),
    ]


async def _machine(session: Session) -> list[Figure]:
    """From Prepare to the guest's first byte on its console, its VMM's memory, and from Destroy to the VMM's end."""
    first: list[float] = []
    ends: list[float] = []
    memory: list[float] = []
    for _ in range(BOOTS):
        begin = time.perf_counter()
        async with booted(session) as running:
            first.append(time.perf_counter() - begin)
            with contextlib.suppress(OSError):
                memory.append(resident_mib(running.launcher.pid))
            begin = time.perf_counter()
            await session.client.destroy(running.machine.id, generation=1)
            if not await running.launcher.ended(GONE_SECONDS):
                raise CheckFailedError(f"the VMM still runs {GONE_SECONDS:g} s after Destroy")
            ends.append(time.perf_counter() - begin)
    return [
        Figure("bench.first-byte", "Prepare to the guest's first byte, median", "ms", _ms(statistics.median(first))),
        Figure("bench.destroy", "Destroy to the end of the VMM, median", "ms", _ms(statistics.median(ends))),
        Figure(
            "bench.vmm-memory",
            "memory of the VMM with a small guest (proportional)",
            "MiB",
            round(statistics.median(memory), 1) if memory else None,
        ),
    ]


async def _driver(session: Session) -> list[Figure]:
    """The driver's own memory, idle and with many planned machines, and how many it plans a second."""
    pid = session.driver_pid()
    idle = resident_mib(pid)
    async with AsyncExitStack() as stack:
        machines = [session.spec() for _ in range(MACHINES)]
        for machine in machines:
            await stack.enter_async_context(session.cleanup(machine.id))
        begin = time.perf_counter()
        async with asyncio.timeout(END_SECONDS * 4):
            await asyncio.gather(*(session.client.prepare(machine, [], generation=1) for machine in machines))
        seconds = time.perf_counter() - begin
        each = (resident_mib(pid) - idle) * 1024 / MACHINES
    return [
        Figure("bench.plans", f"{MACHINES} machines planned at once", "a second", round(MACHINES / seconds, 1)),
        Figure("bench.driver-memory", "memory of the driver before (proportional)", "MiB", round(idle, 1)),
        Figure("bench.machine-memory", "memory of the driver for each machine", "KiB", round(max(each, 0.0), 1)),
    ]


def resident_mib(pid: int) -> float:
    """The proportional memory of a process (PSS), in MiB. Raises OSError where it is not ours to see."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/smaps_rollup has no Pss")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
