"""The API server against etcd and kube-apiserver in one run: durable creates, watch latency, fan-out, lists.

Peers are interleaved with ours. Without the official programs only ours is measured, and the report says so.
"""

import asyncio
import base64
import contextlib
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.bench.apiserver_rig import NAME, VMIS, Connection, Target, etcd, machine, ours, spread, theirs
from tests.bench.measure import cpu_seconds, report

CLIENTS = (1, 8, 64)
CREATES = 600
ROUNDS = 2
WATCHERS = 1000
FANNED = 10
LISTED = 5000


@dataclass
class Peers:
    """What is measured side by side."""

    ours: Target
    etcd: Target | None
    theirs: Target | None
    why: str = ""


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(ours())
        try:
            port, pid = stack.enter_context(etcd())
            official = stack.enter_context(theirs())
            asyncio.run(etcd_answers(Target("etcd", port, None, [pid])))
        except pytest.skip.Exception as skipped:
            yield Peers(mine, None, None, f"without peers: {skipped.msg}")
            return
        yield Peers(mine, Target("etcd", port, None, [pid]), official)


async def etcd_answers(target: Target) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with Connection(target) as connection:
                    if (await connection.request("GET", "/health"))[0] == 200:
                        return
            except OSError:
                pass
            await asyncio.sleep(0.1)


async def creates(target: Target, clients: int, count: int, mark: str) -> tuple[float, float]:
    """Create VMIs; how many a second, and milliseconds of the server's CPU for each."""
    body = machine()

    async def create(connection: Connection, number: int) -> None:
        status, answer = await connection.request("POST", VMIS, body.replace(NAME, f"{mark}-{number}".encode()))
        assert status == 201, answer

    return await load(target, clients, count, create)


async def puts(target: Target, clients: int, count: int, mark: str) -> tuple[float, float]:
    """Raw puts of the same bytes by etcd's own gateway."""
    value = base64.b64encode(machine()).decode()

    async def put(connection: Connection, number: int) -> None:
        key = base64.b64encode(f"/registry/bench/{mark}-{number}".encode()).decode()
        status, answer = await connection.request(
            "POST", "/v3/kv/put", json.dumps({"key": key, "value": value}).encode()
        )
        assert status == 200, answer

    return await load(target, clients, count, put)


async def load(
    target: Target, clients: int, count: int, work: Callable[[Connection, int], Awaitable[None]]
) -> tuple[float, float]:
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(target)) for _ in range(clients)]
        before = cpu_seconds(target.pids)
        rate = await spread(count, clients, lambda client, number: work(connections[client], number))
        return rate, (cpu_seconds(target.pids) - before) / count * 1000


async def test_durable_creates(peers: Peers) -> None:
    lines = [peers.why] if peers.why else []
    for clients in CLIENTS:
        count = CREATES // 3 if clients == 1 else CREATES
        found: dict[str, list[tuple[float, float]]] = {"ours": [], "etcd": [], "kube": []}
        for turn in range(ROUNDS):
            mark = f"c{clients}-{turn}"
            found["ours"].append(await creates(peers.ours, clients, count, mark))
            if peers.etcd is not None and peers.theirs is not None:
                found["etcd"].append(await puts(peers.etcd, clients, count, mark))
                found["kube"].append(await creates(peers.theirs, clients, count, mark))
        best = {name: max(rate for rate, _ in series) for name, series in found.items() if series}
        cost = {name: min(cost for _, cost in series) for name, series in found.items() if series}
        words = ", ".join(f"{name} {best[name]:.0f}/s ({cost[name]:.2f} ms CPU)" for name in best)
        ratios = ", ".join(f"{best['ours'] / best[name]:.2f} x {name}" for name in ("etcd", "kube") if name in best)
        lines.append(f"{clients:>3} clients: {words}; ours is {ratios or 'alone'}")
    report("validated durable creates of VMIs (2.2 kB, TLS); etcd: raw puts by its gateway, no TLS", lines)
    assert lines


async def latencies(target: Target, count: int) -> list[float]:
    """Milliseconds from sending a POST until the event is read by a watcher."""
    body = machine()
    seen: dict[bytes, float] = {}
    arrived = asyncio.Event()

    async def read() -> None:
        async with Connection(target) as watching:
            async for chunk in watching.watch(f"{VMIS}?watch=true&resourceVersion={version}"):
                now = time.perf_counter()
                for line in chunk.splitlines():
                    seen[json.loads(line)["object"]["metadata"]["name"].encode()] = now
                arrived.set()

    async with Connection(target) as connection:
        _, listed = await connection.request("GET", f"{VMIS}?limit=1")
        version = json.loads(listed)["metadata"]["resourceVersion"]
        reader = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        found: list[float] = []
        for number in range(count):
            name = f"w{time.monotonic_ns()}-{number}".encode()
            start = time.perf_counter()
            await connection.request("POST", VMIS, body.replace(NAME, name))
            while name not in seen:
                arrived.clear()
                await asyncio.wait_for(arrived.wait(), 30)
            found.append((seen[name] - start) * 1000)
        reader.cancel()
    return sorted(found)


async def test_watch_latency(peers: Peers) -> None:
    lines = [peers.why] if peers.why else []
    for target in (peers.ours, peers.theirs):
        if target is not None:
            found = await latencies(target, 200)
            p50, p99 = statistics.median(found), found[int(len(found) * 0.99)]
            lines.append(f"{target.name:<16} min {found[0]:.2f}  p50 {p50:.2f}  p99 {p99:.2f} ms")
    report("POST of a VMI until its event is read, one watcher, TLS (the client's part is in it)", lines)
    assert lines


async def fan_out(target: Target, *, plain: bool) -> tuple[float, float]:
    """Median milliseconds until the first and the last of the watchers has an event."""
    body = machine()
    async with contextlib.AsyncExitStack() as stack:
        counts = [0] * WATCHERS
        times: dict[int, list[float]] = {}
        done = asyncio.Event()

        async def read(index: int, connection: Connection) -> None:
            async for chunk in connection.watch(f"{VMIS}?watch=true&resourceVersion={version}"):
                now = time.perf_counter()
                for _ in range(chunk.count(b'{"type":"ADDED"')):
                    counts[index] += 1
                    arrivals = times.setdefault(counts[index], [])
                    arrivals.append(now)
                    if len(arrivals) == WATCHERS:
                        done.set()

        writer = await stack.enter_async_context(Connection(target, plain=plain))
        _, listed = await writer.request("GET", f"{VMIS}?limit=1")
        version = json.loads(listed)["metadata"]["resourceVersion"]
        connections = [await stack.enter_async_context(Connection(target, plain=plain)) for _ in range(WATCHERS)]
        readers = [asyncio.create_task(read(index, each)) for index, each in enumerate(connections)]
        await asyncio.sleep(1)
        first: list[float] = []
        last: list[float] = []
        for number in range(FANNED):
            done.clear()
            start = time.perf_counter()
            await writer.request("POST", VMIS, body.replace(NAME, f"f{time.monotonic_ns()}".encode()))
            await asyncio.wait_for(done.wait(), 60)
            arrivals = times[number + 1]
            first.append((min(arrivals) - start) * 1000)
            last.append((max(arrivals) - start) * 1000)
        for reader in readers:
            reader.cancel()
        return statistics.median(first), statistics.median(last)


async def test_fan_out(peers: Peers) -> None:
    lines = [peers.why] if peers.why else []
    for words, target, plain in (
        ("ours, TLS", peers.ours, False),
        ("ours, without TLS", peers.ours, True),
        ("kube-apiserver, TLS", peers.theirs, False),
    ):
        if target is not None:
            first, last = await fan_out(target, plain=plain)
            lines.append(f"{words:<20} first {first:.1f}, last {last:.1f} ms after the POST")
    report(f"one event to {WATCHERS} watchers (the client reads them all on one core)", lines)
    assert lines


async def listing(target: Target) -> tuple[list[float], int]:
    """Milliseconds of some lists of all VMIs, and the bytes of one."""
    body, mark = machine(6000), f"l{time.monotonic_ns()}"
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(target)) for _ in range(16)]

        async def create(client: int, number: int) -> None:
            made = body.replace(NAME, f"{mark}-{number}".encode())
            status, answer = await connections[client].request("POST", VMIS, made)
            assert status == 201, answer

        await spread(LISTED, 16, create)
        found: list[float] = []
        listed = b""
        for _ in range(5):
            start = time.perf_counter()
            _, listed = await connections[0].request("GET", f"{VMIS}?labelSelector=size%3Dlarge")
            found.append((time.perf_counter() - start) * 1000)
        return sorted(found), len(listed)


async def test_list(peers: Peers) -> None:
    lines = [peers.why] if peers.why else []
    for target in (peers.ours, peers.theirs):
        if target is not None:
            found, size = await listing(target)
            shown = f"{found[0]:.0f} ms (median {statistics.median(found):.0f}), {size / 1e6:.1f} MB"
            lines.append(f"{target.name:<16} {shown}")
    report(f"list of {LISTED} VMIs of 6 kB, TLS, no compression", lines)
    assert lines
