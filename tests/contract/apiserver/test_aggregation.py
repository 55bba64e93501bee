"""An API group that an outside HTTPS backend answers, with the identity in front-proxy headers."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from anyvisor.embedded.apiserver.config import FrontProxy, ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, Forbidden
from anyvisor.kube.resources import SERVICES, Resource
from anyvisor.kube.transport import Request
from tests.contract.apiserver.pki import Pki, issue_server

Json = dict[str, Any]
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False, kind="APIService")
FLAVORS = Resource("outside.test.io", "v1", "flavors", namespaced=True, kind="Flavor")
LISTING = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "outside.test.io/v1",
    "resources": [
        {"name": "flavors", "singularName": "flavor", "namespaced": True, "kind": "Flavor", "verbs": ["get", "list"]},
        {"name": "flavors/taste", "namespaced": True, "kind": "Taste", "verbs": ["get"]},
    ],
}


class Backend:
    """Answers discovery, tells whom it sees, and echoes websocket messages."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[str], str]] = []
        self.port = 0

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        peer: Json = request.transport.get_extra_info("peercert") if request.transport else {}
        certified = "".join(value for part in peer["subject"] for name, value in part if name == "commonName")
        user, groups = request.headers["X-Remote-User"], request.headers.getall("X-Remote-Group", [])
        self.seen.append((user, list(groups), certified))
        if request.path == "/apis/outside.test.io/v1":
            return web.json_response(LISTING)
        if request.path.endswith("/taste"):
            answer = web.WebSocketResponse(protocols=["echo.test"])
            await answer.prepare(request)  # pyright: ignore[reportArgumentType]
            async for message in answer:
                await answer.send_bytes(message.data)
            return answer
        metadata = {"name": request.path.rsplit("/", 1)[-1], "namespace": "default"}
        return web.json_response({"apiVersion": "outside.test.io/v1", "kind": "Flavor", "metadata": metadata})


@pytest.fixture
async def backend(pki: Pki) -> AsyncIterator[Backend]:
    made = Backend()
    pair = issue_server(pki, "flavors.default.svc")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca.cert))
    tls.load_cert_chain(pair.cert, pair.key)
    tls.verify_mode = ssl.CERT_REQUIRED
    runner = web.ServerRunner(web.Server(made.serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def server(tmp_path: Path, pki: Pki) -> AsyncIterator[ApiServer]:
    proxy = pki.client("front-proxy-client", ())
    async with ApiServer(ServerConfig(tmp_path / "s.db", front_proxy=FrontProxy(proxy.cert, proxy.key))) as running:
        yield running


@pytest.fixture
async def client(server: ApiServer, backend: Backend, pki: Pki) -> Client:
    made = Client(server.inprocess(Identity("admin", ("system:masters",))))
    service: Json = {"metadata": {"name": "flavors"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await made.create(SERVICES, service, namespace="default")
    spec: Json = {
        "group": "outside.test.io",
        "version": "v1",
        "service": {"namespace": "default", "name": "flavors", "port": backend.port},
        "caBundle": base64.b64encode(pki.ca.cert.read_bytes()).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 10,
    }
    await made.create(API_SERVICES, {"metadata": {"name": "v1.outside.test.io"}, "spec": spec})
    return made


async def available(client: Client) -> Json:
    async with asyncio.timeout(10):
        async for event in client.watch(API_SERVICES):
            obj: Json = await client.get(API_SERVICES, "v1.outside.test.io")
            for condition in obj.get("status", {}).get("conditions", []):
                return condition
            assert event
    raise AssertionError("the watch ended")


async def test_requests_go_on_with_the_users_name(client: Client, server: ApiServer, backend: Backend):
    assert (await available(client))["status"] == "True"
    jane = Client(server.inprocess(Identity("jane", ("devs",))))
    with pytest.raises(Forbidden):
        await jane.get(FLAVORS, "sweet", "default")
    flavor = await client.get(FLAVORS, "sweet", "default")
    assert flavor["kind"] == "Flavor"
    assert backend.seen[-1] == ("admin", ["system:masters", "system:authenticated"], "front-proxy-client")


async def test_discovery_shows_what_the_backend_serves(client: Client, server: ApiServer):
    await available(client)
    transport = server.inprocess(Identity("jane"))
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    body = await (await transport.send(Request("GET", "/apis", headers={"accept": accept}))).read()
    assert b'"outside.test.io"' in body
    assert b'"taste"' in body
    plain = await (await transport.send(Request("GET", "/apis/outside.test.io/v1"))).read()
    assert b'"flavors/taste"' in plain


async def test_a_dead_backend_is_told_and_harms_nobody(client: Client, server: ApiServer, pki: Pki):
    await available(client)
    await client.delete(SERVICES, "flavors", "default")
    with pytest.raises(ApiError, match="cannot be reached") as caught:
        await client.get(FLAVORS, "sweet", "default")
    assert caught.value.status == 503
    assert await client.list(SERVICES, namespace="default") is not None


async def test_websockets_pass_through(client: Client, server: ApiServer, pki: Pki):
    await available(client)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca.cert))
    tls.load_cert_chain(pki.server.cert, pki.server.key)
    tls.verify_mode = ssl.CERT_OPTIONAL
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    await server.serve(sock, tls)
    admin = pki.client("kubernetes-admin", ("system:masters",))
    mine = ssl.create_default_context(cafile=str(pki.ca.cert))
    mine.load_cert_chain(admin.cert, admin.key)
    path = "/apis/outside.test.io/v1/namespaces/default/flavors/sweet/taste"
    url = f"https://localhost:{sock.getsockname()[1]}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, ssl=mine, protocols=["echo.test"]) as stream,
    ):
        assert stream.protocol == "echo.test"
        await stream.send_bytes(b"\x00hello")
        assert (await stream.receive_bytes()) == b"\x00hello"
    async with aiohttp.ClientSession() as session:
        anonymous = ssl.create_default_context(cafile=str(pki.ca.cert))
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(url, ssl=anonymous)
        assert caught.value.status == 401
