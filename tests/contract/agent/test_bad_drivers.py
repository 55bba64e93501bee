"""A driver that hangs, lies, answers garbage, floods, dies or changes: its machine says so, and no other is harmed.

The fake driver is the bad one, by its fault knobs; the machines of another driver live through all of it.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from world import World, eventually

import anyvisor.hri.fake
from anyvisor.hri import manifests
from anyvisor.hri.fake import faults
from anyvisor.hri.fake.driver import NAME as FAKE
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.fake.faulty import FaultyCore
from anyvisor.hri.kit.server import DriverServer
from anyvisor.kube.resources import HYPERVISOR_NODES, PODS, VMIS

Json = dict[str, Any]
DEADLINES = {"quick": 2.0, "plan": 2.0, "accept": 2.5, "destroy": 2.0, "operation": 3.0}
PATIENCE = 60.0
"""Seconds; a loaded machine is slow."""
MANIFEST = Path(anyvisor.hri.fake.__file__).with_name("manifest.yaml")


@dataclass(frozen=True)
class Bad:
    """What the driver does wrong, and what the owner of its machine reads. Without `says`, the machine runs."""

    faults: str
    says: str = ""
    reason: str = "DriverNotReady"
    needs: tuple[str, ...] = ()
    manifest: Json = field(default_factory=dict[str, Any])
    """What differs in the manifest by which it runs."""


CASES = [
    Bad("hang=info", "did not answer GetInfo in time"),
    Bad("hang=watch", "does not tell of its machines (Watch)"),
    Bad("hang=facts", "does not tell the facts of this node (WatchNode)"),
    Bad("hang=prepare", "did not answer Prepare in time"),
    Bad("hang=start", "does not start the guest: Start of the machine did not end within 3 s"),
    Bad("crash=info", "cannot be reached"),
    Bad("crash=prepare", "cannot be reached (Prepare)"),
    Bad("crash=start", "Start"),
    Bad("flaky=prepare:1", "prepare failed, as ordered; try again"),
    Bad("lie=launch", "the driver's launch plan cannot be used", reason="LaunchPlanRefused"),
    Bad("lie=phase", "tells phase 99, which this version does not know", reason="StateNotUnderstood"),
    Bad("", "did not confirm device.magic", reason="DriverRefused", needs=("device.magic",)),
    Bad("minor=5-9", "this core (minor 1) works with drivers up to 4: upgrade the core"),
    Bad("minor=2-4", "none in common; upgrade the older side"),
    Bad("", "runs by another manifest", manifest={"capabilities": {"arch": {"state": "yes", "values": ["amd64"]}}}),
    Bad("", "driver 'other.example.org' answers at the socket of", manifest={"driver": "other.example.org"}),
    Bad("minor=1-4"),
    Bad("flaky=prepare:2"),
    Bad("slow=prepare:0.3,slow=start:0.3"),
    Bad("gaps=2"),
    Bad("flood=3000"),
    Bad("leak,amnesia,stale,skips"),
]


@pytest.fixture
async def node(idle: World) -> AsyncIterator[World]:
    """A node with short deadlines, on which a machine of a good driver runs."""
    idle.configure(deadlines=DEADLINES)
    idle.start_zygote()
    idle.start_driver()
    idle.start_node()
    await idle.make("good")
    await idle.phase("good", "Running")
    yield idle
    vmi = await idle.get("good")
    assert vmi is not None
    assert vmi["status"]["phase"] == "Running"
    assert len(idle.starts(vmi["metadata"]["uid"])) == 1


async def end(world: World, name: str) -> None:
    """Delete a machine and see that nothing of it is left, whatever its driver does."""
    await world.client.delete(VMIS, name, "default")
    await world.client.delete(PODS, f"virt-launcher-{name}", "default", grace=0)
    await world.gone(name)


@asynccontextmanager
async def bad_driver(world: World, case: Bad) -> AsyncGenerator[None]:
    """The driver as a process of its own where it will die, else in this one."""
    if "crash" in case.faults:
        world.start_fake(case.faults)
        yield
        world.kill("fake")
        return
    changed: Json = yaml.safe_load(MANIFEST.read_text())
    for name, value in case.manifest.items():
        changed[name] = {**changed[name], **value} if isinstance(value, dict) else value
    manifest = manifests.of_text(json.dumps(changed)) if case.manifest else None
    driver = FakeDriver(faults.parse(case.faults), manifest=manifest)
    sockets = [world.root / "driver" / name for name in ("fake-hri.sock", "fake-fd.sock")]
    for path in sockets:
        path.unlink(missing_ok=True)
    async with DriverServer(driver, *sockets, core=FaultyCore(driver)):
        yield


async def test_each_fault_is_told_to_the_owner_and_harms_no_other(node: World):
    wrong: list[str] = []
    for number, case in enumerate(CASES):
        name = f"bad-{number}"
        async with bad_driver(node, case):
            await node.make(name, FAKE, needs=case.needs, terminationGracePeriodSeconds=0)
            try:
                if case.says:
                    await told(node, name, case)
                else:
                    await node.phase(name, "Running", seconds=PATIENCE)
            except AssertionError as error:
                wrong.append(f"{case}: {error}")
            await end(node, name)
    assert not wrong, "\n".join(wrong)
    await node.make("after")
    await node.phase("after", "Running")
    async with bad_driver(node, Bad("")):
        await node.make("again", FAKE)
        await node.phase("again", "Running")


async def told(world: World, name: str, case: Bad) -> None:
    """The machine's owner reads what is wrong."""

    async def look() -> bool:
        return case.says in (await sentence(world, name, case.reason))

    await eventually(f"{case.reason} of {name} says {case.says!r}", look, PATIENCE)


async def sentence(world: World, name: str, reason: str) -> str:
    vmi = await world.get(name) or {}
    found: list[Json] = vmi.get("status", {}).get("conditions") or []
    return next((str(c["message"]) for c in found if c.get("reason") == reason), "")


async def test_a_machine_ends_whatever_its_driver_does(node: World):
    for number, faulty in enumerate(("hang=stop,hang=destroy,hang=inspect", "crash=stop", "crash=destroy")):
        name = f"bad-{number}"
        async with bad_driver(node, Bad(faulty)):
            await node.make(name, FAKE, terminationGracePeriodSeconds=1)
            await node.phase(name, "Running", seconds=PATIENCE)
            await node.client.delete(VMIS, name, "default")
            await node.client.delete(PODS, f"virt-launcher-{name}", "default", grace=1)
            await node.gone(name)


async def test_machines_of_a_driver_that_dies_are_taken_over_by_its_next_process(node: World):
    async with bad_driver(node, Bad("")):
        await node.make("bad", FAKE)
        await node.phase("bad", "Running")
    async with bad_driver(node, Bad("hang=adopt")):
        await node.condition("bad", "Synchronized", "NotAdopted")
    async with bad_driver(node, Bad("")):

        async def adopted() -> bool:
            return not await sentence(node, "bad", "NotAdopted")

        await eventually("the machine is adopted", adopted, PATIENCE)
        await node.phase("bad", "Running")


async def test_a_later_core_speaks_with_older_and_newer_drivers_and_a_machine_keeps_its_minor(idle: World):
    idle.configure(deadlines=DEADLINES, minor=4)
    idle.start_zygote()
    idle.start_node()
    async with bad_driver(idle, Bad("minor=1")):
        await idle.make("old", FAKE)
        assert (await idle.phase("old", "Running"))["status"]["hypervisor"]["hriMinor"] == 1
    async with bad_driver(idle, Bad("minor=1-7")):
        await idle.make("new", FAKE)
        assert (await idle.phase("new", "Running"))["status"]["hypervisor"]["hriMinor"] == 4

        async def adopted() -> bool:
            return not await sentence(idle, "old", "NotAdopted")

        await eventually("the old machine is adopted", adopted, PATIENCE)
        old = await idle.phase("old", "Running")
        assert old["status"]["hypervisor"]["hriMinor"] == 1
        await end(idle, "old")
    async with bad_driver(idle, Bad("minor=1-8")):
        await idle.make("newer", FAKE)
        await told(idle, "newer", Bad("", "drivers up to 7: upgrade the core"))


async def test_many_machines_of_a_driver_that_hangs_leave_room_for_others(idle: World):
    idle.configure(workers=6)
    idle.start_zygote()
    idle.start_driver()
    idle.start_fake("hang=prepare")
    idle.start_node()
    for number in range(7):
        await idle.make(f"bad-{number}", FAKE)
    await idle.make("good")
    await idle.phase("good", "Running", seconds=25)


@asynccontextmanager
async def garbage(path: Path) -> AsyncGenerator[list[bytes]]:
    """A server that answers whatever is said with bytes that are nothing."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            heard.append(await reader.read(1 << 16))
            writer.write(os.urandom(1 << 16))
            await writer.drain()
            writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield heard
    finally:
        server.close()
        await server.wait_closed()


async def test_garbage_at_the_socket_is_told_and_harms_no_other(node: World):
    async with garbage(node.root / "driver" / "fake-hri.sock") as heard:
        await node.make("bad", FAKE)

        async def told_of() -> bool:
            said = await sentence(node, "bad", "DriverNotReady")
            return "cannot be reached" in said or "broke the protocol" in said

        async def spoken() -> bool:
            return len(heard) > 1

        await eventually("the agent speaks to it, and again", spoken, PATIENCE)
        await eventually("the owner is told", told_of, PATIENCE)
        await node.make("after")
        await node.phase("after", "Running")


async def test_the_node_shows_what_is_wrong_with_a_driver(node: World):
    async def shown() -> Any:
        status = (await node.client.get(HYPERVISOR_NODES, "node-1")).get("status", {})
        entries = {entry["driver"]: entry for entry in status.get("drivers", [])}
        said = [c["message"] for c in entries[FAKE]["conditions"] if c["type"] == "Ready"]
        return entries[FAKE]["healthy"] is False and "another manifest" in said[0] and entries["test.anyvisor.io"]

    async with bad_driver(node, Bad("", manifest={"version": "9.9"})):
        assert (await eventually("the driver is shown as not healthy", shown))["healthy"] is True
