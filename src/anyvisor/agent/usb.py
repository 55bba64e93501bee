"""USB devices of a user's own machine: bytes of the usbredir protocol between a client and a free channel of the VMM.

A machine has a few channels, one device each; a client takes the first free one for as long as it stays.
"""

from typing import Final

from aiohttp import WSCloseCode, web

from anyvisor.agent.endpoints import EndpointError, Endpoints
from anyvisor.agent.records import EndpointRecord
from anyvisor.agent.streams import MESSAGE_BYTES, Clients, carry, refusal, upgrade
from anyvisor.hri.v1.types_pb2 import Endpoint

HOLDER: Final = "a USB client"


async def serve(request: web.Request, endpoints: Endpoints, clients: Clients) -> web.StreamResponse:
    """Answer a request for a websocket to a channel."""
    endpoint = _free(endpoints)
    ended = clients.enter()
    if ended is None:
        raise refusal(web.HTTPServiceUnavailable, "too many USB clients of this machine; end one of them")
    try:
        with await endpoints.connect(endpoint.id, HOLDER) as connection:
            websocket = await upgrade(request, MESSAGE_BYTES)
            why = await carry(websocket, connection, ended) or "the channel was closed"
    except EndpointError as error:
        raise refusal(web.HTTPNotFound, str(error)) from error
    finally:
        endpoints.release(endpoint.id)
        clients.leave(ended)
    await websocket.close(code=WSCloseCode.GOING_AWAY, message=why.encode()[:120])
    return websocket


def _free(endpoints: Endpoints) -> EndpointRecord:
    channels = endpoints.of_purpose(Endpoint.PURPOSE_USB_REDIRECTION)
    if not channels:
        raise refusal(web.HTTPNotImplemented, "this machine has no channel for USB devices")
    for channel in channels:
        if endpoints.holder(channel.id) is None:
            return channel
    why = f"all {len(channels)} channels for USB devices of this machine are in use; end one of them"
    raise refusal(web.HTTPServiceUnavailable, why)
