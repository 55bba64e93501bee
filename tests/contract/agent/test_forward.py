"""Ports of a guest over the agent's HTTP interface, where the driver says how they are reached."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from test_streams import closed_with
from world import World, eventually

NETWORK: dict[str, Any] = {
    "memory": {"guest": "64Mi"},
    "devices": {"interfaces": [{"name": "default", "masquerade": {}}]},
}


async def path(world: World, **spec: Any) -> str:
    wanted: dict[str, Any] = {"domain": NETWORK, "networks": [{"name": "default", "pod": {}}], **spec}
    vmi = await world.make("f", **wanted)
    await world.phase("f", "Running")
    return f"/v1/machines/{vmi['metadata']['uid']}/streams/portforward"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.readline():
        writer.write(b"[" + data + b"]")
        if data == b"bye\n":
            break
    writer.close()


class UdpEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(b"[" + data + b"]", addr)


@asynccontextmanager
async def listening() -> AsyncGenerator[int]:
    """The same port by TCP and UDP."""
    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            UdpEcho, local_addr=("127.0.0.1", port)
        )
        yield port
        transport.close()


async def no_stream(world: World) -> bool:
    return not (world.root / "driver" / "streams").exists()


async def test_bytes_and_datagrams_reach_the_guest_and_end_with_either_side(world: World):
    at = await path(world)
    async with listening() as port, world.agent() as agent:
        async with agent.ws_connect(f"{at}?port={port}&protocol=udp") as socket:
            for data in (b"one", b"", b"two"):
                await socket.send_bytes(data)
                assert await socket.receive_bytes() == b"[" + data + b"]", "a message is a datagram"
        await eventually("the driver was told of the end", lambda: no_stream(world))
        socket = await agent.ws_connect(f"{at}?port={port}&protocol=tcp")
        await socket.send_bytes(b"one\nbye\n")
        seen = b""
        async with asyncio.timeout(10):
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                seen += message.data
        assert (seen, message.data) == (b"[one\n][bye\n]", 1000), "all that came before the end arrives"
        last = await agent.ws_connect(f"{at}?port={port}&protocol=tcp")
        await world.type("f", b"poweroff")
        assert await closed_with(last) == "the machine ended"


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("port=0", 400, "from 1 to 65535"),
        ("port=99999999999999999999", 400, "from 1 to 65535"),
        ("port=22&protocol=sctp", 400, "tcp or udp"),
        ("port=1", 502, "no port of this host"),
        ("port=2", 502, "nothing listens on port 2/tcp"),
    ],
)
async def test_refusals_are_sentences(world: World, query: str, status: int, says: str):
    at = await path(world)
    async with world.agent() as agent:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await agent.ws_connect(f"{at}?{query}")
    assert caught.value.status == status
    assert caught.value.headers is not None
    assert says in caught.value.headers["x-anyvisor-message"]
    assert await no_stream(world)
