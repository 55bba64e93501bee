"""The HRI as the agent uses it: typed calls with deadlines, errors as types, a watch that resumes by itself.

    async with HriClient("/run/.../hri.sock", fd_socket="/run/.../fd.sock") as driver:
        info = await driver.connect()
        planned = await driver.prepare(machine, needs, generation=1)
        ...
        token = await driver.send_descriptor("control", fd)
        await driver.start(machine.id, generation=1, tokens=[token])

What comes from a driver is hostile until checked: messages are capped (`wire`), the echo of `Prepare` is compared
with what was asked, identities are pinned to the manifest by the caller.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.protocol import H2Protocol

from anyvisor.hri import versions
from anyvisor.hri.descriptors import DescriptorSender
from anyvisor.hri.errors import (
    DeadlineExceeded,
    DriverUnavailable,
    HriError,
    InvalidRequest,
    Refused,
    from_status,
)
from anyvisor.hri.peers import PeerPolicy
from anyvisor.hri.v1 import identity_pb2, machine_pb2, node_pb2, stats_pb2, stream_pb2
from anyvisor.hri.v1.identity_grpc import IdentityStub
from anyvisor.hri.v1.machine_grpc import MachineServiceStub
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.node_grpc import NodeStub
from anyvisor.hri.v1.stats_grpc import StatsStub
from anyvisor.hri.v1.stream_grpc import StreamStub
from anyvisor.hri.v1.types_pb2 import DescriptorToken, Endpoint, MachineState, Operation
from anyvisor.hri.wire import WINDOW, DetailsCodec, LimitedProtocol, from_grpc

_Q = TypeVar("_Q")
_A = TypeVar("_A")

RECONNECT_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that one call may take. A missed deadline says nothing about the machine."""

    quick: float = 5.0
    """GetInfo, Probe, Inspect, streams, operations by id."""
    plan: float = 30.0
    """Prepare and Adopt."""
    accept: float = 10.0
    """The answer to Start, Stop, Apply, ...: accepted, and perhaps already done."""
    destroy: float = 60.0
    operation: float = 60.0
    """Not a call: how long an accepted operation is waited for."""
    stats: float = 10.0


class _Channel(Channel):
    """A channel whose streams are capped, and whose server is checked by its kernel credentials."""

    def __init__(self, path: str, peers: PeerPolicy | None) -> None:
        # grpclib imports ssl conditionally, which hides the type of one parameter that is not used here.
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            path=path, codec=ProtoCodec(), status_details_codec=DetailsCodec(), config=WINDOW
        )
        self._peers = peers

    def _protocol_factory(self) -> H2Protocol:
        inner = super()._protocol_factory()
        return LimitedProtocol(inner.handler, inner.config, inner.h2_config, self._peers)


def new_operation_id() -> str:
    """An id for a new operation. Keep it, and repeat it, when the outcome must be learnt after a lost answer."""
    return os.urandom(12).hex()


class HriClient:
    """One driver. Used as an async context manager; connects on demand and again after the driver's restart."""

    def __init__(
        self,
        hri_socket: str | os.PathLike[str],
        fd_socket: str | os.PathLike[str] | None = None,
        *,
        deadlines: Deadlines | None = None,
        peers: PeerPolicy | None = None,
        core_minor: int = versions.MINOR,
    ) -> None:
        """`core_minor`: the newest that this side speaks."""
        self.deadlines = deadlines or Deadlines()
        self._core_minor = core_minor
        self.minor = core_minor
        """The minor that new machines are spoken to with; set by `connect`."""
        self._path = os.fspath(hri_socket)
        self._channel = _Channel(self._path, peers)
        self._identity = IdentityStub(self._channel)
        self._node = NodeStub(self._channel)
        self._machine = MachineServiceStub(self._channel)
        self._stream = StreamStub(self._channel)
        self._stats = StatsStub(self._channel)
        self._sender = DescriptorSender(fd_socket) if fd_socket is not None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Machines do not care."""
        self._channel.close()
        if self._sender is not None:
            self._sender.close()

    # Identity

    async def connect(self) -> identity_pb2.GetInfoResponse:
        """Learn who the driver is and settle the minor; raises `Refused` (code SKEW) when there is none in common."""
        info = await self.get_info()
        try:
            self.minor = versions.negotiate(info.min_minor, info.max_minor, self._core_minor)
        except versions.VersionSkewError as error:
            raise Refused(f"driver {info.driver} {info.version}: {error}", retry="after_change") from error
        return info

    async def get_info(self) -> identity_pb2.GetInfoResponse:
        """Who the driver is."""
        request = identity_pb2.GetInfoRequest(core_minor=self._core_minor)
        return await self._call(self._identity.GetInfo, request, self.deadlines.quick)

    async def probe(self) -> identity_pb2.ProbeResponse:
        """Whether the driver works."""
        return await self._call(self._identity.Probe, identity_pb2.ProbeRequest(), self.deadlines.quick)

    async def list_endpoints(self, machine_id: str) -> Sequence[Endpoint]:
        """Where the machine's VMM can be reached."""
        request = identity_pb2.ListEndpointsRequest(machine_id=machine_id)
        response = await self._call(self._identity.ListEndpoints, request, self.deadlines.quick)
        return response.endpoints

    async def watch_node(self) -> AsyncGenerator[node_pb2.NodeFacts]:
        """Node facts as they change, until the connection ends (then `DriverUnavailable`)."""
        async for facts in self._listen(self._node.WatchNode, node_pb2.WatchNodeRequest()):
            yield facts

    # Machine

    async def prepare(
        self,
        machine: Machine,
        needs: Sequence[str],
        *,
        generation: int,
        minor: int | None = None,
        operation_id: str | None = None,
    ) -> machine_pb2.PrepareResponse:
        """Plan a machine. Raises `Refused` (code ECHO) when the driver does not confirm every need."""
        request = machine_pb2.PrepareRequest(
            mutation=self._mutation(machine.id, generation, minor, operation_id), machine=machine, needs=needs
        )
        response = await self.call_prepare(request)
        check_echo(needs, response.confirmed)
        return response

    async def call_prepare(self, request: machine_pb2.PrepareRequest) -> machine_pb2.PrepareResponse:
        """Prepare as it is, the echo unchecked."""
        return await self._call(self._machine.Prepare, request, self.deadlines.plan)

    async def start(
        self,
        machine_id: str,
        *,
        generation: int,
        tokens: Sequence[DescriptorToken] = (),
        minor: int | None = None,
        operation_id: str | None = None,
    ) -> Operation:
        """Take the VMM that the agent started, and run its guest."""
        mutation = self._mutation(machine_id, generation, minor, operation_id)
        request = machine_pb2.StartRequest(mutation=mutation, tokens=tokens)
        return await self._call(self._machine.Start, request, self.deadlines.accept)

    async def stop(
        self,
        machine_id: str,
        *,
        generation: int,
        force: bool = False,
        reboot: bool = False,
        minor: int | None = None,
        operation_id: str | None = None,
    ) -> Operation:
        """Ask the guest to shut down (or reboot), or end it."""
        mode = machine_pb2.StopRequest.MODE_FORCE if force else machine_pb2.StopRequest.MODE_REQUEST
        mutation = self._mutation(machine_id, generation, minor, operation_id)
        request = machine_pb2.StopRequest(mutation=mutation, mode=mode, reboot=reboot)
        return await self._call(self._machine.Stop, request, self.deadlines.accept)

    async def reset(
        self, machine_id: str, *, generation: int, minor: int | None = None, operation_id: str | None = None
    ) -> Operation:
        """Hard reset."""
        request = machine_pb2.ResetRequest(mutation=self._mutation(machine_id, generation, minor, operation_id))
        return await self._call(self._machine.Reset, request, self.deadlines.accept)

    async def pause(
        self, machine_id: str, *, generation: int, minor: int | None = None, operation_id: str | None = None
    ) -> Operation:
        """Halt the vCPUs."""
        request = machine_pb2.PauseRequest(mutation=self._mutation(machine_id, generation, minor, operation_id))
        return await self._call(self._machine.Pause, request, self.deadlines.accept)

    async def resume(
        self, machine_id: str, *, generation: int, minor: int | None = None, operation_id: str | None = None
    ) -> Operation:
        """Run the vCPUs again."""
        request = machine_pb2.ResumeRequest(mutation=self._mutation(machine_id, generation, minor, operation_id))
        return await self._call(self._machine.Resume, request, self.deadlines.accept)

    async def destroy(
        self, machine_id: str, *, generation: int, minor: int | None = None, operation_id: str | None = None
    ) -> MachineState:
        """Leave nothing of the machine; the last state that the driver saw (phase unspecified: never knew it)."""
        request = machine_pb2.DestroyRequest(mutation=self._mutation(machine_id, generation, minor, operation_id))
        response = await self._call(self._machine.Destroy, request, self.deadlines.destroy)
        return response.last_state

    async def adopt(
        self,
        machine_id: str,
        handle: bytes,
        *,
        generation: int,
        tokens: Sequence[DescriptorToken] = (),
        pid: int = 0,
        minor: int | None = None,
        operation_id: str | None = None,
    ) -> machine_pb2.AdoptResponse:
        """Give a running VMM to the driver. Raises `MachineNotFound` when nothing answers at its end."""
        request = machine_pb2.AdoptRequest(
            mutation=self._mutation(machine_id, generation, minor, operation_id),
            handle=handle,
            tokens=tokens,
            pid=pid,
        )
        return await self._call(self._machine.Adopt, request, self.deadlines.plan)

    async def inspect(self, machine_id: str) -> MachineState:
        """The whole state, now. Raises `MachineNotFound` when this driver process does not know the machine."""
        request = machine_pb2.InspectRequest(machine_id=machine_id)
        return await self._call(self._machine.Inspect, request, self.deadlines.quick)

    async def apply(
        self,
        machine_id: str,
        change: machine_pb2.ApplyRequest,
        *,
        generation: int,
        tokens: Sequence[DescriptorToken] = (),
        minor: int | None = None,
        operation_id: str | None = None,
    ) -> Operation:
        """One live change: `change` with its oneof set; the rest of it is filled here."""
        request = machine_pb2.ApplyRequest()
        request.CopyFrom(change)
        request.mutation.CopyFrom(self._mutation(machine_id, generation, minor, operation_id))
        request.tokens.extend(tokens)
        return await self._call(self._machine.Apply, request, self.deadlines.accept)

    async def get_operation(self, operation_id: str) -> Operation:
        """What became of an operation."""
        request = machine_pb2.GetOperationRequest(operation_id=operation_id)
        return await self._call(self._machine.GetOperation, request, self.deadlines.quick)

    async def cancel_operation(self, operation_id: str) -> Operation:
        """Cancel it, and learn its outcome."""
        request = machine_pb2.CancelOperationRequest(operation_id=operation_id)
        return await self._call(self._machine.CancelOperation, request, self.deadlines.accept)

    async def watch(self, boot_id: str = "", from_sequence: int = 0) -> AsyncGenerator[machine_pb2.Event]:
        """Events of one connection, until it ends (then `DriverUnavailable`). See `events` for one that resumes."""
        request = machine_pb2.WatchRequest(boot_id=boot_id, from_sequence=from_sequence)
        async for event in self._listen(self._machine.Watch, request):
            yield event

    async def events(self) -> AsyncGenerator[machine_pb2.Event]:
        """Events for ever: reconnects, resumes where it was, and hands out a RESYNC where it cannot.

        Begins with the whole state: RESYNC events up to SYNCED. A caller takes each RESYNC as the truth, and after
        SYNCED a machine that was not named is unknown to the driver (adopt it). A gap in the numbers, which breaks
        the contract, is treated as a lost connection without memory.
        """
        boot_id, expected, failures = "", 0, 0
        while True:
            try:
                async for event in self.watch(boot_id, expected):
                    failures = 0
                    whole = event.kind in (machine_pb2.Event.KIND_RESYNC, machine_pb2.Event.KIND_SYNCED)
                    if not whole and (event.boot_id, event.sequence) != (boot_id, expected):
                        boot_id, expected = "", 0
                        break
                    boot_id, expected = event.boot_id, event.sequence + 1
                    yield event
            except DriverUnavailable:
                pass
            await asyncio.sleep(RECONNECT_SECONDS[min(failures, len(RECONNECT_SECONDS) - 1)])
            failures += 1

    # Streams and descriptors

    async def open_stream(self, request: stream_pb2.OpenStreamRequest) -> stream_pb2.OpenStreamResponse:
        """Where a byte stream of the guest is."""
        return await self._call(self._stream.Open, request, self.deadlines.quick)

    async def close_stream(self, machine_id: str, stream_id: str) -> None:
        """End it."""
        request = stream_pb2.CloseStreamRequest(stream_id=stream_id, machine_id=machine_id)
        await self._call(self._stream.Close, request, self.deadlines.quick)

    async def get_stats(self, machine_ids: Sequence[str] = ()) -> Sequence[stats_pb2.MachineStats]:
        """Counters of the named machines, or of all. Raises `NotImplementedByDriver` where the driver has none."""
        request = stats_pb2.GetStatsRequest(machine_ids=machine_ids)
        return (await self._call(self._stats.Get, request, self.deadlines.stats)).machines

    async def send_descriptor(self, handle: str, fd: int) -> DescriptorToken:
        """Send a copy of `fd` to the driver; the caller keeps and closes its own. The token goes into the next call,
        within 10 seconds."""
        if self._sender is None:
            raise InvalidRequest(f"no fd socket is known for the driver at {self._path}")
        async with _translated("fd.sock", self._path):
            async with asyncio.timeout(self.deadlines.quick):
                return await self._sender.send(handle, fd)

    # How every call is made

    def _mutation(
        self, machine_id: str, generation: int, minor: int | None, operation_id: str | None
    ) -> machine_pb2.Mutation:
        return machine_pb2.Mutation(
            machine_id=machine_id,
            operation_id=operation_id or new_operation_id(),
            generation=generation,
            minor=self.minor if minor is None else minor,
        )

    async def _call(self, method: UnaryUnaryMethod[_Q, _A], request: _Q, seconds: float) -> _A:
        async with _translated(method.name, self._path):
            return await method(request, timeout=seconds)

    async def _listen(self, method: Any, request: Any) -> AsyncGenerator[Any]:
        async with _translated(method.name, self._path), method.open() as stream:
            await stream.send_message(request, end=True)
            async for item in stream:
                yield item
            raise DriverUnavailable(f"the driver at {self._path} ended {method.name}")


class _translated:  # noqa: N801 - reads as a statement
    """Turn what a call can raise into the types of `errors`."""

    def __init__(self, what: str, path: str) -> None:
        self._what = what.rpartition("/")[2]
        self._path = path

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, GRPCError):
            raise from_grpc(error) from error
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded(
                f"the driver at {self._path} did not answer {self._what} in time; it may still act on it"
            ) from error
        # RuntimeError: what uvloop raises for a write to a connection that was just lost.
        if isinstance(error, OSError | StreamTerminatedError | RuntimeError):
            raise DriverUnavailable(f"the driver at {self._path} cannot be reached ({self._what}): {error}") from error
        if isinstance(error, ProtocolError | DecodeError | AssertionError | NotImplementedError | AttributeError):
            raise DriverUnavailable(
                f"the driver at {self._path} broke the protocol in {self._what}: {error}"
            ) from error


def check_echo(needs: Sequence[str], confirmed: Sequence[str]) -> None:
    """The echo rule: what was asked and not confirmed was not understood."""
    missing = sorted(set(needs) - set(confirmed))
    if missing:
        raise from_status(
            "FAILED_PRECONDITION",
            f"the driver did not confirm {', '.join(missing[:8])}: it does not understand or cannot meet them",
        )


def outcome(operation: Operation) -> HriError | None:
    """The error of a failed or cancelled operation; None for a running or done one."""
    if operation.state in (Operation.STATE_RUNNING, Operation.STATE_DONE):
        return None
    status = operation.error_code or "UNKNOWN"
    return from_status(status, operation.message or f"{operation.kind} failed", operation.findings, operation.id)
