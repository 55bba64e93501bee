"""What a node keeps: no descriptor, process, mount or record too many; and what it does when its disk is full."""

import asyncio
import os
from pathlib import Path

import pytest
from world import World, eventually

from anyvisor.agent import linux
from anyvisor.kube.resources import PODS, VMIS


def descriptors(world: World) -> int:
    return len(os.listdir(f"/proc/{world.processes['node'].pid}/fd"))


def mounts(world: World) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(world.root) in line]


def vmms(world: World) -> list[int]:
    ours = {process.pid for process in world.processes.values()}
    return [pid for pid in world.left() if pid not in ours]


async def cycle(world: World, name: str) -> None:
    await world.make(name)
    await world.phase(name, "Running")
    await world.client.delete(VMIS, name, "default")
    await world.pod(name, "Succeeded")
    await world.client.delete(PODS, f"virt-launcher-{name}", "default")
    await world.gone(name)


async def test_machines_leave_nothing(world: World):
    await cycle(world, "first")
    before = descriptors(world)
    for number in range(4):
        await cycle(world, f"m{number}")

    async def settled() -> bool:
        return descriptors(world) <= before

    await eventually(f"no descriptor is left ({before})", settled)

    async def empty() -> bool:
        places = ("run/pods", "state/pods", "state/machines")
        return not any(os.listdir(world.root / place) for place in places)

    await eventually("no file is left", empty)
    assert mounts(world) == []
    assert vmms(world) == []


async def test_many_machines_at_once(world: World):
    names = [f"m{number}" for number in range(8)]
    await asyncio.gather(*(world.make(name) for name in names))
    for name in names:
        await world.phase(name, "Running", seconds=60)
    users = set[int]()
    for path in (world.root / "driver" / "starts").iterdir():
        (pid,) = (int(line) for line in path.read_text().split())
        users.add(os.stat(f"/proc/{pid}").st_uid)
    assert len(users) == (len(names) if world.separate else 1), "each VMM has a user of its own"
    world.kill("node")
    world.kill("driver")
    for name in names:
        await world.client.delete(VMIS, name, "default")
    world.start_driver()
    world.start_node()
    for name in names:
        await world.pod(name, "Succeeded")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
async def test_a_full_disk_is_told_and_got_over(idle: World):
    disk = idle.root / "state"
    linux.mount_tmpfs(str(disk), size=256 * 1024, mode=0o700, uid=0, gid=0)
    idle.start_zygote()
    idle.start_driver()
    idle.start_node()
    await idle.make_pod("f")
    await idle.pod("f", "Running")
    filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filler, b"x" * 4096)
    except OSError:
        os.close(filler)
    vmi = await idle.hand_over("f")

    async def told() -> str:
        found: list[dict[str, str]] = (await idle.get("f") or {})["status"].get("conditions") or []
        return next((c["message"] for c in found if c["type"] == "Synchronized"), "")

    assert "No space left on device" in await eventually("the full disk is told", told)
    assert idle.starts(vmi["metadata"]["uid"]) == []
    (disk / "filler").unlink()
    await idle.phase("f", "Running", seconds=40)
    assert len(idle.starts(vmi["metadata"]["uid"])) == 1


async def test_a_launcher_is_alone_with_what_it_needs(world: World):
    vmi = await world.make("a")
    await world.phase("a", "Running")
    (pid,) = world.starts(vmi["metadata"]["uid"])
    proc = Path(f"/proc/{pid}")
    assert proc.joinpath("environ").read_bytes() == b""
    status = dict(line.split(":\t", 1) for line in proc.joinpath("status").read_text().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    targets = {int(name): os.readlink(proc / "fd" / name) for name in os.listdir(proc / "fd")}
    assert targets[0] == "/dev/null"
    others = {target for number, target in targets.items() if number not in (0, 1, 2, 10, 11, 12, 13)}
    assert all(target.startswith("socket:") for target in others), "connections that the VMM accepted"
    if world.separate:
        assert status["Uid"].split()[0] != "0"
        assert int(status["CapEff"], 16) == 0
        assert f"/anyvisor/{world.root.name}/" in proc.joinpath("cgroup").read_text()
