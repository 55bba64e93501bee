"""The API server alone: start, memory, idle watches, and what a write costs with many objects."""

import asyncio
import contextlib
import json
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.bench.apiserver_rig import NAME, VMIS, Connection, Target, machine, ours, spread, theirs
from tests.bench.measure import cpu_seconds, proportional_memory, report, row

STARTS = 5
IDLE_SECONDS = 10
IDLE_WATCHES = 500
COUNTS = (0, 1_000, 10_000)
FEW, MANY, SAMPLE = 1_000, 100_000, 500


def test_start() -> None:
    place = Path(tempfile.mkdtemp(prefix="av-bench-", dir="/tmp"))
    try:
        with ours(place):
            pass  # fills the cache of compiled modules, which an installation has
        shutil.rmtree(place / "control")
        series: list[float] = []
        first = 0.0
        for number in range(STARTS + 1):
            with ours(place) as target:
                series.append(target.started * 1000)
            first = series.pop() if number == 0 else first
    finally:
        shutil.rmtree(place)
    lines = [f"first start (empty database) {first:.0f} ms", row("later starts: process until ready", series)]
    with contextlib.suppress(pytest.skip.Exception), theirs() as official:
        lines.append(f"etcd and kube-apiserver, with their certificates {official.started * 1000:.0f} ms")
    report("start until ready: our API server as a process of its own", lines)
    assert series


async def fill(target: Target, start: int, end: int, path: str, body: bytes) -> None:
    """Create objects with the numbers from `start` to `end`."""
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(target, plain=True)) for _ in range(8)]

        async def create(client: int, number: int) -> None:
            status, answer = await connections[client].request(
                "POST", path, body.replace(NAME, f"o{start + number}".encode())
            )
            assert status == 201, answer

        await spread(end - start, 8, create)


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CONFIG_MAP = b'{"metadata":{"name":"%s"},"data":{"k":"%s"}}' % (NAME, b"x" * 1000)


def test_memory() -> None:
    lines: list[str] = []
    with ours() as target:
        there = 0
        for count in COUNTS:
            asyncio.run(fill(target, there, count, VMIS, machine()))
            there = count
            lines.append(f"{count:>6} VMIs of 3.4 kB: PSS {proportional_memory(target.pids):.1f} MiB")
    with contextlib.suppress(pytest.skip.Exception), theirs() as official:
        lines.append(f"kube-apiserver and etcd, empty: PSS {proportional_memory(official.pids):.1f} MiB")
    report("memory of the API server (a process of its own, nothing shared)", lines)
    assert lines


def test_idle_watches() -> None:
    with ours() as target:
        asyncio.run(fill(target, 0, 100, VMIS, machine()))
        alone, watched, memory = asyncio.run(idle(target))
    per_watch = (watched - alone) / IDLE_WATCHES * 1000
    report(
        f"{IDLE_WATCHES} idle TLS watches with bookmarks",
        [
            f"CPU {alone:.2f} ms/s without, {watched:.2f} with: {per_watch:.1f} us/s a watch",
            f"memory {memory / IDLE_WATCHES * 1024:.0f} KiB a watch",
        ],
    )


async def idle(target: Target) -> tuple[float, float, float]:
    """Milliseconds of CPU a second without and with watches, and MiB that they take."""

    async def cost() -> float:
        before = cpu_seconds(target.pids)
        await asyncio.sleep(IDLE_SECONDS)
        return (cpu_seconds(target.pids) - before) / IDLE_SECONDS * 1000

    async with Connection(target) as connection:
        _, listed = await connection.request("GET", f"{VMIS}?limit=1")
    version = json.loads(listed)["metadata"]["resourceVersion"]

    async def watch(connection: Connection) -> None:
        async for _ in connection.watch(f"{VMIS}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"):
            pass

    alone, empty = await cost(), proportional_memory(target.pids)
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(target)) for _ in range(IDLE_WATCHES)]
        tasks = [asyncio.create_task(watch(connection)) for connection in connections]
        await asyncio.sleep(2)
        watched, full = await cost(), proportional_memory(target.pids)
        for task in tasks:
            task.cancel()
    return alone, watched, full - empty


@pytest.mark.timeout(1200)
def test_growth() -> None:
    """What one write costs at first and with a hundred times the objects."""
    found: list[tuple[int, float, float]] = []
    with ours() as target:
        there = 0
        for count in (FEW, MANY):
            asyncio.run(fill(target, there, count, CONFIG_MAPS, CONFIG_MAP))
            before, start = cpu_seconds(target.pids), time.perf_counter()
            asyncio.run(fill(target, count, count + SAMPLE, CONFIG_MAPS, CONFIG_MAP))
            wall = (time.perf_counter() - start) / SAMPLE * 1000
            found.append((count, (cpu_seconds(target.pids) - before) / SAMPLE * 1000, wall))
            there = count + SAMPLE
        memory = proportional_memory(target.pids)
    lines = [f"at {count:>7} objects: {cpu:.2f} ms CPU, {wall:.2f} ms" for count, cpu, wall in found]
    lines.append(f"ratio {found[1][1] / found[0][1]:.2f}; PSS with {MANY} ConfigMaps of 1 kB {memory:.0f} MiB")
    report("cost of one write (ConfigMap of 1 kB, 8 clients)", lines)
    assert len(found) == 2
