"""A machine's displays: bytes between a viewer's websocket and the VMM's socket, with back-pressure; nothing is kept.

As the served API has it, the last viewer wins: a new one sends the one before away, unless it asks to keep that.
A shared viewer, such as one who takes a picture, comes beside the others where the VMM serves several.
"""

import asyncio
import socket
from typing import Final

from aiohttp import WSCloseCode, web

from anyvisor.agent.endpoints import EndpointError, Endpoints
from anyvisor.agent.records import EndpointRecord
from anyvisor.agent.streams import MESSAGE_BYTES, carry, refusal, upgrade
from anyvisor.hri.v1.types_pb2 import Endpoint

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

    def __len__(self) -> int:
        """How many look."""
        return len(self._present) + len(self._shared)

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
        raise refusal(web.HTTPServiceUnavailable, "somebody looks at this display; end that session first")
    viewer = Viewer()
    try:
        await viewers.enter(endpoint.id, viewer, shared=shared)
        with await _connected(endpoints, endpoint) as connection:
            websocket = await upgrade(request, MESSAGE_BYTES)
            why = await carry(websocket, connection, viewer.ended) or "the display was closed"
    finally:
        endpoints.release(endpoint.id)
        viewers.leave(endpoint.id, viewer)
    await websocket.close(code=WSCloseCode.GOING_AWAY, message=why.encode()[:120])
    return websocket


def _display(endpoints: Endpoints, device: str) -> EndpointRecord:
    for endpoint in endpoints.of_purpose(Endpoint.PURPOSE_DISPLAY):
        if device in ("", endpoint.device_id):
            return endpoint
    raise refusal(web.HTTPNotImplemented, f"this machine has no display {device[:63]}".rstrip())


async def _connected(endpoints: Endpoints, endpoint: EndpointRecord) -> socket.socket:
    try:
        return await endpoints.connect(endpoint.id, HOLDER)
    except EndpointError as error:
        raise refusal(web.HTTPNotFound, str(error)) from error
