"""The gateway's shell: a real API server's protocol on one side, a node agent on a unix socket on the other."""

import asyncio
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from anyvisor.gateway.agents import AgentError, Agents
from anyvisor.gateway.routes import resources, routes
from anyvisor.gateway.service import Gateway, Reply
from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.transport import Request
from tests.fakekube import FakeServer, serve

Json = dict[str, Any]
ROOT = "/apis/subresources.kubevirt.io/v1/namespaces/default"


@dataclass
class FakeAgent:
    """A node agent: echoes streams, remembers calls, answers what it is told to."""

    calls: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])
    answer: tuple[int, bytes] = (200, b"")
    refuse_streams: int = 0
    says: str = ""
    close_code: int = 1000
    greeting: bytes = b""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.calls.append((request.method, request.path_qs, await request.read()))
        if "/streams/" not in request.path:
            return web.Response(status=self.answer[0], body=self.answer[1], content_type="application/json")
        if self.refuse_streams:
            headers = {"x-anyvisor-message": self.says} if self.says else {}
            return web.Response(status=self.refuse_streams, headers=headers)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.greeting:
            await socket.send_bytes(self.greeting)
        async for message in socket:
            if message.data == b"bye":
                break
            await socket.send_bytes(b"<" + message.data + b">")
        await socket.close(code=self.close_code)
        self.ended.set()
        return socket


@dataclass
class Bench:
    server: FakeServer
    agent: FakeAgent
    gateway: Gateway
    endpoint: str
    url: str
    session: aiohttp.ClientSession

    async def put(self, path: str, body: bytes = b"") -> Reply:
        return await self.gateway.handle(Request("PUT", f"{ROOT}/{path}", body=body))

    async def get(self, path: str) -> Reply:
        return await self.gateway.handle(Request("GET", f"{ROOT}/{path}"))


@asynccontextmanager
async def served(handler: Any, path: str | None = None) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    if path is not None:
        await web.UnixSite(runner, path).start()
        yield f"unix:{path}"
    else:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def bench(rundir: Path) -> AsyncIterator[Bench]:
    agent = FakeAgent()
    async with serve(FakeServer()) as server, served(agent.handle, str(rundir / "agent.sock")) as endpoint:
        server.put("hypervisornodes", "node1", "", status={"agent": {"endpoint": endpoint}})
        server.put("virtualmachines", "a", spec={"runStrategy": "Manual"}, status={"created": True})
        server.put("virtualmachineinstances", "a", spec={}, status={"phase": "Running", "nodeName": "node1"})
        transport = HttpTransport(ClientConfig(server.url))
        async with (
            Agents() as agents,
            Gateway(Client(transport), agents) as gateway,
            served(gateway.stream) as url,
            aiohttp.ClientSession() as session,
        ):
            yield Bench(server, agent, gateway, endpoint, url, session)
        await transport.close()


def status_of(reply: Reply) -> tuple[int, str, str]:
    body = json.loads(reply.body)
    return reply.status, body["reason"], body["message"]


async def test_a_call_that_writes_patches_the_object(bench: Bench) -> None:
    assert (await bench.put("virtualmachines/a/stop", b"{}")).status == 202
    method, path, _, patch = bench.server.calls[-1]
    assert (method, path) == ("PATCH", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a/status")
    assert patch[1]["value"] == [{"action": "Stop", "uid": "uid-a"}]
    assert bench.server.headers[-1]["content-type"] == "application/json-patch+json"


async def test_a_call_on_the_run_asks_the_agent(bench: Bench) -> None:
    assert (await bench.put("virtualmachineinstances/a/pause")).status == 200
    assert bench.agent.calls == [("PUT", "/v1/machines/uid-a/pause", b"")]


async def test_what_the_guest_tells_is_passed_on(bench: Bench) -> None:
    conditions = [{"type": "AgentConnected", "status": "True"}]
    status = {"phase": "Running", "nodeName": "node1", "conditions": conditions}
    bench.server.put("virtualmachineinstances", "a", spec={}, status=status)
    bench.agent.answer = (200, b'{"hostname":"guest"}')
    reply = await bench.get("virtualmachineinstances/a/guestosinfo")
    assert (reply.status, json.loads(reply.body)) == (200, {"hostname": "guest"})


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        ((500, b"agent says no"), 500, "agent says no"),
        ((501, b'{"message":"cannot pause"}'), 400, "cannot pause"),
        ((409, b'{"message":"is paused"}'), 409, "is paused"),
        ((503, b""), 503, "try again"),
    ],
)
async def test_the_agents_refusal_has_its_words(
    bench: Bench, answer: tuple[int, bytes], status: int, says: str
) -> None:
    bench.agent.answer = answer
    found = status_of(await bench.put("virtualmachineinstances/a/pause"))
    assert found[0] == status
    assert says in found[2]


async def test_an_agent_that_is_gone_is_named(bench: Bench, rundir: Path) -> None:
    (rundir / "agent.sock").unlink()
    status, reason, message = status_of(await bench.put("virtualmachineinstances/a/pause"))
    assert (status, reason) == (500, "InternalError")
    assert "agent.sock does not answer" in message


@pytest.mark.parametrize(
    ("answers", "verb", "status", "says"),
    [
        ((409, {"reason": "Conflict", "message": "x"}), "virtualmachines/a/stop", 409, "changed meanwhile"),
        ((422, {"reason": "Invalid", "message": "x"}), "virtualmachines/a/stop", 409, "changed meanwhile"),
        ((403, {"reason": "Forbidden", "message": "a webhook says no"}), "virtualmachines/a/stop", 403, "says no"),
        ((404, {"reason": "NotFound", "message": "x"}), "virtualmachines/a/stop", 404, "not found"),
        ((500, {"reason": "InternalError", "message": "disk full"}), "virtualmachines/a/stop", 500, "disk full"),
    ],
)
async def test_a_refused_write_says_why(
    bench: Bench, answers: tuple[int, Json], verb: str, status: int, says: str
) -> None:
    calls = len(bench.server.calls)
    real = bench.server.handle

    async def refuse_patches(request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            return web.json_response(answers[1], status=answers[0])
        return await real(request)

    bench.server.answer = refuse_patches
    found = status_of(await bench.put(verb))
    assert len(bench.server.calls) > calls
    assert found[0] == status
    assert says in found[2]


async def test_an_api_server_that_fails_is_named(bench: Bench) -> None:
    real = bench.server.handle

    async def fail(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/virtualmachines/a"):
            return web.json_response({"reason": "InternalError", "message": "disk full"}, status=500)
        return await real(request)

    bench.server.answer = fail
    status, reason, message = status_of(await bench.put("virtualmachines/a/stop"))
    assert (status, reason) == (500, "InternalError")
    assert "VirtualMachine 'a' could not be read: disk full" in message


async def test_a_forced_restart_takes_its_grace_back_when_the_request_fails(bench: Bench) -> None:
    spec = {"terminationGracePeriodSeconds": 30}
    bench.server.put("virtualmachineinstances", "a", spec=spec, status={"phase": "Running", "nodeName": "node1"})
    patched: list[tuple[str, Any]] = []
    real = bench.server.handle

    async def refuse_requests(request: web.Request) -> web.StreamResponse:
        if request.method != "PATCH":
            return await real(request)
        patched.append((request.path.rsplit("/", 2)[-2], await request.json()))
        status = 409 if request.path.endswith("/status") else 200
        return web.json_response({"metadata": {}}, status=status)

    bench.server.answer = refuse_requests
    reply = await bench.put("virtualmachines/a/restart", b'{"gracePeriodSeconds": 0}')
    assert reply.status == 409
    assert [changes[-1]["value"] for kind, changes in patched if kind == "virtualmachineinstances"] == [1, 30]


async def test_a_console_is_spliced_both_ways(bench: Bench) -> None:
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/console"
    async with bench.session.ws_connect(url, protocols=("plain.kubevirt.io",)) as socket:
        assert socket.protocol == "plain.kubevirt.io"
        await socket.send_bytes(b"hello")
        assert (await socket.receive_bytes()) == b"<hello>"
        await socket.send_bytes(b"bye")
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1000)
    assert bench.agent.calls[0][1] == "/v1/machines/uid-a/streams/console"


async def test_large_streams_arrive_whole(bench: Bench) -> None:
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/console"
    block = bytes(range(256)) * 256
    async with bench.session.ws_connect(url) as socket:
        received = bytearray()
        for _ in range(64):
            await socket.send_bytes(block)
        while len(received) < 64 * (len(block) + 2):
            received += await socket.receive_bytes()
    assert bytes(received) == (b"<" + block + b">") * 64


async def test_a_client_that_leaves_closes_the_agents_end(bench: Bench) -> None:
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/console"
    async with bench.session.ws_connect(url) as socket:
        await socket.send_bytes(b"x")
        await socket.receive_bytes()
    await asyncio.wait_for(bench.agent.ended.wait(), 5)


async def test_an_agents_end_that_breaks_is_not_a_clean_close(bench: Bench) -> None:
    bench.agent.close_code = 1011
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/console"
    async with bench.session.ws_connect(url) as socket:
        await socket.send_bytes(b"bye")
        closed = await socket.receive()
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1001)


@pytest.mark.parametrize(
    ("refusal", "status", "says"),
    [(404, 400, "try again"), (503, 503, "in use"), (501, 400, "offers no console"), (500, 500, "refused")],
)
async def test_a_stream_is_refused_before_the_upgrade(bench: Bench, refusal: int, status: int, says: str) -> None:
    bench.agent.refuse_streams = refusal
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    headers["sec-websocket-key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/console"
    async with bench.session.get(url, headers=headers) as answer:
        assert answer.status == status
        assert says in (await answer.json())["message"]


async def test_a_vmi_that_does_not_run_yet_is_a_400_for_its_console(bench: Bench) -> None:
    bench.server.put("virtualmachineinstances", "a", status={"phase": "Scheduling", "nodeName": "node1"})
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await bench.session.ws_connect(f"{bench.url}{ROOT}/virtualmachineinstances/a/console")
    assert caught.value.status == 400


async def test_why_a_port_is_not_reached_is_passed_on(bench: Bench) -> None:
    bench.agent.refuse_streams, bench.agent.says = 502, "nothing listens on port 22/tcp of the guest"
    headers = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    headers["sec-websocket-key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    url = f"{bench.url}{ROOT}/virtualmachineinstances/a/portforward/22"
    async with bench.session.get(url, headers=headers) as answer:
        assert answer.status == 500
        assert (await answer.json())["message"].endswith("nothing listens on port 22/tcp of the guest")


async def test_ports_are_forwarded_through_the_agent(bench: Bench) -> None:
    async with bench.session.ws_connect(f"{bench.url}{ROOT}/virtualmachineinstances/a/portforward/22") as socket:
        await socket.send_bytes(b"x")
        assert await socket.receive_bytes() == b"<x>"
    assert bench.agent.calls[0][1] == "/v1/machines/uid-a/streams/portforward?port=22&protocol=tcp"


async def test_calls_on_the_group(bench: Bench) -> None:
    root = "/apis/subresources.kubevirt.io/v1alpha3"
    reply = await bench.gateway.handle(Request("GET", f"{root}/version"))
    assert json.loads(reply.body)["gitVersion"].startswith("v1.9.")
    assert (await bench.gateway.handle(Request("GET", f"{root}/nonsense"))).status == 404
    assert (await bench.gateway.handle(Request("PUT", f"{root}/version"))).status == 405
    bench.server.failures.append((200, {"gitVersion": "v1.37.0"}, {}))
    healthy = await bench.gateway.handle(Request("GET", f"{root}/healthz"))
    assert json.loads(healthy.body)["apiserver"] == {"connectivity": "ok", "version": {"gitVersion": "v1.37.0"}}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", f"{ROOT}/virtualmachines/a/nonsense", 404),
        ("GET", f"{ROOT}/virtualmachines/a/start", 405),
        ("PUT", f"{ROOT}/pods/a/start", 404),
        ("PUT", "/apis/other.io/v1/namespaces/default/virtualmachines/a/start", 404),
        ("PUT", "/apis/subresources.kubevirt.io/v2/namespaces/default/virtualmachines/a/start", 404),
    ],
)
async def test_paths_that_are_not_served(bench: Bench, method: str, path: str, status: int) -> None:
    reply = await bench.gateway.handle(Request(method, path))
    assert status_of(reply)[0] == status


async def test_a_picture_of_the_display_is_taken_over_its_stream(bench: Bench) -> None:
    name = struct.pack(">HH16sI", 1, 1, bytes(16), 0)
    frame = struct.pack(">BxHHHHHi", 0, 1, 0, 0, 1, 1, 0) + b"\x01\x02\x03\x00"
    bench.agent.greeting = b"RFB 003.008\n\x01\x01" + bytes(4) + name + frame
    reply = await bench.get("virtualmachineinstances/a/vnc/screenshot")
    assert (reply.status, dict(reply.headers)) == (200, {"content-type": "image/png"})
    assert reply.body.startswith(b"\x89PNG")
    assert bench.agent.calls[0][1] == "/v1/machines/uid-a/streams/vnc?shared=true"


async def test_a_display_that_cannot_be_pictured_says_why(bench: Bench) -> None:
    bench.agent.greeting = b"not what a display says"
    reply = await bench.get("virtualmachineinstances/a/vnc/screenshot")
    assert reply.status == 500
    assert b"is no RFB" in reply.body
    bench.agent.refuse_streams = 501
    reply = await bench.get("virtualmachineinstances/a/vnc/screenshot")
    assert (reply.status, reply.body) == (500, b"the hypervisor of this VMI offers no vnc")


def test_discovery_lists_what_clients_know(bench: Bench) -> None:
    listed = resources()
    assert {"virtualmachines/start", "virtualmachineinstances/console", "expand-vm-spec"} <= set(listed)
    assert "virtualmachines/addvolume" not in listed
    assert [route.version for route in routes(lambda: bench.gateway)] == ["v1", "v1alpha3", "v1alpha1"]


async def test_an_answer_that_grows_comes_as_it_grows(bench: Bench) -> None:
    bench.agent.answer = (200, b"line\n")
    async with Agents() as agents:
        assert [chunk async for chunk in agents.follow(bench.endpoint, "/v1/pods/x/log")] == [b"line\n"]
        bench.agent.answer = (404, b"no such pod")
        with pytest.raises(AgentError, match="no such pod"):
            _ = [chunk async for chunk in agents.follow(bench.endpoint, "/v1/pods/y/log")]
