"""The HRI without its transport: requests in, answers out, for any `Driver`."""

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar, cast

from google.protobuf.message import Message

from anyvisor.hri.errors import (
    DeadlineExceeded,
    HriError,
    InvalidRequest,
    LimitReached,
    MachineNotFound,
    NotImplementedByDriver,
    OperationCancelled,
    OperationConflict,
    Refused,
    finding,
)
from anyvisor.hri.kit import operations
from anyvisor.hri.kit.descriptors import DescriptorStore
from anyvisor.hri.kit.driver import Call, Driver
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.kit.machines import MachineContext, Registry
from anyvisor.hri.kit.operations import Entry, OperationTable
from anyvisor.hri.kit.understood import refuse_unknown
from anyvisor.hri.v1.identity_pb2 import Condition, GetInfoResponse, ListEndpointsResponse, ProbeResponse
from anyvisor.hri.v1.machine_pb2 import (
    AdoptRequest,
    AdoptResponse,
    ApplyRequest,
    DestroyRequest,
    DestroyResponse,
    Event,
    Mutation,
    PauseRequest,
    PrepareRequest,
    PrepareResponse,
    ResetRequest,
    ResumeRequest,
    StartRequest,
    StopRequest,
    WatchRequest,
)
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.stats_pb2 import GetStatsResponse, MachineStats
from anyvisor.hri.v1.stream_pb2 import OpenStreamRequest, OpenStreamResponse
from anyvisor.hri.v1.types_pb2 import (
    PAUSE_REASON_UNSPECIFIED,
    PAUSE_REASON_USER,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPING,
    MachineState,
    Operation,
    Phase,
)

log = logging.getLogger("anyvisor.hri.kit")

_MACHINE_ID: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OPERATION_ID: Final = re.compile(r"[!-~]{1,64}")
_T = TypeVar("_T")

STATS: Final = "stats"
"""The profile of a driver that tells counters."""


class _Mutating(Protocol):
    @property
    def mutation(self) -> Mutation: ...


@dataclass(frozen=True, slots=True)
class KitLimits:
    """Caps of one driver process. Seconds and counts."""

    machines: int = 16384
    queued_per_machine: int = 16
    watchers: int = 16
    answer_within: float = 1.0
    """How long a call waits for its operation before it answers RUNNING."""
    operation: float = 300.0
    """An operation without outcome after this is failed with DEADLINE_EXCEEDED."""
    stats: float = 5.0
    """How long one machine may take to tell its counters."""
    stats_at_once: int = 64
    call: float = 30.0
    """The same for Prepare, Adopt, Inspect, Probe and streams."""


class Core:
    """One driver's books and rules. Used as an async context manager, which bounds the life of all operations."""

    def __init__(self, driver: Driver, limits: KitLimits | None = None) -> None:
        self.driver = driver
        self.limits = limits or KitLimits()
        self.boot_id = os.urandom(16).hex()
        self.log = EventLog(self.boot_id)
        self.machines = Registry(self.log, max_machines=self.limits.machines)
        self.descriptors = DescriptorStore()
        self.operations = OperationTable()
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks = asyncio.TaskGroup()
        self._watchers = 0

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for entry in self.operations:
            if entry.running and entry.task is not None:
                entry.task.cancel()
        self.descriptors.close()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await self.driver.close()

    # Identity and node

    async def get_info(self) -> GetInfoResponse:
        """Who the driver is, and which start of its process this is."""
        info = self.driver.info
        return GetInfoResponse(
            driver=info.driver,
            version=info.version,
            vmm_name=info.vmm_name,
            vmm_version=info.vmm_version,
            min_minor=info.min_minor,
            max_minor=info.max_minor,
            manifest_digest=info.manifest_digest,
            boot_id=self.boot_id,
            profiles=info.profiles,
        )

    async def probe(self) -> ProbeResponse:
        """Whether the driver works; a driver that does not answer is not ready."""
        try:
            async with asyncio.timeout(self.limits.call):
                conditions = list(await self.driver.probe())
        except TimeoutError:
            conditions = [
                Condition(
                    type="Responsive",
                    status=False,
                    reason="ProbeTimedOut",
                    message=f"the driver did not answer its own probe within {self.limits.call:g} s",
                )
            ]
        return ProbeResponse(ready=all(c.status for c in conditions), conditions=conditions)

    async def list_endpoints(self, machine_id: str) -> ListEndpointsResponse:
        """Where the machine's VMM can be reached."""
        return ListEndpointsResponse(endpoints=self.machines.get(machine_id).state.endpoints)

    async def watch_node(self) -> AsyncGenerator[NodeFacts]:
        """The driver's facts of this host, as they change."""
        with self._watching():
            async with contextlib.aclosing(self.driver.node_facts()) as facts:
                async for fact in facts:
                    yield fact

    # Machine

    async def prepare(self, request: PrepareRequest) -> PrepareResponse:
        """Plan a machine; nothing runs yet."""
        return cast(PrepareResponse, await self._answer("Prepare", request, self._prepare))

    async def _prepare(self, request: PrepareRequest) -> PrepareResponse:
        mutation = request.mutation
        self.check_understood(request.machine, "the machine")
        self.check_understood(request, "the request")
        if request.machine.id != mutation.machine_id:
            raise InvalidRequest(
                f"mutation.machine_id is {mutation.machine_id!r} but machine.id is {request.machine.id!r}; "
                "they must be equal"
            )
        if self.machines.find(mutation.machine_id) is not None:
            raise OperationConflict(
                f"machine {mutation.machine_id!r} exists already; destroy it before it is prepared again"
            )
        machine = self.machines.add(mutation.machine_id, mutation.minor, request.machine)
        machine.generation = mutation.generation
        try:
            response = await self.driver.prepare(machine, request)
            with machine.change() as state:
                state.phase = PHASE_PREPARED
                state.handle = response.handle
                state.accelerator = response.accelerator
                state.devices.extend(response.devices)
                state.endpoints.extend(response.endpoints)
        except BaseException:
            self.machines.remove(machine)
            raise
        machine.publish()
        return response

    async def start(self, request: StartRequest) -> Operation:
        """Run the guest of a prepared machine whose VMM the agent has started."""

        async def body(machine: MachineContext, call: Call) -> None:
            self._expect(machine, "started", PHASE_PREPARED)
            with machine.change() as state:
                state.phase = PHASE_STARTING
            call.descriptors = await self.descriptors.collect(request.tokens)
            await self.driver.start(machine, call)
            machine.connected = True
            if machine.phase == PHASE_STARTING:
                with machine.change() as state:
                    state.phase = PHASE_RUNNING

        return await self._operate("Start", request, body)

    async def stop(self, request: StopRequest) -> Operation:
        """Ask the guest to shut down, or end it."""
        mode = request.mode
        if mode not in (StopRequest.MODE_REQUEST, StopRequest.MODE_FORCE):
            raise InvalidRequest(f"stop mode {mode} is not known; use MODE_REQUEST or MODE_FORCE")
        if mode == StopRequest.MODE_FORCE and request.reboot:
            raise InvalidRequest("a forced stop cannot be a reboot; use Reset")

        async def body(machine: MachineContext, call: Call) -> None:
            if machine.ended:
                return
            if machine.phase == PHASE_PREPARED:
                raise _wrong_phase(machine, "stopped, as it never started: destroy it")
            await self.driver.stop(machine, call, mode, request.reboot)
            if mode == StopRequest.MODE_REQUEST and not request.reboot and machine.phase == PHASE_RUNNING:
                with machine.change() as state:
                    state.phase = PHASE_STOPPING

        return await self._operate("Stop", request, body, interrupts=mode == StopRequest.MODE_FORCE)

    async def reset(self, request: ResetRequest) -> Operation:
        """Hard reset."""

        async def body(machine: MachineContext, call: Call) -> None:
            self._expect(machine, "reset", PHASE_RUNNING, PHASE_PAUSED, PHASE_STOPPING)
            await self.driver.reset(machine, call)

        return await self._operate("Reset", request, body)

    async def pause(self, request: PauseRequest) -> Operation:
        """Halt the vCPUs; of a machine that is paused, nothing."""

        async def body(machine: MachineContext, call: Call) -> None:
            if machine.phase == PHASE_PAUSED:
                return
            self._expect(machine, "paused", PHASE_RUNNING, PHASE_STOPPING)
            await self.driver.pause(machine, call)
            if machine.phase in (PHASE_RUNNING, PHASE_STOPPING):
                with machine.change() as state:
                    state.phase = PHASE_PAUSED
                    state.pause_reason = PAUSE_REASON_USER

        return await self._operate("Pause", request, body)

    async def resume(self, request: ResumeRequest) -> Operation:
        """Run the vCPUs; of a machine that runs, nothing."""

        async def body(machine: MachineContext, call: Call) -> None:
            if machine.phase == PHASE_RUNNING:
                return
            self._expect(machine, "resumed", PHASE_PAUSED)
            await self.driver.resume(machine, call)
            if machine.phase == PHASE_PAUSED:
                with machine.change() as state:
                    state.phase = PHASE_RUNNING
                    state.pause_reason = PAUSE_REASON_UNSPECIFIED

        return await self._operate("Resume", request, body)

    async def apply(self, request: ApplyRequest) -> Operation:
        """One live change."""
        self.check_understood(request, "the change")
        if request.WhichOneof("change") is None:
            raise InvalidRequest("the request names no change")

        async def body(machine: MachineContext, call: Call) -> None:
            self._expect(machine, "changed", PHASE_RUNNING, PHASE_PAUSED)
            call.descriptors = await self.descriptors.collect(request.tokens)
            await self.driver.apply(machine, request, call)

        return await self._operate("Apply", request, body)

    async def destroy(self, request: DestroyRequest) -> DestroyResponse:
        """Leave nothing of the machine; of an unknown one, nothing to do."""

        async def body(request: DestroyRequest) -> DestroyResponse:
            mutation = request.mutation
            machine = self.machines.find(mutation.machine_id)
            if machine is None:
                return DestroyResponse(last_state=MachineState(machine_id=mutation.machine_id))
            await self.driver.destroy(machine, Call(mutation.operation_id, mutation.generation))
            self.machines.remove(machine)
            return DestroyResponse(last_state=machine.state)

        return cast(DestroyResponse, await self._answer("Destroy", request, body, interrupts=True))

    async def adopt(self, request: AdoptRequest) -> AdoptResponse:
        """Take over a running VMM. Known and connected: its state, and nothing else."""
        return cast(AdoptResponse, await self._answer("Adopt", request, self._adopt))

    async def _adopt(self, request: AdoptRequest) -> AdoptResponse:
        mutation = request.mutation
        machine = self.machines.find(mutation.machine_id)
        known = machine is not None
        if machine is None:
            machine = self.machines.add(mutation.machine_id, mutation.minor, None)
        machine.generation = max(machine.generation, mutation.generation)
        if not machine.connected:
            try:
                descriptors = await self.descriptors.collect(request.tokens)
                call = Call(mutation.operation_id, mutation.generation, descriptors)
                try:
                    await self.driver.adopt(machine, request, call)
                finally:
                    descriptors.close()
            except BaseException:
                if not known:
                    self.machines.remove(machine)
                raise
            with machine.change() as state:
                state.handle = state.handle or request.handle
            machine.connected = not machine.ended
            machine.publish()
        return AdoptResponse(state=machine.state, endpoints=machine.state.endpoints)

    async def inspect(self, machine_id: str) -> MachineState:
        """The machine's whole state, now."""
        machine = self.machines.get(machine_id)
        await self._within("Inspect", self.driver.inspect(machine))
        return machine.state

    async def watch(self, request: WatchRequest) -> AsyncGenerator[Event]:
        """Events from a number on; RESYNC first where the past is not known."""
        with self._watching():
            cursor = request.from_sequence if request.boot_id == self.boot_id else 0
            while True:
                events = self.log.since(cursor)
                if events is None:
                    events = self._resync()
                    cursor = self.log.head + 1
                else:
                    cursor += len(events)
                for event in events:
                    yield event
                await self.log.grown(cursor)

    def _resync(self) -> list[Event]:
        events = [self._whole(Event.KIND_RESYNC, machine.state) for machine in self.machines if machine.published]
        return [*events, self._whole(Event.KIND_SYNCED, None)]

    def _whole(self, kind: Event.Kind, state: MachineState | None) -> Event:
        return Event(
            boot_id=self.boot_id,
            sequence=self.log.head,
            time_unix_nano=time.time_ns(),
            kind=kind,
            machine_id=state.machine_id if state else "",
            state=state,
        )

    async def get_operation(self, operation_id: str) -> Operation:
        """What became of an operation."""
        return self._operation(operation_id).record

    async def cancel_operation(self, operation_id: str) -> Operation:
        """Cancel a running operation and answer its outcome; of a finished one, the outcome."""
        entry = self._operation(operation_id)
        if entry.running and entry.task is not None:
            entry.task.cancel()
            await self._within("CancelOperation", entry.done.wait())
        return entry.record

    def _operation(self, operation_id: str) -> Entry:
        entry = self.operations.find(operation_id)
        if entry is None:
            raise MachineNotFound(
                f"operation {operation_id!r} is not known to this driver process; inspect the machine instead"
            )
        return entry

    # Streams

    async def open_stream(self, request: OpenStreamRequest) -> OpenStreamResponse:
        """Where a byte stream of the guest is."""
        machine = self.machines.get(request.machine_id)
        tokens = [request.token] if request.HasField("token") else []
        descriptors = await self.descriptors.collect(tokens)
        try:
            return await self._within("Open", self.driver.open_stream(machine, request, descriptors))
        finally:
            descriptors.close()

    async def close_stream(self, stream_id: str, machine_id: str) -> None:
        """End a stream; of an unknown one, nothing."""
        machine = self.machines.find(machine_id)
        if machine is not None:
            await self._within("Close", self.driver.close_stream(machine, stream_id))

    async def get_stats(self, machine_ids: Sequence[str]) -> GetStatsResponse:
        """The counters of the named machines, or of all; those that do not answer in time are left out."""
        if STATS not in self.driver.info.profiles:
            raise NotImplementedByDriver(f"driver {self.driver.info.driver} tells no counters")
        if not machine_ids:
            wanted = [machine for machine in self.machines if machine.connected and not machine.ended]
        else:
            wanted = [found for each in machine_ids if (found := self.machines.find(each)) is not None]
        turns = asyncio.Semaphore(self.limits.stats_at_once)

        async def ask(machine: MachineContext) -> MachineStats | None:
            async with turns:
                try:
                    async with asyncio.timeout(self.limits.stats):
                        found = await self.driver.stats(machine)
                except (HriError, TimeoutError) as error:
                    log.debug("machine %s has no stats now: %s", machine.id, error)
                    return None
            found.machine_id = machine.id
            return found

        found = await asyncio.gather(*(ask(machine) for machine in wanted))
        return GetStatsResponse(machines=[each for each in found if each is not None])

    # How every mutating call is accepted

    async def _operate(
        self,
        kind: str,
        request: Message,
        body: Callable[[MachineContext, Call], Awaitable[None]],
        *,
        interrupts: bool = False,
    ) -> Operation:
        mutation = cast(_Mutating, request).mutation
        entry, is_new = self._entry(kind, request)
        if is_new:
            machine = self.machines.get(mutation.machine_id)

            async def run_body() -> None:
                if self.machines.find(machine.id) is not machine:
                    raise MachineNotFound(f"machine {machine.id!r} was destroyed while {kind} waited its turn")
                call = Call(mutation.operation_id, mutation.generation, report=self._reporter(entry))
                try:
                    await body(machine, call)
                finally:
                    call.descriptors.close()

            self._launch(entry, mutation, run_body, self.limits.operation, interrupts=interrupts)
        try:
            async with asyncio.timeout(self.limits.answer_within):
                await entry.done.wait()
        except TimeoutError:
            pass
        return entry.record

    async def _answer(
        self,
        kind: str,
        request: _T,
        body: Callable[[_T], Awaitable[Message]],
        *,
        interrupts: bool = False,
    ) -> Message:
        mutation = cast(_Mutating, request).mutation
        entry, is_new = self._entry(kind, cast(Message, request))
        if is_new:
            self._launch(entry, mutation, lambda: body(request), self.limits.call, interrupts=interrupts)
        await entry.done.wait()
        if entry.error is not None:
            raise entry.error
        assert entry.response is not None
        return entry.response

    def _entry(self, kind: str, request: Message) -> tuple[Entry, bool]:
        mutation = cast(_Mutating, request).mutation
        check_mutation(mutation, self.driver.info.min_minor, self.driver.info.max_minor)
        digest = operations.content_digest(kind, request)
        entry = self.operations.replay(mutation.operation_id, digest)
        if entry is not None:
            return entry, False
        return Entry(mutation.operation_id, mutation.machine_id, kind, digest), True

    def _launch(
        self,
        entry: Entry,
        mutation: Mutation,
        body: Callable[[], Awaitable[Message | None]],
        seconds: float,
        *,
        interrupts: bool,
    ) -> None:
        """Accept the operation: from here on its id has an outcome."""
        machine = self.machines.find(mutation.machine_id)
        if machine is not None:
            self.check_generation(machine, mutation)
        queued = self.operations.running(mutation.machine_id)
        if len(queued) >= self.limits.queued_per_machine and not interrupts:
            raise LimitReached(
                f"{len(queued)} operations of machine {mutation.machine_id!r} are under way; wait for their outcome"
            )
        if machine is not None:
            machine.generation = mutation.generation
        if interrupts:
            for earlier in queued:
                if earlier.task is not None:
                    earlier.task.cancel()
        lock = self._locks.setdefault(mutation.machine_id, asyncio.Lock())

        async def one_after_another() -> Message | None:
            async with lock:
                return await body()

        self.operations.add(entry, len(self.machines))
        entry.task = self._tasks.create_task(
            operations.run(entry, one_after_another, seconds=seconds, failed=_log_failure),
            name=f"{entry.record.kind} {entry.record.machine_id}",
        )
        entry.task.add_done_callback(lambda _: self._finished(entry))

    def check_understood(self, message: Message, what: str) -> None:
        """Refuse what this driver's proto does not know."""
        refuse_unknown(message, what)

    def check_generation(self, machine: MachineContext, mutation: Mutation) -> None:
        """Refuse a generation older than the newest that was accepted."""
        if mutation.generation < machine.generation:
            raise Refused(
                f"generation {mutation.generation} of machine {machine.id!r} is older than {machine.generation}, "
                "which was applied; read the object again",
                findings=[
                    finding(
                        "GENERATION_OLD",
                        "a newer generation was applied",
                        field="mutation.generation",
                        have=str(machine.generation),
                        want=str(mutation.generation),
                    )
                ],
            )

    def _finished(self, entry: Entry) -> None:
        entry.task = None
        if entry.running:  # cancelled before its first step
            entry.finish(None, OperationCancelled(f"{entry.record.kind} was cancelled before it began"))
        self.operations.settled(entry)
        machine_id = entry.record.machine_id
        if self.machines.find(machine_id) is None and not self.operations.running(machine_id):
            self._locks.pop(machine_id, None)
        if entry.record.kind not in _ANSWERED:
            self._publish(entry)

    def _publish(self, entry: Entry) -> None:
        event = Event(kind=Event.KIND_OPERATION, machine_id=entry.record.machine_id, operation=entry.record)
        self.log.append(event, time.time_ns())

    def _reporter(self, entry: Entry) -> Callable[[int, str], None]:
        def report(percent: int, message: str) -> None:
            if entry.running:
                entry.record.percent = min(max(percent, 0), 100)
                entry.record.message = message
                self._publish(entry)

        return report

    def _expect(self, machine: MachineContext, done: str, *phases: Phase) -> None:
        if machine.phase not in phases:
            raise _wrong_phase(machine, done)

    async def _within(self, what: str, waited: Awaitable[_T]) -> _T:
        try:
            async with asyncio.timeout(self.limits.call):
                return await waited
        except TimeoutError:
            raise DeadlineExceeded(
                f"{what} had no answer from the driver within {self.limits.call:g} s", retry="backoff"
            ) from None

    def _watching(self) -> "_Watching":
        return _Watching(self)


_ANSWERED: Final = frozenset({"Prepare", "Adopt", "Destroy"})


class _Watching:
    """Counts watchers against the cap."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __enter__(self) -> None:
        if self._core._watchers >= self._core.limits.watchers:
            raise LimitReached(f"{self._core.limits.watchers} watchers are connected, the limit; close one")
        self._core._watchers += 1

    def __exit__(self, *_: object) -> None:
        self._core._watchers -= 1


def check_mutation(mutation: Mutation, min_minor: int, max_minor: int) -> None:
    """The form of what every mutating call carries."""
    if not _MACHINE_ID.fullmatch(mutation.machine_id):
        raise InvalidRequest(
            f"machine_id {mutation.machine_id[:80]!r} must be 1 to 63 of a-z, 0-9 and '-', "
            "and begin and end with a letter or digit"
        )
    if not _OPERATION_ID.fullmatch(mutation.operation_id):
        raise InvalidRequest("operation_id must be 1 to 64 printable ASCII characters without spaces")
    if not min_minor <= mutation.minor <= max_minor:
        raise Refused(
            f"the call speaks HRI minor {mutation.minor}, this driver {min_minor} to {max_minor}; "
            "negotiate with GetInfo",
            findings=[
                finding(
                    "SKEW",
                    "HRI minor out of the driver's range",
                    field="mutation.minor",
                    have=f"{min_minor}..{max_minor}",
                    want=str(mutation.minor),
                )
            ],
        )


def _wrong_phase(machine: MachineContext, done: str) -> Refused:
    phase = Phase.Name(machine.phase).removeprefix("PHASE_")
    return Refused(
        f"machine {machine.id!r} is {phase} and cannot be {done}",
        findings=[finding("WRONG_PHASE", f"the machine is {phase}", have=phase)],
    )


def _log_failure(entry: Entry, error: BaseException) -> None:
    log.error("%s of machine %s failed", entry.record.kind, entry.record.machine_id, exc_info=error)
