"""The agent's connection to one driver: who it is, how it fares, what it says of its machines."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from anyvisor.hri.client import HriClient, outcome
from anyvisor.hri.errors import DeadlineExceeded, DriverUnavailable, HriError
from anyvisor.hri.v1.identity_pb2 import GetInfoResponse
from anyvisor.hri.v1.machine_pb2 import Event
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_UNKNOWN,
    PHASE_UNSPECIFIED,
    EndReason,
    MachineState,
    Operation,
    Phase,
)

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
MAX_MACHINES: Final = 16384
"""Of one driver on one node: what the kit serves."""
_PHASES: Final = frozenset(Phase.values())
_END_REASONS: Final = frozenset(EndReason.values())
LOST_EVENT_SECONDS: Final = 5.0
"""An operation is asked for by id when no event told its end for so long."""


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """A driver that is installed on this node, and where it listens."""

    name: str
    hri_socket: str
    fd_socket: str
    capabilities: frozenset[str] = frozenset()
    """What its manifest states: decides on what no field of a VMI asks for."""
    version: str = ""
    """Of a version that another one has replaced, and that has machines still; empty of the current one."""
    manifest_digest: str = ""
    """Of the installed manifest, which the driver must run by; empty: it is not compared."""

    @property
    def key(self) -> str:
        """Its name, with the version where it is not the current one."""
        return f"{self.name}@{self.version}" if self.version else self.name


class DriverSession:
    """One driver. `run` keeps the connection; `states` is what the driver last said of each machine.

    `changed(machine_id)` is called for each machine that something was said of, and `restarted()` when the driver
    that answers is another process than before: its descriptors are gone.
    """

    def __init__(
        self,
        address: DriverAddress,
        *,
        changed: Callable[[str], None],
        restarted: Callable[[], None],
        facts_changed: Callable[[], None],
        client: HriClient | None = None,
    ) -> None:
        self.address = address
        self.client = client or HriClient(address.hri_socket, address.fd_socket)
        self.info: GetInfoResponse | None = None
        self.facts: NodeFacts | None = None
        self._trouble = "the driver has not answered yet"
        self.states: dict[str, MachineState] = {}
        self.synced = False
        """Whether `states` is complete for the process `boot_id`."""
        self.boot_id: str = ""
        self._changed = changed
        self._restarted = restarted
        self._facts_changed = facts_changed
        self._operations: dict[str, asyncio.Future[Operation]] = {}

    async def run(self) -> None:
        """Follow the driver until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_machines(), name=f"machines of {self.address.name}")
                group.create_task(self._follow_node(), name=f"facts of {self.address.name}")
        finally:
            self.client.close()

    @property
    def problem(self) -> str:
        """Why it is not usable, as a sentence; empty when it is."""
        if not self._trouble and not self._told:
            return f"driver {self.address.name} does not tell of its machines (Watch); see its log, or restart it"
        return self._trouble

    @property
    def _told(self) -> bool:
        """Whether the process that answers is the one that `states` is of."""
        return self.synced and (self.info is None or self.info.boot_id == self.boot_id)

    @property
    def usable(self) -> bool:
        """Whether a machine can be started now."""
        return not self.problem

    async def _follow_node(self) -> None:
        failures = 0
        while True:
            try:
                self.info = await self.client.connect()
                self._check(self.info)
                async with aclosing(self.client.watch_node()) as stream:
                    self._take_facts(await self._first(stream))
                    failures = 0
                    async for facts in stream:
                        self._take_facts(facts)
            except HriError as error:
                self._fail(error.message)
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    async def _first(self, stream: AsyncGenerator[NodeFacts]) -> NodeFacts:
        """A driver tells its facts at once; raises DriverUnavailable when it does not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.client.deadlines.plan):
                async for facts in stream:
                    return facts
        raise DriverUnavailable(
            f"driver {self.address.name} does not tell the facts of this node (WatchNode); see its log, or restart it"
        )

    def _check(self, info: GetInfoResponse) -> None:
        """See that it is the driver that was installed; raises DriverUnavailable."""
        if info.driver != self.address.name:
            raise DriverUnavailable(
                f"driver {info.driver[:64]!r} answers at the socket of {self.address.name}; "
                "install the driver that the manifest names"
            )
        wanted = self.address.manifest_digest
        if wanted and info.manifest_digest != wanted:
            raise DriverUnavailable(
                f"driver {info.driver} {info.version[:64]} runs by another manifest "
                f"({info.manifest_digest[:80] or 'none'}) than the installed one ({wanted}), so its capabilities are "
                "not known: install what belongs together (`anyvisor driver upgrade`)"
            )

    def _take_facts(self, facts: NodeFacts) -> None:
        self.facts = facts
        healthy = facts.health == NodeFacts.HEALTH_HEALTHY
        said = next((c.message for c in facts.conditions if not c.status and c.message), "")
        self._trouble = "" if healthy else said or f"driver {self.address.name} says that it is not healthy"
        self._facts_changed()
        if healthy:
            for machine_id in list(self.states):
                self._changed(machine_id)

    def _fail(self, message: str) -> None:
        if self._trouble != message:
            log.warning("driver %s: %s", self.address.name, message)
        self._trouble = message
        self._facts_changed()

    async def _follow_machines(self) -> None:
        staged: dict[str, MachineState] = {}
        async with aclosing(self.client.events()) as events:
            async for event in events:
                if event.kind == Event.KIND_RESYNC:
                    self._note(staged, event.machine_id, event.state)
                elif event.kind == Event.KIND_SYNCED:
                    self._resync(event.boot_id, staged)
                    staged = {}
                else:
                    self._take(event)

    def _resync(self, boot_id: str, states: dict[str, MachineState]) -> None:
        # Also the first one: machines that were looked at before it answered wait to be given to it.
        another = boot_id != self.boot_id
        first = not self._told
        named = set(self.states) | set(states)
        self.boot_id, self.states, self.synced = boot_id, states, True
        if another:
            self._restarted()
        if first:
            self._facts_changed()
        for machine_id in named:
            self._changed(machine_id)

    def _take(self, event: Event) -> None:
        if event.kind == Event.KIND_STATE:
            self._note(self.states, event.machine_id, event.state)
        elif event.kind == Event.KIND_REMOVED:
            self.states.pop(event.machine_id, None)
        elif event.kind == Event.KIND_OPERATION:
            waiter = self._operations.get(event.operation.id)
            ended = event.operation.state != Operation.STATE_RUNNING
            if waiter is not None and ended and not waiter.done():
                waiter.set_result(event.operation)
            return
        self._changed(event.machine_id)

    def adopted(self, machine_id: str, state: MachineState) -> None:
        """Take the driver's answer to an adoption, ahead of its event."""
        self._note(self.states, machine_id, state)

    def _note(self, states: dict[str, MachineState], machine_id: str, state: MachineState) -> None:
        """Keep the state of a machine; one that is not understood counts as not stated (the rule for enums)."""
        if machine_id not in states and len(states) >= MAX_MACHINES:
            log.warning(
                "driver %s tells of more than %d machines; the rest is ignored", self.address.name, MAX_MACHINES
            )
            return
        if state.phase not in _PHASES:
            state.message = (
                f"driver {self.address.name} tells phase {state.phase}, which this version does not know: "
                "upgrade the older of the two"
            )
            state.phase = PHASE_UNSPECIFIED
        if state.end_reason not in _END_REASONS:
            state.end_reason = END_REASON_UNKNOWN
        states[machine_id] = state

    async def finished(self, operation: Operation, seconds: float | None = None) -> None:
        """Wait for the end of an accepted operation; raises the HriError that it failed with."""
        seconds = self.client.deadlines.operation if seconds is None else seconds
        waiter: asyncio.Future[Operation] = asyncio.get_running_loop().create_future()
        self._operations[operation.id] = waiter
        try:
            async with asyncio.timeout(seconds):
                while operation.state == Operation.STATE_RUNNING:
                    operation = await self._next_word(operation, waiter)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"{operation.kind} of the machine did not end within {seconds:.0f} s; it may still go on"
            ) from error
        finally:
            self._operations.pop(operation.id, None)
        failure = outcome(operation)
        if failure is not None:
            raise failure

    async def _next_word(self, operation: Operation, waiter: asyncio.Future[Operation]) -> Operation:
        try:
            async with asyncio.timeout(LOST_EVENT_SECONDS):
                return await asyncio.shield(waiter)
        except TimeoutError:
            return await self.client.get_operation(operation.id)
