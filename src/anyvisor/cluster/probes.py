"""Where a component answers the kubelet's probes and Prometheus: plain HTTP on a port of its own in its pod.

Nothing secret is told there, but names of VMs are: the chart's network policies let only scrapers reach it. The
kubelet of the pod's own node is always let through.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

_TYPE: Final = CONTENT_TYPE_LATEST


@asynccontextmanager
async def probes(port: int, metrics: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[None]:
    """Answer `/healthz`, `/readyz` and `/metrics` while the block runs; nothing where the port is 0."""
    if not port:
        yield
        return

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def measured(_request: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"content-type": _TYPE})

    app = web.Application()
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", alive)
    app.router.add_get("/metrics", measured)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()
        yield
    finally:
        await runner.cleanup()
