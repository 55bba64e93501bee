"""Connections to a port of a guest.

Into the pod's network namespace where there is one: a socket belongs to the namespace that it was made in, so a thread
makes it there and the loop uses it. Without a namespace the guest is on the VMM's own user-mode network, and the
driver says at which local address the port can be reached for the time of the stream.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from typing import Final

from aiohttp import WSCloseCode, web

from anyvisor.agent.machine import Machine
from anyvisor.agent.network import interfaces, namespace
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.streams import MESSAGE_BYTES, carry, refusal, upgrade
from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.hri.errors import HriError, NotImplementedByDriver
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_GUEST_PORT, OpenStreamRequest

TCP, UDP = "tcp", "udp"
CONNECT_SECONDS: Final = 10.0
_KINDS: Final = {TCP: socket.SOCK_STREAM, UDP: socket.SOCK_DGRAM}


class ForwardError(Exception):
    """The port cannot be reached; `status` is the HTTP status, the message a sentence."""

    def __init__(self, status: type[web.HTTPException], message: str) -> None:
        super().__init__(message)
        self.status = status


async def serve(request: web.Request, context: NodeContext, machine: Machine) -> web.StreamResponse:
    """Answer a request for a websocket to `port` by `protocol` (tcp or udp; one message is one datagram)."""
    try:
        port, protocol = _wanted(request.query.get("port", ""), request.query.get("protocol", TCP))
        ended = machine.forwards.enter()
        if ended is None:
            raise ForwardError(web.HTTPTooManyRequests, "too many connections to this guest are open; close some")
    except ForwardError as error:
        raise refusal(error.status, str(error)) from error
    try:
        async with _connected(context, machine, port, protocol) as connection:
            websocket = await upgrade(request, MESSAGE_BYTES)
            why = await carry(websocket, connection, ended, datagrams=protocol == UDP)
    except ForwardError as error:
        raise refusal(error.status, str(error)) from error
    finally:
        machine.forwards.leave(ended)
    await websocket.close(code=WSCloseCode.GOING_AWAY if why else WSCloseCode.OK, message=why.encode()[:120])
    return websocket


def _wanted(port: str, protocol: str) -> tuple[int, str]:
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port[:6]) < 1 << 16:
        raise ForwardError(web.HTTPBadRequest, "a port is a number from 1 to 65535")
    if protocol not in _KINDS:
        raise ForwardError(web.HTTPBadRequest, "the protocol is tcp or udp")
    return int(port), protocol


@asynccontextmanager
async def _connected(context: NodeContext, machine: Machine, port: int, protocol: str) -> AsyncGenerator[socket.socket]:
    netns = await context.launchers.network_namespace(machine.record.pod_uid)
    if netns is None:
        async with _through_driver(context, machine, port, protocol) as connection:
            yield connection
        return
    try:
        made, address = await _socket(netns, context.vmi(machine.id) or {}, protocol)
    finally:
        os.close(netns)
    with made:
        await _connect(made, address, port, protocol)
        yield made


async def _socket(netns: int, vmi: Json, protocol: str) -> tuple[socket.socket, str]:
    """A socket from which the guest's address can be reached, and that address."""
    try:
        address = _translated(vmi)
        if address:
            make = partial(_make, address, protocol)
            return await namespace.inside(netns, make, socket.socket.close), address
        address = _own_address(vmi)
        return _make(address, protocol), address
    except OSError as error:
        raise ForwardError(web.HTTPBadGateway, f"the guest's network cannot be reached: {error.strerror}") from error


def _translated(vmi: Json) -> str:
    """The guest's address inside the pod's namespace, when its first interface is behind address translation."""
    declared = list_at(vmi, "spec", "domain", "devices", "interfaces")
    if not declared or "masquerade" not in declared[0]:
        return ""
    try:
        return str(interfaces.read(vmi)[0].guest)
    except (OpenError, IndexError) as error:
        raise ForwardError(web.HTTPBadGateway, f"the guest's network cannot be reached: {error}") from error


def _own_address(vmi: Json) -> str:
    """The address that the guest has in the network of pods."""
    found = list_at(vmi, "status", "interfaces")
    text = text_at(found[0], "ipAddress") if found else ""
    try:
        return str(ip_address(text))
    except ValueError:
        raise ForwardError(
            web.HTTPConflict, "the guest reports no IP address yet (status.interfaces); wait until it has one"
        ) from None


def _make(address: str, protocol: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, _KINDS[protocol] | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


async def _connect(connection: socket.socket, address: str, port: int, protocol: str) -> None:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except TimeoutError:
        why = f"the guest did not answer at port {port}/{protocol} within {CONNECT_SECONDS:.0f} s"
        raise ForwardError(web.HTTPBadGateway, f"{why}; is its network up?") from None
    except OSError as error:
        raise ForwardError(web.HTTPBadGateway, _why(error, port, protocol)) from error


def _why(error: OSError, port: int, protocol: str) -> str:
    match error.errno:
        case errno.ECONNREFUSED:
            return f"nothing listens on port {port}/{protocol} of the guest"
        case errno.EHOSTUNREACH:
            return f"the guest does not answer at port {port}/{protocol}: its network is not up (yet)"
        case _:
            return f"the guest cannot be reached at port {port}/{protocol}: {error.strerror or error}"


@asynccontextmanager
async def _through_driver(
    context: NodeContext, machine: Machine, port: int, protocol: str
) -> AsyncGenerator[socket.socket]:
    """By the VMM's user-mode network: the driver opens a local address for the time of the stream."""
    if not list_at(object_at(context.vmi(machine.id) or {}, "spec", "domain", "devices"), "interfaces"):
        raise ForwardError(web.HTTPConflict, "this guest has no network interface")
    session = context.session_of(machine.record)
    if session is None:
        raise ForwardError(web.HTTPServiceUnavailable, f"driver {machine.record.driver} does not answer; try again")
    request = OpenStreamRequest(machine_id=machine.id, kind=STREAM_KIND_GUEST_PORT, port=port, transport=protocol)
    try:
        answer = await session.client.open_stream(request)
    except NotImplementedByDriver as error:
        why = "this guest is on its VMM's user-mode network, which takes no connections; run anyvisor as root"
        raise ForwardError(web.HTTPNotImplemented, why) from error
    except HriError as error:
        raise ForwardError(web.HTTPBadGateway, error.message) from error
    try:
        address, reached = _local(answer.address)
        with _make(address, protocol) as connection:
            await _connect(connection, address, reached, protocol)
            yield connection
    finally:
        with contextlib.suppress(HriError):
            await session.client.close_stream(machine.id, answer.stream_id)


def _local(text: str) -> tuple[str, int]:
    """The address and port in a driver's answer, which must be on this host."""
    host, _, port = text.rpartition(":")
    try:
        address = ip_address(host.strip("[]"))
        number = int(port)
    except ValueError:
        address, number = None, 0
    if address is None or not address.is_loopback or not 0 < number < 1 << 16:
        raise ForwardError(web.HTTPBadGateway, f"the driver named {text[:80]!r}, which is no port of this host")
    return str(address), number
