"""Connections to a vsock port of a guest, by the kernel of its node (vsock(7))."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from aiohttp import WSCloseCode, web

from anyvisor.agent import linux
from anyvisor.agent.streams import MESSAGE_BYTES, Clients, carry, refusal, upgrade
from anyvisor.api.meta import Json, object_at

CONNECT_SECONDS: Final = 5.0
_FIRST_GUEST: Final = 3
"""Context ids below are the hypervisor's, the loopback's and the host's own."""

MakeSocket = Callable[[], socket.socket]


def make_socket() -> socket.socket:
    """A stream socket of the family vsock."""
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)


async def serve(
    request: web.Request, vmi: Json, clients: Clients, make: MakeSocket = make_socket
) -> web.StreamResponse:
    """Answer a request for a websocket to `port` of the guest."""
    cid, port = _wanted(request, vmi)
    ended = clients.enter()
    if ended is None:
        raise refusal(web.HTTPTooManyRequests, "too many connections to this guest are open; close some")
    try:
        with await _connected(make, cid, port) as connection:
            websocket = await upgrade(request, MESSAGE_BYTES)
            why = await carry(websocket, connection, ended)
    finally:
        clients.leave(ended)
    await websocket.close(code=WSCloseCode.GOING_AWAY if why else WSCloseCode.OK, message=why.encode()[:120])
    return websocket


def _wanted(request: web.Request, vmi: Json) -> tuple[int, int]:
    port, cid = request.query.get("port", ""), object_at(vmi, "status").get("VSOCKCID")
    if not (port.isascii() and port.isdecimal() and len(port) <= 10 and 0 < int(port) < 1 << 32):
        raise refusal(web.HTTPBadRequest, "a vsock port is a number from 1 to 4294967295")
    if request.query.get("tls") == "true":
        why = "the guest has no way to prove who is there, so vsock is served as it is: ask with tls=false"
        raise refusal(web.HTTPNotImplemented, f"{why}, and let the guest's program bring TLS of its own")
    if not isinstance(cid, int) or cid < _FIRST_GUEST:
        raise refusal(web.HTTPNotImplemented, "this machine has no vsock (devices.autoattachVSOCK)")
    return cid, int(port)


async def _connected(make: MakeSocket, cid: int, port: int) -> socket.socket:
    try:
        connection = make()
    except OSError as error:
        why = f"this node has no vsock: {error.strerror}; run: modprobe vhost_vsock"
        raise refusal(web.HTTPBadGateway, why) from error
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await _connect(connection, (cid, port))
    except TimeoutError:
        connection.close()
        why = f"the guest did not answer at vsock port {port} within {CONNECT_SECONDS:.0f} s"
        raise refusal(web.HTTPBadGateway, why) from None
    except OSError as error:
        connection.close()
        raise refusal(web.HTTPBadGateway, _why(error, port)) from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect(connection: socket.socket, address: tuple[int, int]) -> None:
    """As `sock_connect`, which takes every family that it does not know for one with names to resolve."""
    code = connection.connect_ex(address)
    if code == errno.EINPROGRESS:
        await linux.writable(connection.fileno())
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _why(error: OSError, port: int) -> str:
    match error.errno:
        case errno.ECONNREFUSED | errno.ECONNRESET:
            return f"nothing listens on vsock port {port} of the guest"
        case errno.ENODEV | errno.EHOSTUNREACH | errno.ENETUNREACH:
            return "the guest's vsock does not answer: its driver is not loaded (yet)"
        case _:
            return f"vsock port {port} of the guest cannot be reached: {error.strerror or error}"
