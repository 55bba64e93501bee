"""console, vnc, usbredir, vsock and portforward: whether a stream may be opened, and which."""

from typing import Final

from anyvisor.api.meta import Json, object_at
from anyvisor.gateway.answers import (
    VM,
    VMI,
    Decision,
    PortForward,
    Refused,
    Screenshot,
    Stream,
    bad_request,
    conflict,
    message_of,
    text,
)
from anyvisor.gateway.call import VMS, Call
from anyvisor.gateway.machine import NOT_RUNNING, reachable
from anyvisor.gateway.world import World, is_paused, is_running, phase

PROTOCOLS: Final = ("tcp", "udp")
TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")


def console(call: Call, world: World) -> Decision:
    """Open the serial console; clients take a 400 as "not yet" and try again.

    The newest client sends the one before away, as clients of the reference expect. With `shared=true`, which is
    ours, it comes beside the others: the first writes, all read.
    """
    vmi = world.the_vmi(call)
    if object_at(vmi, "spec", "domain", "devices").get("autoattachSerialConsole") is False:
        raise bad_request("No serial consoles are present.")
    if phase(vmi) == "Failed":
        raise conflict(VMI, call.name, "VMI is in failed status")
    if not is_running(vmi):
        raise bad_request(NOT_RUNNING)
    shared = call.query.get("shared", "") in TRUE
    return _open(call, world, Stream("console", {"shared": "true"} if shared else {}))


def vnc(call: Call, world: World) -> Decision:
    """Open the display; the last one wins unless the present session shall be kept."""
    _must_have_display(world.the_vmi(call))
    keep = call.query.get("preserveSession", "") in TRUE
    return _open(call, world, Stream("vnc", {"preserveSession": "true"} if keep else {}))


def screenshot(call: Call, world: World) -> Decision:
    """Take a picture of the display; every refusal is a plain 500, as clients know it."""
    try:
        _must_have_display(world.the_vmi(call))
        reachable(call, world)
    except Refused as refused:
        raise Refused(text(500, message_of(refused.decision))) from refused
    return Decision(200, screenshot=Screenshot(call.query.get("moveCursor", "") in TRUE))


def usbredir(call: Call, world: World) -> Decision:
    """Open a slot for a redirected USB device."""
    vmi = world.the_vmi(call)
    if object_at(vmi, "spec", "domain", "devices").get("clientPassthrough") is None:
        raise conflict(VMI, call.name, "Not configured with USB Redirection")
    if not is_running(vmi):
        raise bad_request(NOT_RUNNING)
    return _open(call, world, Stream("usbredir"))


def vsock(call: Call, world: World) -> Decision:
    """Open a connection to a vsock port of the guest."""
    vmi = world.the_vmi(call)
    port = _number(call.query.get("port", ""), 2**32 - 1)
    if not object_at(vmi, "status").get("VSOCKCID"):
        raise bad_request("the VMI has no vsock: it needs devices.autoattachVSOCK and the feature gate VSOCK")
    if not is_running(vmi):
        raise bad_request(NOT_RUNNING)
    tls = call.query.get("tls", "true") in TRUE
    return _open(call, world, Stream("vsock", {"port": str(port), "tls": "true" if tls else "false"}))


def portforward(call: Call, world: World) -> Decision:
    """Open a connection to a port of the guest's first interface."""
    if call.resource == VMS and not object_at(world.the_vm(call), "status").get("created"):
        raise conflict(VM, call.name, "VMI is not started")
    vmi = world.the_vmi(call)
    if is_paused(vmi):
        raise conflict(VMI, call.name, "VMI is paused")
    _must_upgrade(call)
    if not 1 <= len(call.arguments) <= 2:
        raise bad_request("the path must end in portforward/PORT or portforward/PORT/PROTOCOL")
    port = _number(call.arguments[0], 65535)
    protocol = call.arguments[1] if len(call.arguments) == 2 else "tcp"
    if protocol not in PROTOCOLS:
        raise bad_request(f"protocol {protocol!r} is not supported: use tcp or udp")
    if not is_running(vmi):
        raise bad_request(NOT_RUNNING)
    return Decision(101, stream=PortForward(port, protocol))


def _must_have_display(vmi: Json) -> None:
    if object_at(vmi, "spec", "domain", "devices").get("autoattachGraphicsDevice") is False:
        raise bad_request("No graphics devices are present.")
    if not is_running(vmi):
        raise bad_request(NOT_RUNNING)


def _open(call: Call, world: World, stream: Stream) -> Decision:
    reachable(call, world)
    _must_upgrade(call)
    return Decision(101, stream=stream)


def _must_upgrade(call: Call) -> None:
    if not call.upgrade:
        raise bad_request(f"{call.verb} is a websocket: the request must ask for the upgrade")


def _number(value: str, most: int) -> int:
    if not (value.isascii() and value.isdecimal()) or len(value) > 10 or not 0 < int(value) <= most:
        raise bad_request(f"port {value[:20]!r} is none: it must be a number from 1 to {most}")
    return int(value)
