"""What all streams of the agent's HTTP interface share: the upgrade to a websocket, and what comes over it."""

from collections.abc import AsyncGenerator
from typing import Final

from aiohttp import WSMsgType, web

PING_SECONDS: Final = 30.0


async def upgrade(request: web.Request, message_bytes: int) -> web.WebSocketResponse:
    """Accept a websocket. What protocol the client offers is accepted as it is: the gateway settled it."""
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    protocols = tuple(word.strip() for word in offered.split(",") if word.strip())
    websocket = web.WebSocketResponse(heartbeat=PING_SECONDS, max_msg_size=message_bytes, protocols=protocols)
    await websocket.prepare(request)
    return websocket


async def chunks(websocket: web.WebSocketResponse) -> AsyncGenerator[bytes]:
    """What the client sends, whatever the frame's type, until it leaves."""
    async for message in websocket:
        if message.type is WSMsgType.BINARY:
            yield message.data
        elif message.type is WSMsgType.TEXT:
            yield message.data.encode()
