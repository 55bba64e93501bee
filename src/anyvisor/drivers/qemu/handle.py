"""What Adopt needs of a machine whose Prepare another driver process answered: kept by the agent, bytes to it."""

from typing import Final

import msgspec
from google.protobuf.message import DecodeError

from anyvisor.drivers.qemu.session import FirstRun
from anyvisor.drivers.qemu.translate.devices import device_name
from anyvisor.drivers.qemu.translate.nics import nic_device
from anyvisor.hri.errors import InvalidRequest
from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine

FORM: Final = 2


class _Handle(msgspec.Struct, array_like=True):
    form: int
    prepared: bytes
    """Endpoints, devices, accelerator and profile, as in the answer to Prepare."""
    paused: bool
    links_down: tuple[str, ...]
    balloon: str
    balloon_seconds: int


def make(machine: Machine, response: PrepareResponse) -> bytes:
    """The handle of a machine."""
    remembered = PrepareResponse(
        endpoints=response.endpoints,
        devices=response.devices,
        accelerator=response.accelerator,
        profile=response.profile,
    )
    first = first_run(machine)
    prepared = remembered.SerializeToString(deterministic=True)
    return msgspec.msgpack.encode(
        _Handle(FORM, prepared, first.paused, first.links_down, first.balloon, first.balloon_seconds)
    )


def read(handle: bytes) -> tuple[PrepareResponse, FirstRun]:
    """What a handle says; raises InvalidRequest when this driver has not made it."""
    remembered = PrepareResponse()
    try:
        raw = msgspec.msgpack.decode(handle, type=_Handle)
        remembered.ParseFromString(raw.prepared)
    except (msgspec.DecodeError, DecodeError) as error:
        raise InvalidRequest("the handle was not made by this driver") from error
    if raw.form != FORM:
        raise InvalidRequest(
            f"the handle has form {raw.form}, and this driver reads {FORM}; use the driver that made it"
        )
    return remembered, FirstRun(raw.paused, raw.links_down, raw.balloon, raw.balloon_seconds)


def first_run(machine: Machine) -> FirstRun:
    """How the machine's guest begins."""
    down = tuple(nic_device(nic.id) for nic in machine.nics if nic.link_down)
    polled = [each for each in machine.devices if each.balloon.statistics_seconds]
    balloon, seconds = (device_name(polled[0]), polled[0].balloon.statistics_seconds) if polled else ("", 0)
    return FirstRun(machine.lifecycle.start_paused, down, balloon, seconds)
