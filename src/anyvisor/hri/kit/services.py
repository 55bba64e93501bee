"""The gRPC services over `Core`: one line per method, errors turned into statuses in one place."""

# ruff: noqa: N802 - method names are those of the proto

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from anyvisor.hri.errors import HriError
from anyvisor.hri.kit.core import Core
from anyvisor.hri.v1 import identity_pb2 as identity
from anyvisor.hri.v1 import machine_pb2 as machine
from anyvisor.hri.v1 import node_pb2 as node
from anyvisor.hri.v1 import stats_pb2 as stats
from anyvisor.hri.v1 import stream_pb2 as streams
from anyvisor.hri.v1.identity_grpc import IdentityBase
from anyvisor.hri.v1.machine_grpc import MachineServiceBase
from anyvisor.hri.v1.node_grpc import NodeBase
from anyvisor.hri.v1.stats_grpc import StatsBase
from anyvisor.hri.v1.stream_grpc import StreamBase
from anyvisor.hri.v1.types_pb2 import MachineState, Operation
from anyvisor.hri.wire import to_grpc

log = logging.getLogger("anyvisor.hri.kit")
_Q = TypeVar("_Q")
_A = TypeVar("_A")


async def _receive(stream: Stream[_Q, _A]) -> _Q:
    try:
        request = await stream.recv_message()
    except (DecodeError, NotImplementedError, AssertionError):
        raise GRPCError(Status.INVALID_ARGUMENT, "the request is not a message of this method") from None
    if request is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the call carried no message")
    return request


async def _unary(stream: Stream[_Q, _A], answer: Callable[[_Q], Awaitable[_A]]) -> None:
    request = await _receive(stream)
    try:
        response = await answer(request)
    except HriError as error:
        raise to_grpc(error) from None
    except Exception as error:
        log.exception("a call failed")
        raise GRPCError(Status.UNKNOWN, f"the driver failed: {type(error).__name__}: {error}") from None
    await stream.send_message(response)


async def _streaming(stream: Stream[_Q, _A], items: Callable[[_Q], AsyncGenerator[_A]]) -> None:
    request = await _receive(stream)
    try:
        async with contextlib.aclosing(items(request)) as found:
            async for item in found:
                await stream.send_message(item)
    except HriError as error:
        raise to_grpc(error) from None


class IdentityService(IdentityBase):
    """Identity over a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def GetInfo(self, stream: Stream[identity.GetInfoRequest, identity.GetInfoResponse]) -> None:
        await _unary(stream, lambda _: self._core.get_info())

    async def Probe(self, stream: Stream[identity.ProbeRequest, identity.ProbeResponse]) -> None:
        await _unary(stream, lambda _: self._core.probe())

    async def ListEndpoints(
        self, stream: Stream[identity.ListEndpointsRequest, identity.ListEndpointsResponse]
    ) -> None:
        await _unary(stream, lambda request: self._core.list_endpoints(request.machine_id))


class NodeService(NodeBase):
    """Node over a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def WatchNode(self, stream: Stream[node.WatchNodeRequest, node.NodeFacts]) -> None:
        await _streaming(stream, lambda _: self._core.watch_node())


class MachineService(MachineServiceBase):
    """MachineService over a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def Prepare(self, stream: Stream[machine.PrepareRequest, machine.PrepareResponse]) -> None:
        await _unary(stream, self._core.prepare)

    async def Start(self, stream: Stream[machine.StartRequest, Operation]) -> None:
        await _unary(stream, self._core.start)

    async def Stop(self, stream: Stream[machine.StopRequest, Operation]) -> None:
        await _unary(stream, self._core.stop)

    async def Reset(self, stream: Stream[machine.ResetRequest, Operation]) -> None:
        await _unary(stream, self._core.reset)

    async def Pause(self, stream: Stream[machine.PauseRequest, Operation]) -> None:
        await _unary(stream, self._core.pause)

    async def Resume(self, stream: Stream[machine.ResumeRequest, Operation]) -> None:
        await _unary(stream, self._core.resume)

    async def Destroy(self, stream: Stream[machine.DestroyRequest, machine.DestroyResponse]) -> None:
        await _unary(stream, self._core.destroy)

    async def Adopt(self, stream: Stream[machine.AdoptRequest, machine.AdoptResponse]) -> None:
        await _unary(stream, self._core.adopt)

    async def Inspect(self, stream: Stream[machine.InspectRequest, MachineState]) -> None:
        await _unary(stream, lambda request: self._core.inspect(request.machine_id))

    async def Watch(self, stream: Stream[machine.WatchRequest, machine.Event]) -> None:
        await _streaming(stream, self._core.watch)

    async def Apply(self, stream: Stream[machine.ApplyRequest, Operation]) -> None:
        await _unary(stream, self._core.apply)

    async def GetOperation(self, stream: Stream[machine.GetOperationRequest, Operation]) -> None:
        await _unary(stream, lambda request: self._core.get_operation(request.operation_id))

    async def CancelOperation(self, stream: Stream[machine.CancelOperationRequest, Operation]) -> None:
        await _unary(stream, lambda request: self._core.cancel_operation(request.operation_id))


class StreamService(StreamBase):
    """Stream over a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def Open(self, stream: Stream[streams.OpenStreamRequest, streams.OpenStreamResponse]) -> None:
        await _unary(stream, self._core.open_stream)

    async def Close(self, stream: Stream[streams.CloseStreamRequest, streams.CloseStreamResponse]) -> None:
        async def close(request: streams.CloseStreamRequest) -> streams.CloseStreamResponse:
            await self._core.close_stream(request.stream_id, request.machine_id)
            return streams.CloseStreamResponse()

        await _unary(stream, close)


class StatsService(StatsBase):
    """Stats over a core."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def Get(self, stream: Stream[stats.GetStatsRequest, stats.GetStatsResponse]) -> None:
        await _unary(stream, lambda request: self._core.get_stats(request.machine_ids))
