"""What the seam costs: a machine's life over the HRI against the same driver in process, and a driver's memory."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from anyvisor.hri.client import HriClient
from anyvisor.hri.conformance.process import driver_process
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.core import Core
from anyvisor.hri.kit.server import DriverServer
from anyvisor.hri.v1.machine_pb2 import DestroyRequest, Mutation, PrepareRequest, StartRequest
from anyvisor.hri.v1.machine_spec_pb2 import Console, Cpu, Disk, Machine, Memory, Nic
from tests.bench.measure import proportional_memory, report, row

ROUNDS = 60
AIM_MS = 6.0
"""Of the whole seam, of one machine's start; three calls are measured here."""
MACHINES = 100
AIM_KIB = 64.0
"""Of a driver's memory, for each machine that it holds."""


def machine(name: str) -> Machine:
    return Machine(
        id=name,
        cpu=Cpu(sockets=1, cores=2, threads=1),
        memory=Memory(size_bytes=1 << 30),
        disks=[Disk(id="root"), Disk(id="data"), Disk(id="seed")],
        nics=[Nic(id="default", mac="02:00:00:00:00:01")],
        consoles=[Console(id="serial0", log_handle="log")],
    )


async def by_wire(client: HriClient, name: str) -> None:
    await client.prepare(machine(name), ["disk.bus", "nic.model"], generation=1)
    await client.start(name, generation=1)
    await client.destroy(name, generation=1)


async def in_process(core: Core, name: str) -> None:
    def mutation(step: str) -> Mutation:
        return Mutation(machine_id=name, operation_id=f"{name}-{step}", generation=1, minor=1)

    await core.prepare(PrepareRequest(mutation=mutation("p"), machine=machine(name), needs=["disk.bus", "nic.model"]))
    await core.start(StartRequest(mutation=mutation("s")))
    await core.destroy(DestroyRequest(mutation=mutation("d")))


async def timed(life: Callable[[str], Awaitable[None]], name: str) -> float:
    begin = time.perf_counter()
    await life(name)
    return (time.perf_counter() - begin) * 1000


async def test_a_life_over_the_wire_and_in_process(rundir: Path):
    wire: list[float] = []
    near: list[float] = []
    async with (
        DriverServer(FakeDriver(), rundir / "hri", rundir / "fd"),
        HriClient(rundir / "hri", rundir / "fd") as client,
        Core(FakeDriver()) as core,
    ):
        await client.connect()
        for number in range(ROUNDS):
            wire.append(await timed(lambda name: by_wire(client, name), f"w-{number}"))
            near.append(await timed(lambda name: in_process(core, name), f"n-{number}"))
    seam = sorted(wire)[ROUNDS // 2] - sorted(near)[ROUNDS // 2]
    lines = [row("Prepare, Start, Destroy over the HRI", wire), row("the same in process", near)]
    report("seam of a driver", [*lines, f"the seam: {seam:.1f} ms (aim {AIM_MS} ms), client and server in one process"])
    assert seam < 10 * AIM_MS


async def test_memory_of_a_driver_for_each_machine(rundir: Path):
    command = f"{sys.executable} -m anyvisor.hri.fake --hri {{hri}} --fd {{fd}}"
    hri, fd = str(rundir / "hri"), str(rundir / "fd")
    async with driver_process(command, hri, fd) as process, HriClient(hri, fd) as client:
        await client.connect()
        await asyncio.gather(*(client.probe() for _ in range(8)))
        before = proportional_memory([process.pid])
        for number in range(MACHINES):
            await client.prepare(machine(f"m-{number}"), ["disk.bus"], generation=1)
            await client.start(f"m-{number}", generation=1)
        after = proportional_memory([process.pid])
    each = (after - before) * 1024 / MACHINES
    report(
        "memory of a driver",
        [f"idle {before:.1f} MiB, {MACHINES} machines {after:.1f}: {each:.0f} KiB each (aim {AIM_KIB:.0f})"],
    )
    assert each < 4 * AIM_KIB
