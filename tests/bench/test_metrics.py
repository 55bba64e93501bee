"""What a scrape of one node costs: 1,000 fake machines with two disks and a NIC each, by a real driver process seam."""

import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from anyvisor.agent.counters import HostCounters, LinkCounters, ThreadTimes
from anyvisor.agent.machine_metrics import render
from anyvisor.agent.stats import Sample, Samples
from anyvisor.hri.client import HriClient
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.server import DriverServer
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.stats_pb2 import MachineStats
from tests.bench.measure import report, row

MACHINES = 1000
REPEATS = 5
SCRAPE_SECONDS = 15
HOST = HostCounters(100.5, 20.25, 256 << 20, {0: ThreadTimes(90.125, 1.5)})
LINK = LinkCounters(1 << 30, 1 << 20, 0, 0, 1 << 28, 1 << 19, 0, 0)


def machine(number: int) -> Machine:
    made = Machine(id=f"m{number}", name=f"vm-{number}")
    made.cpu.sockets = made.cpu.cores = made.cpu.threads = 1
    made.memory.size_bytes = 64 << 20
    for disk in ("root", "data"):
        made.disks.add(id=disk)
    made.nics.add(id="default", mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}")
    return made


def sample(stats: MachineStats) -> Sample:
    labels = {"app": "web", "kubevirt.io/nodeName": "node1"}
    return Sample("default", stats.machine_id, labels, stats, HOST, {"default": LINK}, 64 << 20)


@pytest.mark.timeout(300)
async def test_a_scrape_of_a_thousand_machines(rundir: Path) -> None:
    asked: list[float] = []
    rendered: list[float] = []
    text = b""
    hri, fd = rundir / "h", rundir / "f"
    async with DriverServer(FakeDriver(), hri, fd), HriClient(hri, fd) as client:
        await client.connect()
        for number in range(MACHINES):
            made = machine(number)
            await client.prepare(made, [], generation=1)
            await client.start(made.id, generation=1)
        for _ in range(REPEATS):
            began = time.process_time()
            told = await client.get_stats()
            asked.append((time.process_time() - began) * 1000)
            assert len(told) == MACHINES
            began = time.process_time()
            text = render("node1", Samples([sample(each) for each in told]))
            rendered.append((time.process_time() - began) * 1000)
    lines = text.count(b"\n")
    cost = (sorted(asked)[REPEATS // 2] + sorted(rendered)[REPEATS // 2]) / 1000
    peer = _by_library(lines)
    report(
        f"a scrape of {MACHINES} machines: {lines} lines, {len(text) / 1e6:.1f} MB",
        [
            row("asking the driver (client and driver, CPU)", asked),
            row("rendering (CPU)", rendered),
            f"{'the same lines by prometheus_client (CPU)':<44} {peer:12.1f} ms = {peer / min(rendered):.1f} times",
            f"{'of one core, each 15 s':<44} {cost / SCRAPE_SECONDS:12.2%}",
        ],
    )


def _by_library(samples: int) -> float:
    registry = CollectorRegistry()
    names = ("node", "namespace", "name", "kubernetes_vmi_label_app", "kubernetes_vmi_label_kubevirt_io_nodeName")
    gauge = Gauge("peer", "The peer.", names, registry=registry)
    for number in range(samples):
        gauge.labels("node1", "default", str(number), "web", "node1").set(number)
    began = time.process_time()
    generate_latest(registry)
    return (time.process_time() - began) * 1000
