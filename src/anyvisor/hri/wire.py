"""gRPC on unix sockets as the HRI uses it: messages capped, peers checked, errors with findings.

grpclib reads whatever length a peer announces; here a stream refuses a message above the cap before it is buffered.
"""

import socket
from asyncio import BaseTransport, Transport
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.encoding.base import StatusDetailsCodecBase
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, H2Protocol, Stream
from h2.config import H2Configuration

from anyvisor.hri.errors import HriError, from_status
from anyvisor.hri.peers import PeerPolicy
from anyvisor.hri.v1.types_pb2 import ErrorDetail, StatusDetails

MAX_MESSAGE_BYTES: Final = 4 << 20
MAX_FINDINGS: Final = 256
MAX_TEXT: Final = 4096
WINDOW: Final = Configuration(http2_connection_window_size=1 << 20, http2_stream_window_size=1 << 18)
"""Flow control: what a peer may send ahead of the reader."""


class LimitedStream(Stream):
    """An HTTP/2 stream that refuses to gather more than one capped message."""

    async def recv_data(self, size: int) -> bytes:
        if size > MAX_MESSAGE_BYTES:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes; {MAX_MESSAGE_BYTES} are allowed")
        return await super().recv_data(size)


class LimitedProtocol(H2Protocol):
    """One connection with capped streams, closed at once when the peer may not speak to us."""

    def __init__(
        self,
        handler: AbstractHandler,
        config: Configuration,
        h2_config: H2Configuration,
        peers: PeerPolicy | None = None,
    ) -> None:
        super().__init__(handler, config, h2_config)
        self._peers = peers

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        connection = self.connection
        factory = partial(LimitedStream, connection, connection._connection, cast(Transport, transport))
        connection.create_stream = factory
        peer = cast(socket.socket | None, transport.get_extra_info("socket"))
        if self._peers is not None and (peer is None or not self._peers.allows(peer)):
            self.drop()

    def drop(self) -> None:
        """Close the connection now, and with it every call on it."""
        if hasattr(self, "processor"):
            self.processor.close("Connection closed")


class DetailsCodec(StatusDetailsCodecBase):
    """`ErrorDetail` in `grpc-status-details-bin`, in the wire form of google.rpc.Status."""

    def encode(self, status: Status, message: str | None, details: Any) -> bytes:
        packed = AnyMessage()
        packed.Pack(cast(ErrorDetail, details))
        return StatusDetails(code=status.value, message=message or "", details=[packed]).SerializeToString()

    def decode(self, status: Status, message: str | None, data: bytes) -> ErrorDetail | None:
        detail = ErrorDetail()
        try:
            for packed in StatusDetails.FromString(data).details:
                if packed.Unpack(detail):
                    return detail
        except DecodeError:
            return None
        return None


def to_grpc(error: HriError) -> GRPCError:
    """The error as it goes over the wire."""
    detail = ErrorDetail(findings=error.findings[:MAX_FINDINGS], operation_id=error.operation_id)
    return GRPCError(Status[error.status], error.message[:MAX_TEXT], detail)


def from_grpc(error: GRPCError) -> HriError:
    """The error as the caller sees it."""
    findings: Sequence[Any] = ()
    operation_id = ""
    if isinstance(error.details, ErrorDetail):
        findings = list(error.details.findings)[:MAX_FINDINGS]
        operation_id = error.details.operation_id[:64]
    return from_status(error.status.name, (error.message or error.status.name)[:MAX_TEXT], findings, operation_id)
