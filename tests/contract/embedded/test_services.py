"""Services against the real API server in process: slices follow pods, rules follow slices, and who cannot says so."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api.meta import list_at
from anyvisor.embedded import identities
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.services import cache
from anyvisor.embedded.services.controller import EndpointSlices
from anyvisor.embedded.services.proxy import ServiceProxy
from anyvisor.embedded.services.rules import Ground
from anyvisor.embedded.services.run import serve
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.resources import ENDPOINT_SLICES, EVENTS, PODS, SERVICES

Json = dict[str, Any]
NETWORK = IPv4Network("10.99.0.0/24")
GROUND = Ground("t", "avb0", IPv4Network("10.70.0.0/22"), NETWORK)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[ApiServer]:
    """An API server with the controller of EndpointSlices."""
    async with ApiServer(ServerConfig(database=tmp_path / "db", service_network=NETWORK)) as running:
        slices = EndpointSlices(running, Client(running.inprocess(identities.ENDPOINT_SLICES)))
        task = asyncio.create_task(slices.run())
        yield running
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server.inprocess(Identity("admin", (MASTERS,)).with_authenticated()))


async def eventually(done: Callable[[], Any]) -> Any:
    async with asyncio.timeout(15):
        while not (found := await done()):
            await asyncio.sleep(0.02)
    return found


async def make_pod(client: Client, name: str, address: str, ready: bool = True) -> None:
    labels = {"kubevirt.io": "virt-launcher", "app": "web"}
    containers = [{"name": "compute", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}]
    await client.create(
        PODS, {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": {"containers": containers}}
    )
    await set_status(client, name, {"podIP": address, "phase": "Running"}, ready=ready)


async def set_status(client: Client, name: str, status: Json, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    await client.patch(PODS, name, "default", {"status": {**status, "conditions": conditions}}, subresource="status")


async def make_service(client: Client, **spec: Any) -> Json:
    ports = [{"port": 80, "targetPort": "http"}]
    selected = {"selector": {"app": "web"}, "ports": ports, **spec}
    return await client.create(SERVICES, {"metadata": {"name": "web", "namespace": "default"}, "spec": selected})


async def endpoints(client: Client) -> dict[str, bool]:
    """Address -> whether it is ready."""
    found = list_at(await client.list(ENDPOINT_SLICES, "default"), "items")
    return {
        endpoint["addresses"][0]: endpoint["conditions"]["ready"]
        for each in found
        for endpoint in each.get("endpoints") or ()
    }


async def test_slices_follow_services_and_pods(client: Client) -> None:
    await make_pod(client, "one", "10.70.0.2")
    await make_service(client)

    def is_now(wanted: dict[str, bool]) -> Callable[[], Any]:
        async def same() -> bool:
            return await endpoints(client) == wanted

        return same

    await eventually(is_now({"10.70.0.2": True}))
    await make_pod(client, "two", "10.70.0.3", ready=False)
    await eventually(is_now({"10.70.0.2": True, "10.70.0.3": False}))
    await set_status(client, "two", {}, ready=True)
    await eventually(is_now({"10.70.0.2": True, "10.70.0.3": True}))
    await client.patch(PODS, "one", "default", {"metadata": {"labels": {"app": "other"}}})
    await eventually(is_now({"10.70.0.3": True}))
    [held] = list_at(await client.list(ENDPOINT_SLICES, "default"), "items")
    assert held["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    await client.delete(ENDPOINT_SLICES, held["metadata"]["name"], "default")
    await eventually(is_now({"10.70.0.3": True}))
    await client.delete(SERVICES, "web", "default")
    await eventually(is_now({}))


async def test_rules_follow(client: Client) -> None:
    loaded: list[str] = []
    changed = asyncio.Event()
    async with EventRecorder(client, "test", "host") as events, cache.follow(client, changed.set) as found:
        proxy = ServiceProxy(found, events, loaded.append)
        task = asyncio.create_task(proxy.run(GROUND, changed))

        def says(text: str) -> Callable[[], Any]:
            async def said() -> bool:
                return bool(loaded) and text in loaded[-1]

            return said

        await eventually(says("table ip t"))
        service = await make_service(client, type="NodePort")
        node_port = service["spec"]["ports"][0]["nodePort"]
        await eventually(
            says(f"closed_node_ports {{\n    type inet_proto . inet_service\n    elements = {{ tcp . {node_port}")
        )
        await make_pod(client, "one", "10.70.0.2")
        await eventually(says("dnat ip to 10.70.0.2:8080"))
        count = len(loaded)
        await client.patch(SERVICES, "web", "default", {"metadata": {"annotations": {"a": "b"}}})
        await make_pod(client, "unready", "10.70.0.9", ready=False)
        await client.delete(PODS, "one", "default", grace=0)
        await eventually(says(f"inet_service\n    elements = {{ tcp . {node_port} }}"))
        assert len(loaded) == count + 1, "only what differs is loaded"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_without_a_pod_network_the_service_says_why(client: Client) -> None:
    await make_service(client)
    why = "only root can make network namespaces"
    task = asyncio.create_task(serve("01234567", NETWORK, client, None, lambda: why))

    async def told() -> list[Json]:
        return [
            each
            for each in list_at(await client.list(EVENTS, "default"), "items")
            if each["involvedObject"]["kind"] == "Service"
        ]

    [event] = await eventually(told)
    assert (event["reason"], event["type"]) == ("ServiceNotServed", "Warning")
    assert "only root can make network namespaces; run `anyvisor up` as root" in event["message"]
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
