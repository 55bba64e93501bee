"""A machine's displays: bytes between a viewer's websocket and the VMM's socket, with back-pressure; nothing is kept.

As the served API has it, the last viewer wins: a new one sends the one before away, unless it asks to keep that.
A shared viewer, such as one who takes a picture, comes beside the others where the VMM serves several.
"""

import asyncio
import contextlib
import socket
from typing import Final

from aiohttp import WSCloseCode, web

from anyvisor.agent.endpoints import EndpointError, Endpoints
from anyvisor.agent.records import EndpointRecord
from anyvisor.agent.streams import chunks, upgrade
from anyvisor.hri.v1.types_pb2 import Endpoint

CHUNK_BYTES: Final = 64 * 1024
MESSAGE_BYTES: Final = 1024 * 1024
"""Bytes of a viewer's message: a clipboard may be in it."""
HOLDER: Final = "a viewer"
TRUE: Final = "true"


class Viewer:
    """One connection to a display."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why it must go."""
        self.gone = asyncio.Event()
        """Set when it has let go of the VMM's socket."""

    def end(self, why: str) -> None:
        """Send it away."""
        if not self.ended.done():
            self.ended.set_result(why)


class Viewers:
    """Who looks at the displays of one machine."""

    def __init__(self) -> None:
        self._present: dict[str, Viewer] = {}
        self._shared: set[Viewer] = set()

    def occupied(self, display: str) -> bool:
        """Whether somebody looks at a display who could be sent away."""
        return display in self._present

    async def enter(self, display: str, viewer: Viewer, *, shared: bool) -> None:
        """Come beside the others, or in the place of the viewer before, who has gone when this returns."""
        if shared:
            self._shared.add(viewer)
            return
        before = self._present.get(display)
        self._present[display] = viewer
        if before is not None:
            before.end("another client opened this display")
            await before.gone.wait()

    def leave(self, display: str, viewer: Viewer) -> None:
        """Forget a viewer."""
        viewer.gone.set()
        self._shared.discard(viewer)
        if self._present.get(display) is viewer:
            del self._present[display]

    def close(self, why: str) -> None:
        """The machine is gone."""
        for viewer in (*self._present.values(), *self._shared):
            viewer.end(why)


async def serve(request: web.Request, endpoints: Endpoints, viewers: Viewers) -> web.StreamResponse:
    """Answer a request for a display's websocket. `device` names the display; empty = the first."""
    endpoint = _display(endpoints, request.query.get("device", ""))
    shared = request.query.get("shared") == TRUE
    keeps = request.query.get("preserveSession") == TRUE or (shared and endpoint.exclusive)
    if keeps and viewers.occupied(endpoint.id):
        raise web.HTTPServiceUnavailable(text="somebody looks at this display; end that session first\n")
    viewer = Viewer()
    try:
        await viewers.enter(endpoint.id, viewer, shared=shared)
        with await _connected(endpoints, endpoint) as connection:
            websocket = await upgrade(request, MESSAGE_BYTES)
            why = await _carry(websocket, connection, viewer.ended)
    finally:
        endpoints.release(endpoint.id)
        viewers.leave(endpoint.id, viewer)
    await websocket.close(code=WSCloseCode.GOING_AWAY, message=why.encode()[:120])
    return websocket


def _display(endpoints: Endpoints, device: str) -> EndpointRecord:
    for endpoint in endpoints.of_purpose(Endpoint.PURPOSE_DISPLAY):
        if device in ("", endpoint.device_id):
            return endpoint
    raise web.HTTPNotImplemented(text=f"this machine has no display {device[:63]!r}\n" if device else "no display\n")


async def _connected(endpoints: Endpoints, endpoint: EndpointRecord) -> socket.socket:
    try:
        return await endpoints.connect(endpoint.id, HOLDER)
    except EndpointError as error:
        raise web.HTTPNotFound(text=f"{error}\n") from error


async def _carry(websocket: web.WebSocketResponse, connection: socket.socket, ended: asyncio.Future[str]) -> str:
    """Until a side ends or the viewer is sent away; returns why."""
    outgoing = asyncio.ensure_future(_from_vmm(connection, websocket))
    incoming = asyncio.ensure_future(_to_vmm(websocket, connection))
    try:
        await asyncio.wait((outgoing, incoming, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (outgoing, incoming):
            task.cancel()
        await asyncio.gather(outgoing, incoming, return_exceptions=True)
    return ended.result() if ended.done() else "the display was closed"


async def _from_vmm(connection: socket.socket, websocket: web.WebSocketResponse) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(connection, CHUNK_BYTES):
            await websocket.send_bytes(data)


async def _to_vmm(websocket: web.WebSocketResponse, connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        async for data in chunks(websocket):
            await loop.sock_sendall(connection, data)
