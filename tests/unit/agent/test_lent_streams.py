"""Streams to USB channels and to vsock ports of a guest, through the agent's own handlers and real sockets."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from anyvisor.agent import usb, vsock
from anyvisor.agent.endpoints import Endpoints
from anyvisor.agent.records import EndpointRecord
from anyvisor.agent.streams import MESSAGE_HEADER, Clients
from anyvisor.hri.v1.types_pb2 import Endpoint

GUEST = 7
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    while data := await reader.read(1000):
        writer.write(data)
    with contextlib.suppress(OSError):
        writer.close()


@asynccontextmanager
async def client_of(answer: Answer) -> AsyncGenerator[TestClient[Any, Any]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await answer(request)

    app = web.Application()
    app.router.add_get("/", handler)
    async with TestClient(TestServer(app)) as client:
        yield client


async def refused(client: TestClient[Any, Any], path: str = "/") -> tuple[int, str]:
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await client.ws_connect(path)
    assert error.value.headers is not None
    return error.value.status, error.value.headers[MESSAGE_HEADER]


def channels(count: int) -> list[EndpointRecord]:
    return [
        EndpointRecord(
            id=f"usb/{number}", name=f"usb-{number}.sock", purpose=Endpoint.PURPOSE_USB_REDIRECTION, exclusive=True
        )
        for number in range(count)
    ]


async def test_each_usb_client_has_a_channel_of_its_own(rundir: Path) -> None:
    directory = os.open(rundir, os.O_PATH)
    endpoints, clients = Endpoints(directory, channels(2)), Clients(8)

    try:
        async with (
            await asyncio.start_unix_server(echo, rundir / "usb-0.sock"),
            await asyncio.start_unix_server(echo, rundir / "usb-1.sock"),
            client_of(lambda request: usb.serve(request, endpoints, clients)) as client,
        ):
            first, second = await client.ws_connect("/"), await client.ws_connect("/")
            for websocket in (first, second):
                assert await websocket.receive_bytes() == b"hello"
                await websocket.send_bytes(b"\0data")
                assert await websocket.receive_bytes() == b"\0data"
            assert await refused(client) == (
                503,
                "all 2 channels for USB devices of this machine are in use; end one of them",
            )
            await first.close()
            async with asyncio.timeout(20):
                while endpoints.holder("usb/0") is not None:
                    await asyncio.sleep(0)
            third = await client.ws_connect("/")
            assert await third.receive_bytes() == b"hello"
            clients.close("the machine ended")
            assert (await third.receive()).extra == "the machine ended"
    finally:
        os.close(directory)


async def test_a_machine_without_channels_says_so(rundir: Path) -> None:
    endpoints = Endpoints(-1, [])
    async with client_of(lambda request: usb.serve(request, endpoints, Clients(8))) as client:
        assert await refused(client) == (501, "this machine has no channel for USB devices")


class ToUnix(socket.socket):
    """Stands in for the kernel's way to the guest, which few test machines have."""

    path = ""

    def connect_ex(self, address: Any, /) -> int:
        assert address == (GUEST, 1024)
        return super().connect_ex(self.path)


def over_unix(path: Path) -> vsock.MakeSocket:
    def make() -> socket.socket:
        made = ToUnix(socket.AF_UNIX, socket.SOCK_STREAM)
        made.setblocking(False)
        made.path = str(path)
        return made

    return make


async def test_a_vsock_port_of_the_guest(rundir: Path) -> None:
    path, clients = rundir / "guest.sock", Clients(1)
    vmi: Any = {"status": {"VSOCKCID": GUEST}}
    async with client_of(lambda request: vsock.serve(request, vmi, clients, over_unix(path))) as client:
        assert (await refused(client, "/?port=1024"))[0] == 502
        async with await asyncio.start_unix_server(echo, path):
            websocket = await client.ws_connect("/?port=1024&tls=false")
            assert await websocket.receive_bytes() == b"hello"
            await websocket.send_bytes(b"ping")
            assert await websocket.receive_bytes() == b"ping"
            assert (await refused(client, "/?port=1024"))[0] == 429
            await websocket.close()


@pytest.mark.parametrize(
    ("query", "status", "vmi", "words"),
    [
        ("port=0", 400, {"status": {"VSOCKCID": GUEST}}, "a vsock port is a number"),
        ("port=22&tls=true", 501, {"status": {"VSOCKCID": GUEST}}, "ask with tls=false"),
        ("port=22", 501, {"status": {}}, "no vsock"),
        ("port=22", 501, {"status": {"VSOCKCID": 2}}, "no vsock"),
    ],
)
async def test_refused_vsock(query: str, status: int, vmi: Any, words: str) -> None:
    async with client_of(lambda request: vsock.serve(request, vmi, Clients(1))) as client:
        code, sentence = await refused(client, f"/?{query}")
    assert code == status
    assert words in sentence


async def test_a_node_without_vsock_names_the_remedy() -> None:
    def no_family() -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    vmi: Any = {"status": {"VSOCKCID": GUEST}}
    async with client_of(lambda request: vsock.serve(request, vmi, Clients(1), no_family)) as client:
        assert (await refused(client, "/?port=22"))[1] == (
            "this node has no vsock: Address family not supported by protocol; run: modprobe vhost_vsock"
        )
