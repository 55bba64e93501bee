"""Console, logs and verbs over the agent's HTTP interface."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from world import World, eventually


async def machine(world: World, name: str = "s") -> str:
    vmi = await world.make(name)
    await world.phase(name, "Running")
    return vmi["metadata"]["uid"]


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such process")


async def read_until(console: aiohttp.ClientWebSocketResponse, marker: bytes, seconds: float = 20) -> bytes:
    seen = b""
    async with asyncio.timeout(seconds):
        while marker not in seen:
            seen += await console.receive_bytes()
    return seen


async def test_the_console_replays_talks_and_has_one_client(world: World):
    machine_id = await machine(world)
    path = f"/v1/machines/{machine_id}/streams/console"
    async with world.agent() as agent:
        first = await agent.ws_connect(path)
        assert b"tick" in await first.receive_bytes()
        await first.send_bytes(b"hello\n")
        await read_until(first, b"echo hello")
        second = await agent.ws_connect(path)
        assert b"echo hello" in await second.receive_bytes(), "what came before is replayed"
        async with asyncio.timeout(10):
            while (message := await first.receive()).type != aiohttp.WSMsgType.CLOSE:
                continue
        assert message.extra == "another client opened this console"
        await second.close()


async def test_a_flood_with_a_client_that_never_reads_stalls_nobody(world: World):
    machine_id = await machine(world)
    path = f"/v1/machines/{machine_id}/streams/console"
    before = resident(world.processes["node"].pid)
    async with world.agent() as agent:
        # A raw connection whose answers nobody reads: the kernel's buffers fill, then the agent must drop output.
        reader, writer = await asyncio.open_unix_connection(str(world.root / "run" / "agent.sock"), limit=1)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        await reader.read(1)
        await world.type("s", b"flood")
        async with agent.ws_connect(path) as console:
            await read_until(console, b"flooded")
            assert b"tick" in await read_until(console, b"tick")
        grown = resident(world.processes["node"].pid) - before
        assert grown < 24 * 1024 * 1024
        writer.close()
    log = next((world.root / "run" / "pods").iterdir()) / "l" / "serial0.log"
    assert log.stat().st_size <= 1024 * 1024


GREETING = b"RFB 003.008\n"


async def closed_with(viewer: aiohttp.ClientWebSocketResponse) -> str:
    """The reason with which the agent closes a viewer's websocket."""
    async with asyncio.timeout(10):
        while (message := await viewer.receive()).type != aiohttp.WSMsgType.CLOSE:
            continue
    return message.extra or ""


async def free(agent: aiohttp.ClientSession, path: str) -> aiohttp.ClientWebSocketResponse | None:
    """A viewer's websocket; None while the display is in use."""
    try:
        return await agent.ws_connect(path)
    except aiohttp.WSServerHandshakeError as error:
        if error.status != 503:
            raise
        return None


async def test_the_last_viewer_wins_unless_the_session_is_kept(world: World):
    machine_id = await machine(world)
    path = f"/v1/machines/{machine_id}/streams/vnc"
    async with world.agent() as agent:
        first = await agent.ws_connect(path)
        assert await first.receive_bytes() == GREETING
        await first.send_bytes(b"key")
        assert await first.receive_bytes() == b"key"
        with pytest.raises(aiohttp.WSServerHandshakeError) as busy:
            await agent.ws_connect(f"{path}?preserveSession=true")
        assert busy.value.status == 503
        async with agent.ws_connect(f"{path}?shared=true") as picture:
            assert await picture.receive_bytes() == GREETING
        await first.send_bytes(b"still here")
        assert await first.receive_bytes() == b"still here"
        second = await agent.ws_connect(path)
        assert await closed_with(first) == "another client opened this display"
        assert await second.receive_bytes() == GREETING
        await second.close()
        third = await eventually("the display is free again", lambda: free(agent, f"{path}?preserveSession=true"))
        assert await third.receive_bytes() == GREETING
        await world.type("s", b"poweroff")
        assert await closed_with(third)


async def test_a_picture_larger_than_all_buffers_arrives_whole(world: World):
    machine_id = await machine(world)
    async with world.agent() as agent, agent.ws_connect(f"/v1/machines/{machine_id}/streams/vnc") as viewer:
        assert await viewer.receive_bytes() == GREETING
        sent = [bytes([number]) * 65536 for number in range(64)]
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(read_exactly(viewer, b"".join(sent)))
            for part in sent:
                await viewer.send_bytes(part)


async def read_exactly(viewer: aiohttp.ClientWebSocketResponse, expected: bytes) -> None:
    seen = bytearray()
    while len(seen) < len(expected):
        seen += await viewer.receive_bytes()
    assert seen == expected


async def test_a_machine_without_that_display_says_so(world: World):
    machine_id = await machine(world)
    async with world.agent() as agent:
        assert (await agent.get(f"/v1/machines/{machine_id}/streams/vnc?device=display7")).status == 501
        assert (await agent.get("/v1/machines/nobody/streams/vnc")).status == 404


async def test_a_machine_without_a_channel_to_its_guest_says_so(world: World):
    machine_id = await machine(world)
    async with world.agent() as agent:
        for question in ("guestosinfo", "userlist", "filesystemlist"):
            assert (await agent.get(f"/v1/machines/{machine_id}/{question}")).status == 501
        for verb in ("freeze", "unfreeze"):
            assert (await agent.put(f"/v1/machines/{machine_id}/{verb}")).status == 501


async def test_logs_of_guest_and_vmm(world: World):
    machine_id = await machine(world)
    pod = (await world.pod("s", "Running"))["metadata"]["uid"]
    await world.type("s", b"hello")
    async with world.agent() as agent:
        guest = await (await agent.get(f"/v1/pods/{pod}/log?container=guest-console-log")).text()
        assert "echo hello" in guest
        tail = await (await agent.get(f"/v1/pods/{pod}/log?container=guest-console-log&tailLines=2")).text()
        assert len(tail.splitlines()) == 2
        following = await agent.get(f"/v1/pods/{pod}/log?container=guest-console-log&follow=true&tailLines=0")
        async with asyncio.timeout(10):
            assert b"tick" in await following.content.readany()
        following.close()
        assert (await agent.get(f"/v1/pods/{pod}/log?container=compute")).status == 200
        assert (await agent.get("/v1/pods/nobody/log")).status == 404
        rows = (await (await agent.get("/v1/machines")).json())["items"]
        assert [(row["id"], row["state"], row["alive"]) for row in rows] == [(machine_id, "RUNNING", True)]
        metrics = await (await agent.get("/metrics")).text()
        assert 'anyvisor_agent_machines{driver="test.anyvisor.io",state="running"} 1.0' in metrics


async def test_verbs(world: World):
    machine_id = await machine(world)
    async with world.agent() as agent:
        refused = await agent.put(f"/v1/machines/{machine_id}/pause")
        assert refused.status == 501
        assert "not served by driver test.anyvisor.io" in (await refused.json())["message"]
        assert (await agent.put("/v1/machines/nobody/pause")).status == 404
        world.kill("driver")

        async def told() -> bool:
            return (await agent.put(f"/v1/machines/{machine_id}/pause")).status == 503

        await eventually("the driver's absence is told", told)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
async def test_nobody_else_is_answered(world: World):
    await machine(world)
    socket_path = world.root / "run" / "agent.sock"
    socket_path.chmod(0o777)
    for place in (world.root, world.root / "run"):
        place.chmod(0o755)
    program = (
        "import socket\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.connect({str(socket_path)!r})\ns.sendall(b'GET /v1/machines HTTP/1.0\\r\\n\\r\\n')\nprint(s.recv(12))"
    )
    answer = await asyncio.to_thread(
        subprocess.run, ["/usr/bin/python3", "-c", program], user=65533, capture_output=True, text=True, check=False
    )
    assert "403" in answer.stdout, answer.stderr
    assert sys.version_info >= (3, 11)
