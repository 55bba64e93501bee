"""A server in the test's own process: what the tests on the wire share."""

import asyncio
import json
from typing import Any

from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.inprocess import InProcessResponse, InProcessTransport
from anyvisor.kube.transport import Request

Json = dict[str, Any]
ADMIN = Identity("admin", ("system:masters",))
DEFAULT = "/api/v1/namespaces/default"
CMS = f"{DEFAULT}/configmaps"


async def call(transport: InProcessTransport, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Send a request and return (status, decoded body)."""
    path, _, query = path.partition("?")
    raw = json.dumps(body).encode() if body is not None else b""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await transport.send(Request(method, path, query, {"content-type": "application/json", **named}, raw))
    return response.status, json.loads(await response.read())


class Stream:
    """A watch, read event by event."""

    def __init__(self, response: InProcessResponse) -> None:
        self._response = response
        self._chunks = aiter(response)
        self._lines: list[bytes] = []

    async def next(self) -> tuple[str, Json]:
        while not self._lines:
            async with asyncio.timeout(30):
                chunk = await anext(self._chunks)
            self._lines.extend(chunk.splitlines())
        event: Json = json.loads(self._lines.pop(0))
        return event["type"], event["object"]

    async def close(self) -> None:
        await self._response.close()


async def watch(transport: InProcessTransport, query: str, path: str = CMS, accept: str = "") -> Stream:
    """Start a watch."""
    response = await transport.send(Request("GET", path, f"watch=true&{query}", {"accept": accept}))
    assert response.status == 200, await response.read()
    return Stream(response)
