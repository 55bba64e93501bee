"""What the tests of this folder work on."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from anyvisor.kube.client import Client
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.resources import VMIS, VMS

Json = dict[str, Any]
TEMPLATE: Json = {"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}}


@dataclass
class Lab:
    url: str
    admin: Client
    asked: list[str]

    def user(self, token: str) -> HttpTransport:
        return HttpTransport(ClientConfig(self.url, token=token))

    async def running(self, name: str, *, owned: bool = False) -> None:
        """Make a VM and its run, as controller and agent would; or a run by itself beside a VM, if not `owned`."""
        vm = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"runStrategy": "Manual", "template": TEMPLATE},
        }
        made = await self.admin.create(VMS, vm)
        owner = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": name, "namespace": "default", "ownerReferences": [owner] if owned else []}
        await self.admin.create(VMIS, {"metadata": metadata, "spec": TEMPLATE["spec"]})
        status = {"phase": "Running", "nodeName": "node1"}
        await self.admin.patch(VMIS, name, "default", {"status": status})
        await self.admin.patch(VMS, name, "default", {"status": {"created": True}}, subresource="status")


async def serve_agent(path: str, asked: list[str]) -> web.AppRunner:
    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path_qs}")
        if "/streams/" not in request.path:
            return web.Response()
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data.upper())
        return socket

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    return runner
