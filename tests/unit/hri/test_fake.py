"""The fake driver's books, its guests and its faults to order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from anyvisor.hri.client import outcome
from anyvisor.hri.errors import DriverUnavailable, Refused
from anyvisor.hri.fake import create_driver
from anyvisor.hri.fake.faults import FaultError, Faults, parse
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, ChangeMedia, ResizeDisk, SetCpu, SetLink, SetMemory
from anyvisor.hri.v1.machine_spec_pb2 import Cpu, Disk, Lifecycle, Machine, Memory, Nic, VolumeHandle
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_GUEST_REBOOT,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_PANIC,
    PHASE_CRASHED,
    PHASE_PAUSED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    PHASE_STOPPING,
)

Start = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", Faults()),
        ("slow=start:0.5,slow=stop:2", Faults(slow={"start": 0.5, "stop": 2.0})),
        ("flaky=prepare:3", Faults(flaky={"prepare": 3})),
        ("hang=stop,crash=apply", Faults(hang=frozenset({"stop"}), crash=frozenset({"apply"}))),
        ("lie=echo,lie=state", Faults(lies=frozenset({"echo", "state"}))),
        ("minor=1-4", Faults(minor=(1, 4))),
        ("minor=9,gaps=4,flood=7", Faults(minor=(9, 9), gaps=4, flood=7)),
        ("leak,amnesia,stale,skips", Faults(leak=True, amnesia=True, stale=True, skips=True)),
    ],
)
def test_faults_are_read(text: str, faults: Faults):
    assert parse(text) == faults


@pytest.mark.parametrize("text", ["magic", "slow=start", "slow=dance:1", "lie=white", "minor=x", "leak=1", "hang="])
def test_what_orders_no_fault(text: str):
    with pytest.raises(FaultError):
        parse(text)


def machine(**more: Any) -> Machine:
    return Machine(
        id="m",
        cpu=Cpu(sockets=1, max_sockets=4),
        memory=Memory(size_bytes=1 << 27, max_bytes=1 << 29),
        disks=[Disk(id="root", volume=VolumeHandle(size_bytes=1 << 30))],
        nics=[Nic(id="net0")],
        **more,
    )


async def run(served: Any, spec: Machine) -> None:
    await served.client.prepare(spec, [], generation=1)
    await served.client.start("m", generation=1)


@pytest.mark.parametrize(
    ("change", "addresses"),
    [
        (ApplyRequest(attach_disk=Disk(id="data")), 3),
        (ApplyRequest(detach_disk="root"), 1),
        (ApplyRequest(resize_disk=ResizeDisk(disk_id="root", size_bytes=1 << 31)), 2),
        (ApplyRequest(change_media=ChangeMedia(disk_id="root", tray_open=True)), 2),
        (ApplyRequest(attach_nic=Nic(id="net1")), 3),
        (ApplyRequest(detach_nic="net0"), 1),
        (ApplyRequest(set_link=SetLink(nic_id="net0", up=False)), 2),
        (ApplyRequest(set_cpu=SetCpu(sockets=4)), 2),
        (ApplyRequest(set_memory=SetMemory(size_bytes=1 << 28)), 2),
    ],
)
async def test_changes_are_entered(serve: Start, change: ApplyRequest, addresses: int):
    served = await serve()
    await run(served, machine())
    assert outcome(await served.client.apply("m", change, generation=1)) is None
    state = await served.client.inspect("m")
    assert len(state.devices) == len({device.address for device in state.devices}) == addresses


@pytest.mark.parametrize(
    "change",
    [
        ApplyRequest(attach_disk=Disk(id="root")),
        ApplyRequest(detach_disk="ghost"),
        ApplyRequest(resize_disk=ResizeDisk(disk_id="root", size_bytes=1)),
        ApplyRequest(set_cpu=SetCpu(sockets=5)),
        ApplyRequest(set_memory=SetMemory(size_bytes=1 << 40)),
        ApplyRequest(detach_device="rng"),
    ],
)
async def test_changes_that_contradict_the_books_are_refused(serve: Start, change: ApplyRequest):
    served = await serve()
    await run(served, machine())
    assert isinstance(outcome(await served.client.apply("m", change, generation=1)), Refused)


@pytest.mark.parametrize(
    ("end", "phase", "reason"),
    [("shutdown", PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN), ("panic", PHASE_CRASHED, END_REASON_PANIC)],
)
async def test_a_guest_ends_by_itself(serve: Start, end: str, phase: int, reason: int):
    served = await serve()
    await run(served, machine(parameters={"runSeconds": "1", "end": end}))
    async with aclosing(served.client.events()) as events:
        async for event in events:
            if event.state.phase == phase:
                assert event.state.end_reason == reason
                break


async def test_a_stubborn_guest_ignores_the_button(serve: Start):
    served = await serve()
    await run(served, machine(parameters={"stubborn": "true"}))
    await served.client.stop("m", generation=1)
    assert (await served.client.inspect("m")).phase == PHASE_STOPPING
    await served.client.stop("m", generation=1, force=True)
    assert (await served.client.inspect("m")).phase == PHASE_STOPPED


async def test_a_reboot_ends_the_machine_where_it_is_to(serve: Start):
    served = await serve()
    await run(served, machine(lifecycle=Lifecycle(on_reboot=Lifecycle.ON_REBOOT_STOP)))
    await served.client.stop("m", generation=1, reboot=True)
    state = await served.client.inspect("m")
    assert (state.phase, state.end_reason) == (PHASE_STOPPED, END_REASON_GUEST_REBOOT)


async def test_a_reboot_in_place_goes_on(serve: Start):
    served = await serve()
    await run(served, machine())
    await served.client.reset("m", generation=1)
    assert (await served.client.inspect("m")).phase == PHASE_RUNNING
    assert served.driver.guests["m"].boots == 2


async def test_a_machine_starts_paused(serve: Start):
    served = await serve()
    await run(served, machine(lifecycle=Lifecycle(start_paused=True)))
    assert (await served.client.inspect("m")).phase == PHASE_PAUSED


async def test_places_that_are_asked_for_are_kept(serve: Start):
    served = await serve()
    spec = machine()
    spec.nics[0].pci_address = "0000:01:00.0"
    planned = await served.client.prepare(spec, [], generation=1)
    assert {d.id: d.address for d in planned.devices} == {"net0": "0000:01:00.0", "root": "0000:02:00.0"}


async def test_flaky_calls_fail_now_and_then(serve: Start):
    served = await serve(Faults(flaky={"inspect": 2}))
    await run(served, machine())
    seen: list[bool] = []
    for _ in range(4):
        try:
            await served.client.inspect("m")
            seen.append(True)
        except DriverUnavailable:
            seen.append(False)
    assert seen == [False, True, False, True]


async def test_health_is_reported_as_it_changes(serve: Start):
    served = await serve()
    async with aclosing(served.client.watch_node()) as facts:
        assert (await anext(facts)).health == NodeFacts.HEALTH_HEALTHY
        served.driver.set_health(False)
        sick = await anext(facts)
    assert (sick.health, sick.conditions[0].message) == (
        NodeFacts.HEALTH_UNHEALTHY,
        "the fake driver was told to be sick",
    )
    assert not (await served.client.probe()).ready


async def test_a_thousand_machines(serve: Start):
    served = await serve()
    names = [f"m-{number}" for number in range(1000)]
    for batch in range(0, 1000, 100):
        await asyncio.gather(
            *(served.client.prepare(Machine(id=name), [], generation=1) for name in names[batch : batch + 100])
        )
    assert len(served.server.core.machines) == 1000
    await asyncio.gather(*(served.client.destroy(name, generation=1) for name in names[:100]))
    assert len(served.server.core.machines) == 900
    assert len(served.server.core._locks) == 900
    assert served.server.core.operations._running == {}


def test_the_entry_point_gives_a_driver():
    assert create_driver().info.driver == "fake.anyvisor.io"
