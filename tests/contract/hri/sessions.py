"""Recorded sessions: what the core said to a driver, and what it answered, kept for all later cores.

`record_sessions.py` makes them.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from grpclib.client import ServiceMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.encoding.proto import ProtoCodec
from grpclib.server import Server

from anyvisor.hri.client import HriClient
from anyvisor.hri.errors import HriError, from_status
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, Event, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import DescriptorToken, Finding, Operation
from anyvisor.hri.wire import DetailsCodec, to_grpc

FOLDER = Path(__file__).parents[2] / "data" / "hri" / "sessions"
Json = dict[str, Any]


@dataclass
class Exchange:
    """One call: its answers (one, or those of a stream), or its error."""

    method: str
    request: Json
    answers: list[Json]
    error: Json | None = None


class RecordingClient(HriClient):
    """Keeps each exchange."""

    def __init__(self, hri: Path, fd: Path) -> None:
        super().__init__(hri, fd)
        self.exchanges: list[Exchange] = []

    async def _call(self, method: UnaryUnaryMethod[Any, Any], request: Any, seconds: float) -> Any:
        exchange = Exchange(method.name, MessageToDict(request), [])
        self.exchanges.append(exchange)
        try:
            answer = await super()._call(method, request, seconds)
        except HriError as error:
            findings = [MessageToDict(finding) for finding in error.findings]
            exchange.error = {"status": error.status, "message": error.message, "findings": findings}
            raise
        exchange.answers.append(MessageToDict(answer))
        return answer

    async def _listen(self, method: Any, request: Any) -> AsyncGenerator[Any]:
        exchange = Exchange(method.name, MessageToDict(request), [])
        self.exchanges.append(exchange)
        async with aclosing(super()._listen(method, request)) as items:
            async for item in items:
                exchange.answers.append(MessageToDict(item))
                yield item


@dataclass
class Subject:
    """A driver that is recorded, or was: what it is asked for, and what makes its VMM run between Prepare and Start."""

    spec: Machine
    needs: Sequence[str]
    change: ApplyRequest | None
    begin: Callable[[PrepareResponse], Awaitable[Sequence[DescriptorToken]]]


async def scenario(client: HriClient, subject: Subject) -> list[Any]:
    """A machine's life as the core drives it; what the core made of the answers."""
    spec, generation = subject.spec, 3
    seen: list[Any] = []
    info = await client.connect()
    seen.append((info.driver, client.minor))
    seen.append((await client.probe()).ready)
    planned = await client.prepare(spec, subject.needs, generation=generation)
    seen.append((list(planned.confirmed), [device.address for device in planned.devices]))
    tokens = await subject.begin(planned)
    seen.append(await ended(client, client.start(spec.id, generation=generation, tokens=tokens)))
    seen.append(await ended(client, client.pause(spec.id, generation=generation)))
    seen.append(await ended(client, client.resume(spec.id, generation=generation)))
    if subject.change is not None:
        generation = 4
        seen.append(await ended(client, client.apply(spec.id, subject.change, generation=generation)))
    try:
        await client.stop(spec.id, generation=1)
    except HriError as error:
        seen.append((type(error).__name__, error.code, error.retry))
    seen.append((await client.inspect(spec.id)).phase)
    seen.append(await ended(client, client.stop(spec.id, generation=generation, force=True)))
    seen.append((await client.destroy(spec.id, generation=generation)).end_reason)
    kinds: list[int] = []
    async with aclosing(client.watch(info.boot_id, 1)) as events:
        async for event in events:
            kinds.append(event.kind)
            if event.kind == Event.KIND_REMOVED:
                break
    return [*seen, kinds]


async def ended(client: HriClient, call: Awaitable[Operation]) -> int:
    """How the operation ended."""
    operation = await call
    while operation.state == Operation.STATE_RUNNING:
        await asyncio.sleep(0.01)
        operation = await client.get_operation(operation.id)
    return operation.state


class Replay:
    """A driver that gives the recorded answers, and keeps what it was asked that was not recorded."""

    def __init__(self, exchanges: Sequence[Json]) -> None:
        self._left = list(exchanges)
        self.surprises: list[str] = []

    def server(self, client: HriClient) -> Server:
        """A gRPC server of the recorded methods."""
        stubs = (client._identity, client._node, client._machine, client._stream)
        methods: list[ServiceMethod[Any, Any]] = [
            m for s in stubs for m in vars(s).values() if isinstance(m, ServiceMethod)
        ]
        mapping = {method.name: self._handler(method) for method in methods}

        class Service:
            def __mapping__(self) -> dict[str, Handler]:
                return mapping

        return Server([Service()], codec=ProtoCodec(), status_details_codec=DetailsCodec())

    def _handler(self, method: ServiceMethod[Any, Any]) -> Handler:
        async def answer(stream: Any) -> None:
            request: Message = await stream.recv_message()
            exchange = self._left.pop(0)
            asked = {"method": method.name, "request": without_chance(MessageToDict(request))}
            recorded = {"method": exchange["method"], "request": without_chance(exchange["request"])}
            if asked != recorded:
                self.surprises.append(f"asked {asked}, recorded {recorded}")
            if exchange["error"]:
                error = exchange["error"]
                findings = [ParseDict(finding, Finding()) for finding in error["findings"]]
                raise to_grpc(from_status(error["status"], error["message"], findings))
            for item in exchange["answers"]:
                await stream.send_message(ParseDict(item, method.reply_type()))

        streams = method._cardinality == Cardinality.UNARY_STREAM
        cardinality = Cardinality.UNARY_STREAM if streams else Cardinality.UNARY_UNARY
        return Handler(answer, cardinality, method.request_type, method.reply_type)


def without_chance(request: Json) -> Json:
    """The request without what differs from run to run."""
    kept = dict(request)
    if "mutation" in kept:
        kept["mutation"] = {k: v for k, v in kept["mutation"].items() if k != "operationId"}
    for name in ("tokens", "bootId", "coreMinor", "operationId"):
        kept.pop(name, None)
    return kept
