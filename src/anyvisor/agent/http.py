"""The agent's HTTP interface, for the gateway and the API server: streams, verbs, logs, metrics.

On a unix socket the kernel says who asks, over TLS (`remote.py`) the client's certificate; nobody else is answered.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

from aiohttp import WSCloseCode, web
from prometheus_client import CollectorRegistry, generate_latest

from anyvisor.agent import display, forward, linux, machine_metrics, usb, vsock
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.guest import http as guest_http
from anyvisor.agent.guest.protocol import GuestAgentError
from anyvisor.agent.machine import Machine, serial_text
from anyvisor.agent.node_context import NodeContext
from anyvisor.agent.serial import ConsoleClient
from anyvisor.agent.stats import Sampler, usage
from anyvisor.agent.streams import chunks, refusal, upgrade
from anyvisor.api.exposition import CONTENT_TYPE
from anyvisor.hri.errors import DriverUnavailable, HriError, MachineNotFound
from anyvisor.hri.peers import PeerPolicy
from anyvisor.hri.v1.types_pb2 import Endpoint, Operation, Phase
from anyvisor.kube.events import EventKind

log = logging.getLogger(__name__)

CONSOLE_LOG_CONTAINER: Final = "guest-console-log"
LOG_TAIL_BYTES: Final = 1024 * 1024
INPUT_MESSAGE_BYTES: Final = 64 * 1024

CONTEXT: Final = web.AppKey("context", NodeContext)
METRICS: Final = web.AppKey("metrics", CollectorRegistry)
SAMPLER: Final = web.AppKey("sampler", Sampler)

_STATUS: Final = {
    "NOT_FOUND": 404,
    "FAILED_PRECONDITION": 409,
    "INVALID_ARGUMENT": 400,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "RESOURCE_EXHAUSTED": 429,
    "DEADLINE_EXCEEDED": 504,
}


def application(
    context: NodeContext, metrics: CollectorRegistry, allows: Callable[[web.Request], bool]
) -> web.Application:
    """The routes; who is not allowed gets no answer but that."""
    app = web.Application(middlewares=[_peer_check(allows)])
    app[CONTEXT] = context
    app[METRICS] = metrics
    app[SAMPLER] = Sampler(context)
    app.router.add_get("/healthz", _healthz)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/v1/stats", _stats)
    app.router.add_get("/v1/machines", _machines)
    app.router.add_get("/v1/machines/{id}/streams/console", _console)
    app.router.add_get("/v1/machines/{id}/streams/vnc", _vnc)
    app.router.add_get("/v1/machines/{id}/streams/portforward", _portforward)
    app.router.add_get("/v1/machines/{id}/streams/usbredir", _usbredir)
    app.router.add_get("/v1/machines/{id}/streams/vsock", _vsock)
    app.router.add_get("/v1/machines/{id}/streams/{kind}", _no_stream)
    for verb in _VERBS:
        app.router.add_put(f"/v1/machines/{{id}}/{verb}", _verb)
    for question in guest_http.QUESTIONS:
        app.router.add_get(f"/v1/machines/{{id}}/{question}", _guest_question)
    for verb in guest_http.VERBS:
        app.router.add_put(f"/v1/machines/{{id}}/{verb}", _guest_verb)
    app.router.add_get("/v1/pods/{uid}/log", _log)
    return app


def local_peers(uids: Collection[int]) -> Callable[[web.Request], bool]:
    """Allow those at a unix socket who run as one of `uids`, as root or as ourselves."""
    policy = PeerPolicy(frozenset({0, os.geteuid(), *uids}))

    def allows(request: web.Request) -> bool:
        transport = request.transport
        peer = transport.get_extra_info("socket") if transport is not None else None
        return peer is not None and policy.allows(peer)

    return allows


def _peer_check(allows: Callable[[web.Request], bool]) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def check(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not allows(request):
            raise web.HTTPForbidden(text="only the control plane of this instance may ask the agent\n")
        return await handler(request)

    return check


async def listen(path: Path, app: web.Application, uids: Collection[int]) -> web.AppRunner:
    """Serve on a unix socket that the given users (and root) can reach; the runner is the caller's to clean up."""
    listener = _bind(path, reachable=bool(uids))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner


def _bind(path: Path, *, reachable: bool) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o111 if reachable else 0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _metrics(request: web.Request) -> web.Response:
    """Of the agent itself, and of all machines."""
    samples = await request.app[SAMPLER].read()
    machines = await asyncio.to_thread(machine_metrics.render, request.app[CONTEXT].node, samples)
    return web.Response(body=generate_latest(request.app[METRICS]) + machines, headers={"content-type": CONTENT_TYPE})


async def _stats(request: web.Request) -> web.Response:
    samples = await request.app[SAMPLER].read()
    return web.json_response({"items": [usage(sample) for sample in samples.machines], "silent": dict(samples.silent)})


async def _machines(request: web.Request) -> web.Response:
    context = request.app[CONTEXT]
    return web.json_response({"items": [_row(context, machine) for machine in context.machines.values()]})


def _row(context: NodeContext, machine: Machine) -> dict[str, Any]:
    record = machine.record
    session = context.session_of(record)
    state = session.states.get(machine.id) if session is not None else None
    row: dict[str, Any] = {
        "id": machine.id,
        "namespace": record.namespace,
        "name": record.name,
        "podUID": record.pod_uid,
        "pid": record.pid,
        "driver": record.driver,
        "alive": machine.alive,
        "stage": record.stage.value,
        "state": Phase.Name(state.phase).removeprefix("PHASE_") if state is not None else "",
        "message": state.message if state is not None else "",
    }
    if record.end is not None:
        row["endReason"] = record.end.reason
        row["message"] = record.end.message
    return row


def _machine(request: web.Request) -> tuple[NodeContext, Machine]:
    context = request.app[CONTEXT]
    machine = context.machines.get(request.match_info["id"])
    if machine is None:
        raise web.HTTPNotFound(text="no machine of that id runs on this node\n")
    return context, machine


async def _verb(request: web.Request) -> web.Response:
    context, machine = _machine(request)
    verb = request.path.rpartition("/")[2]
    session = context.session_of(machine.record)
    try:
        if session is None or not session.synced:
            raise DriverUnavailable(f"driver {machine.record.driver} does not answer; try again in a moment")
        if machine.id not in session.states:
            raise MachineNotFound("the machine is just being taken over; try again in a moment")
        operation = await _VERBS[verb](session, machine)
        if operation is not None:
            await session.finished(operation)
    except HriError as error:
        return web.json_response(
            {"reason": error.code, "message": error.message}, status=_STATUS.get(error.status, 500)
        )
    reason, sentence = _EVENTS[verb]
    context.event(machine, EventKind.NORMAL, reason, sentence)
    context.queue.add(machine.id)
    return web.json_response({})


async def _pause(session: DriverSession, machine: Machine) -> Operation:
    record = machine.record
    return await session.client.pause(machine.id, generation=record.generation, minor=record.hri_minor)


async def _unpause(session: DriverSession, machine: Machine) -> Operation:
    record = machine.record
    return await session.client.resume(machine.id, generation=record.generation, minor=record.hri_minor)


async def _reset(session: DriverSession, machine: Machine) -> Operation:
    record = machine.record
    return await session.client.reset(machine.id, generation=record.generation, minor=record.hri_minor)


async def _softreboot(session: DriverSession, machine: Machine) -> Operation | None:
    """By the guest's own agent where there is one, else by the power button."""
    if session.states[machine.id].guest_agent.connected:
        try:
            return await machine.guest.reboot()
        except GuestAgentError as error:
            log.info("machine %s: the power button is pressed, as %s", machine.id, error)
    record = machine.record
    return await session.client.stop(machine.id, generation=record.generation, minor=record.hri_minor, reboot=True)


_VERBS: Final[dict[str, Callable[[DriverSession, Machine], Awaitable[Operation | None]]]] = {
    "pause": _pause,
    "unpause": _unpause,
    "reset": _reset,
    "softreboot": _softreboot,
}
_EVENTS: Final = {
    "pause": ("Paused", "the guest was paused by a user"),
    "unpause": ("Unpaused", "the guest was resumed by a user"),
    "reset": ("Reset", "the guest was reset by a user"),
    "softreboot": ("SoftRebooted", "the guest was asked to reboot by a user"),
}


def _connected_guest(request: web.Request) -> Machine:
    """The machine, whose guest's agent is connected."""
    context, machine = _machine(request)
    session = context.session_of(machine.record)
    state = session.states.get(machine.id) if session is not None else None
    if not machine.endpoints.of_purpose(Endpoint.PURPOSE_GUEST_AGENT):
        raise web.HTTPNotImplemented(text="the hypervisor of this machine has no channel to an agent in the guest\n")
    if state is None or not state.guest_agent.connected:
        raise web.HTTPConflict(text="no agent runs in the guest: install and start one there\n")
    return machine


async def _guest_question(request: web.Request) -> web.Response:
    return await guest_http.question(request, _connected_guest(request).guest)


async def _guest_verb(request: web.Request) -> web.Response:
    return await guest_http.verb(request, _connected_guest(request).guest)


async def _console(request: web.Request) -> web.StreamResponse:
    _, machine = _machine(request)
    if not machine.endpoints.of_purpose(Endpoint.PURPOSE_CONSOLE):
        raise refusal(web.HTTPNotFound, "this machine has no serial console")
    shared = request.query.get("shared") == "true"
    client = machine.console.share() if shared else machine.console.open()
    if client is None:
        raise refusal(web.HTTPTooManyRequests, "too many clients share this console; close some")
    try:
        websocket = await upgrade(request, INPUT_MESSAGE_BYTES)
    except BaseException:
        client.close()
        raise
    reading = asyncio.ensure_future(_from_guest(client, websocket))
    try:
        await _to_guest(client, websocket)
    finally:
        client.end("the client left")
        client.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return websocket


async def _no_stream(request: web.Request) -> web.StreamResponse:
    _machine(request)
    kind = request.match_info["kind"][:20]
    raise refusal(web.HTTPNotImplemented, f"no hypervisor of this node has a stream of the kind {kind}")


async def _vnc(request: web.Request) -> web.StreamResponse:
    _, machine = _machine(request)
    return await display.serve(request, machine.endpoints, machine.viewers)


async def _portforward(request: web.Request) -> web.StreamResponse:
    return await forward.serve(request, *_machine(request))


async def _usbredir(request: web.Request) -> web.StreamResponse:
    _, machine = _machine(request)
    return await usb.serve(request, machine.endpoints, machine.usb_clients)


async def _vsock(request: web.Request) -> web.StreamResponse:
    context, machine = _machine(request)
    return await vsock.serve(request, context.vmi(machine.id) or {}, machine.vsock_clients)


async def _from_guest(client: ConsoleClient, websocket: web.WebSocketResponse) -> None:
    while data := await client.read():
        await websocket.send_bytes(data)
    reason = client.closed.encode()[:120]
    await websocket.close(code=WSCloseCode.GOING_AWAY, message=reason)


async def _to_guest(client: ConsoleClient, websocket: web.WebSocketResponse) -> None:
    async for data in chunks(websocket):
        await client.write(data)


async def _log(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    pod_uid = request.match_info["uid"]
    container = request.query.get("container", "")
    machine = next((m for m in context.machines.values() if m.record.pod_uid == pod_uid), None)
    response = web.StreamResponse(headers={"content-type": "text/plain; charset=utf-8"})
    if container == CONSOLE_LOG_CONTAINER:
        if machine is None:
            raise web.HTTPNotFound(text="the pod has no guest console any more\n")
        text = await asyncio.to_thread(serial_text, machine, context.store)
    else:
        path = context.launchers.log_path(pod_uid)
        if not path:
            raise web.HTTPNotFound(text="this node has no log of that pod\n")
        text = await asyncio.to_thread(_read_tail, path)
    await response.prepare(request)
    await response.write(_tail(text, request.query.get("tailLines")))
    if request.query.get("follow") == "true" and machine is not None:
        if container == CONSOLE_LOG_CONTAINER:
            await _follow_console(machine, response)
        else:
            await _follow_file(machine, response)
    await response.write_eof()
    return response


def _read_tail(path: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - LOG_TAIL_BYTES, 0))
            return file.read(LOG_TAIL_BYTES)
    except OSError as error:
        return f"the log cannot be read: {error.strerror}\n".encode()


def _tail(text: bytes, lines: str | None) -> bytes:
    if lines is None or not lines.isdecimal():
        return text
    wanted = min(int(lines), LOG_TAIL_BYTES)
    return b"".join(text.splitlines(keepends=True)[-wanted:]) if wanted else b""


async def _follow_console(machine: Machine, response: web.StreamResponse) -> None:
    client = machine.console.follow()
    try:
        while data := await client.read():
            await response.write(data)
    finally:
        client.close()


async def _follow_file(machine: Machine, response: web.StreamResponse) -> None:
    """What the launcher writes from now on, until it ends."""
    launcher = machine.launcher
    if launcher is None or not launcher.log:
        return
    descriptor = os.open(launcher.log, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    watch = linux.Watch.open(descriptor)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        ended = asyncio.ensure_future(linux.readable(launcher.pidfd))
        try:
            while True:
                written = asyncio.ensure_future(watch.changed())
                await asyncio.wait((written, ended), return_when=asyncio.FIRST_COMPLETED)
                written.cancel()
                await asyncio.gather(written, return_exceptions=True)
                while data := os.read(descriptor, 65536):
                    await response.write(data)
                if ended.done():
                    return
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
    finally:
        watch.close()
        os.close(descriptor)
