"""kill -9 of each process of ours, at each step: no guest is harmed, none runs twice, all converges."""

import asyncio
import json
import os
import random
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from world import World, eventually

from anyvisor.kube.resources import VMIS

Json = dict[str, Any]


async def running(world: World, name: str = "k") -> tuple[str, int]:
    """A running machine: its id and the pid of its VMM."""
    vmi = await world.make(name)
    await world.phase(name, "Running")
    machine_id = vmi["metadata"]["uid"]
    (pid,) = world.starts(machine_id)
    return machine_id, pid


async def counts(world: World, machine_id: str) -> int:
    """The guest's counter, read from its console now."""

    path = f"/v1/machines/{machine_id}/streams/console"

    async def look() -> int:
        try:
            async with world.agent() as agent, agent.ws_connect(path) as console:
                await console.receive_bytes(timeout=5)
                text = await console.receive_bytes(timeout=5)
        except (aiohttp.ClientError, TypeError, TimeoutError):
            return 0
        lines = [line for line in text.split(b"\r\n") if line.startswith(b"tick ")]
        return int(lines[0].split()[1]) if lines else 0

    return await eventually("the guest counts", look)


async def deleted(world: World, name: str = "k") -> None:
    await world.client.patch(VMIS, name, "default", {"metadata": {"finalizers": ["test/hold"]}})
    await world.client.delete(VMIS, name, "default")


@pytest.mark.parametrize("victims", [("node",), ("driver",), ("zygote",), ("node", "driver", "zygote")])
async def test_a_running_guest_survives_and_is_adopted(world: World, victims: tuple[str, ...]):
    machine_id, pid = await running(world)
    before = await counts(world, machine_id)
    for victim in victims:
        world.kill(victim)
    for victim in reversed(victims):
        getattr(world, f"start_{victim}")()
    assert await counts(world, machine_id) > before
    assert world.starts(machine_id) == [pid]
    await deleted(world)
    await world.phase("k", "Succeeded")
    assert world.starts(machine_id) == [pid]


async def test_a_driver_that_comes_after_the_agent_is_given_what_runs(world: World):
    machine_id, pid = await running(world)
    world.kill("node")
    world.kill("driver")
    world.start_node()

    async def looked() -> bool:
        """Whether the agent has looked at its machines once."""
        try:
            async with world.agent() as agent, agent.get("/metrics") as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return False
        return re.search(r'work_duration_seconds_count\{name="machine"\} [1-9]', text) is not None

    async def known() -> bool:
        async with world.agent() as agent, agent.get("/v1/machines") as answer:
            rows = (await answer.json())["items"]
        return [(row["id"], row["state"]) for row in rows] == [(machine_id, "RUNNING")]

    await eventually("the agent looks", looked)
    assert not await known()
    world.start_driver()
    await eventually("the driver has the machine again", known)
    assert world.starts(machine_id) == [pid]


async def test_with_the_driver_gone_a_delete_still_ends_in_the_guests_own_shutdown(world: World):
    machine_id, pid = await running(world)
    world.kill("driver")
    await deleted(world)
    await world.phase("k", "Succeeded")
    await eventually("the VMM is gone", lambda: gone(pid))
    assert world.starts(machine_id) == [pid]


def command(pid: int) -> bytes:
    """The command line of a process; empty for a zombie and for none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def gone(pid: int) -> bool:
    return not command(pid)


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is not ours, and whose pid our records will name."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait()


def confuse(world: World, machine_id: str, **changes: Any) -> None:
    """Change what the records say of the process."""
    for path in (world.record(machine_id), *(world.root / "state" / "pods").glob("*/pod.json")):
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


async def test_a_guest_that_stops_while_nobody_looks_is_told_when_somebody_does(world: World):
    machine_id, pid = await running(world)
    world.kill("node")
    world.kill("driver")
    os.kill(pid, 9)
    await eventually("the VMM is gone", lambda: gone(pid))
    world.start_driver()
    world.start_node()
    failed = await world.phase("k", "Failed")
    assert "nobody saw" in str(failed["status"]["conditions"])
    assert world.starts(machine_id) == [pid]


async def killed_when(world: World, happened: Callable[[], Awaitable[bool]]) -> None:
    """Kill the node at this point, and start it again."""
    async with asyncio.timeout(20):
        while not await happened():
            await asyncio.sleep(0.001)
    world.kill("node")
    world.start_node()


async def test_killed_after_the_claim(world: World):
    vmi = await world.make_pod("k")
    await world.pod("k", "Running")
    await world.hand_over("k")

    async def claimed() -> bool:
        return "activePods" in (await world.get("k") or {})["status"]

    await killed_when(world, claimed)
    await world.phase("k", "Running")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_killed_when_the_record_is_written(world: World):
    vmi = await world.make_pod("k")
    await world.pod("k", "Running")
    await world.hand_over("k")
    record = world.record(vmi["metadata"]["uid"])

    async def recorded() -> bool:
        return record.exists()

    await killed_when(world, recorded)
    await world.phase("k", "Running")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_killed_when_the_vmm_has_started(world: World):
    vmi = await world.make_pod("k")
    await world.pod("k", "Running")
    await world.hand_over("k")

    async def started() -> bool:
        return bool(world.starts(vmi["metadata"]["uid"]))

    await killed_when(world, started)
    await world.phase("k", "Running")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_killed_while_the_pod_starts(world: World):
    vmi = await world.make_pod("k")
    pods = world.root / "state" / "pods"

    async def begun() -> bool:
        return pods.exists() and any(pods.iterdir())

    await killed_when(world, begun)
    await world.pod("k", "Running")
    await world.hand_over("k")
    await world.phase("k", "Running")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_killed_while_the_guest_is_asked_to_stop(world: World):
    machine_id, pid = await running(world)
    await deleted(world)

    async def asked() -> bool:
        return "ShuttingDown" in world.log() or not await gone(pid)

    await killed_when(world, asked)
    await world.phase("k", "Succeeded")

    async def forgotten() -> bool:
        return not world.record(machine_id).exists()

    await eventually("the record is gone", forgotten)
    assert world.starts(machine_id) == [pid]


@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_any_moment_of_a_start(world: World, seed: int):
    chance = random.Random(seed)
    vmi = await world.make_pod("k")
    await world.pod("k", "Running")
    await world.hand_over("k")
    for _ in range(3):
        await asyncio.sleep(chance.uniform(0.0, 0.4))
        victim = chance.choice(["node", "driver"])
        world.kill(victim)
        getattr(world, f"start_{victim}")()
    await world.phase("k", "Running", seconds=40)
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def test_another_boot_means_dead_and_a_reused_pid_is_never_ours(
    world: World, stranger: "subprocess.Popen[bytes]"
):
    machine_id, pid = await running(world)
    world.kill("node")
    os.kill(pid, 9)
    confuse(world, machine_id, pid=stranger.pid, bootId="00000000-0000-4000-8000-000000000000")
    world.start_node()
    failed = await world.phase("k", "Failed")
    assert "the host was restarted" in str(failed["status"]["conditions"])
    await world.pod("k", "Failed")
    assert stranger.poll() is None


async def test_a_reused_pid_of_the_same_boot_is_not_ours_either(world: World, stranger: "subprocess.Popen[bytes]"):
    machine_id, pid = await running(world)
    world.kill("node")
    os.kill(pid, 9)
    confuse(world, machine_id, pid=stranger.pid)
    world.start_node()
    await world.phase("k", "Failed")
    assert stranger.poll() is None


async def test_a_damaged_record_is_told_and_its_machine_is_left_alone(world: World):
    machine_id, pid = await running(world)
    world.kill("node")
    world.record(machine_id).write_text("{half of a rec")
    world.start_node()
    said = await world.condition("k", "Synchronized", "RecordDamaged")
    assert "record.json cannot be used" in said["message"]
    assert not await gone(pid)
    assert world.starts(machine_id) == [pid]


@pytest.mark.parametrize("method", ["prepare", "start"])
async def test_a_driver_that_dies_in_a_call(world: World, method: str):
    world.faults(**{method: "crash"})
    vmi = await world.make("k")
    await eventually("the driver died", lambda: ended(world, "driver"))
    (world.root / "driver" / "faults").unlink()
    world.kill("driver")
    world.start_driver()
    await world.phase("k", "Running")
    assert len(world.starts(vmi["metadata"]["uid"])) == 1


async def ended(world: World, name: str) -> bool:
    return world.processes[name].poll() is not None


async def test_a_driver_that_never_answers_a_stop_does_not_keep_the_guest(world: World):
    vmi = await world.make("k", terminationGracePeriodSeconds=1)
    await world.phase("k", "Running")
    world.faults(stop="hang", destroy="hang", inspect="hang")
    await deleted(world)
    await world.phase("k", "Failed", seconds=60)
    (pid,) = world.starts(vmi["metadata"]["uid"])
    assert await gone(pid)
