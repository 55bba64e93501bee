"""Streams that are endpoints of the machine: the answer to Open says which."""

from collections.abc import Mapping
from typing import Final

from anyvisor.hri.errors import MachineNotFound, NotImplementedByDriver
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.stream_pb2 import (
    STREAM_KIND_CONSOLE,
    STREAM_KIND_DISPLAY,
    OpenStreamRequest,
    OpenStreamResponse,
    StreamKind,
)
from anyvisor.hri.v1.types_pb2 import Endpoint

CONSOLE: Final = "console"
DISPLAY: Final = "display"
_PURPOSES: Final[Mapping[StreamKind, tuple[str, Endpoint.Purpose]]] = {
    STREAM_KIND_CONSOLE: (CONSOLE, Endpoint.PURPOSE_CONSOLE),
    STREAM_KIND_DISPLAY: (DISPLAY, Endpoint.PURPOSE_DISPLAY),
}


def endpoint_of(machine: MachineContext, request: OpenStreamRequest, *served: str) -> OpenStreamResponse:
    """Name the machine's endpoint that is the stream. `served`: the driver's kinds, of `CONSOLE` and `DISPLAY`."""
    kind, purpose = _PURPOSES.get(request.kind, ("", Endpoint.PURPOSE_UNSPECIFIED))
    if kind not in served:
        words = " and ".join(f"{each}s" for each in served)
        raise NotImplementedByDriver(f"only {words} are served as streams; ask for one of them")
    for endpoint in machine.state.endpoints:
        if endpoint.purpose == purpose and request.device_id in ("", endpoint.device_id):
            return OpenStreamResponse(
                stream_id=endpoint.id,
                endpoint_id=endpoint.id,
                protocol=endpoint.protocol,
                protocol_version=endpoint.protocol_version,
            )
    raise MachineNotFound(f"machine {machine.id!r} has no {kind} {request.device_id[:80]!r}")
