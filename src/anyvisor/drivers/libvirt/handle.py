"""What Adopt needs of a machine whose Prepare another driver process answered: kept by the agent, bytes to it."""

from google.protobuf.message import DecodeError

from anyvisor.hri.errors import InvalidRequest
from anyvisor.hri.v1.machine_pb2 import PrepareResponse


def make(response: PrepareResponse) -> bytes:
    """The handle of a machine: endpoints, devices, accelerator and profile, as in the answer to Prepare."""
    remembered = PrepareResponse(
        endpoints=response.endpoints,
        devices=response.devices,
        accelerator=response.accelerator,
        profile=response.profile,
    )
    return remembered.SerializeToString(deterministic=True)


def read(handle: bytes) -> PrepareResponse:
    """What a handle says; raises InvalidRequest when this driver has not made it."""
    remembered = PrepareResponse()
    try:
        remembered.ParseFromString(handle)
    except DecodeError as error:
        raise InvalidRequest("the handle was not made by this driver") from error
    if not remembered.profile:
        raise InvalidRequest("the handle was not made by this driver: it names no machine type")
    return remembered
