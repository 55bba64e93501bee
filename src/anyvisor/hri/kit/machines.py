"""The books of a driver: one `MachineContext` per machine, whose state changes only through `change`."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from anyvisor.hri.errors import LimitReached, MachineNotFound, VmmFailed
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.kit.views import FINAL_PHASES, View
from anyvisor.hri.v1.machine_pb2 import Event
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import MachineState, Phase

MAX_HANDLE_BYTES: Final = 1 << 16
_S = TypeVar("_S")


class MachineContext:
    """What the kit knows of one machine, handed to each method of the driver.

    `session` belongs to the driver: its own object for this machine, None until the driver sets it.
    """

    def __init__(self, machine_id: str, minor: int, log: EventLog, spec: Machine | None = None) -> None:
        self.id = machine_id
        self.minor = minor
        self.generation = 0
        self.spec = spec
        """The machine as it was prepared; None when it was adopted by a newer driver process."""
        self.session: Any = None
        self.connected = False
        """Whether the driver holds a live control channel; `disconnected` clears it."""
        self._state = MachineState(machine_id=machine_id)
        self._log = log
        self._published = False

    @property
    def state(self) -> MachineState:
        """The newest state. To be read; changes go through `change`."""
        return self._state

    @property
    def phase(self) -> Phase:
        """Where the machine is in its life."""
        return self._state.phase

    @property
    def ended(self) -> bool:
        """Whether the guest is down for good."""
        return self._state.phase in FINAL_PHASES

    @contextmanager
    def change(self) -> Generator[MachineState]:
        """Edit a copy of the state; it is stored and published as one event, if it differs, when the block ends.

        A final phase is never left, and its end reason never overwritten by a vaguer report: later edits of `phase`
        and `end_reason` are dropped, since two observers (the control channel and the process) race at the end.
        """
        draft = MachineState()
        draft.CopyFrom(self._state)
        yield draft
        if self.ended:
            draft.phase = self._state.phase
            draft.end_reason = self._state.end_reason
        draft.machine_id = self.id
        draft.generation = self.generation
        if len(draft.handle) > MAX_HANDLE_BYTES:
            raise ValueError(f"the handle of machine {self.id} has {len(draft.handle)} bytes; 64 KiB are allowed")
        if draft == self._state:
            return
        self._state = draft
        if self._published:
            self._log.append(
                Event(kind=Event.KIND_STATE, machine_id=self.id, state=draft),
                time.time_ns(),
            )

    @property
    def view(self) -> View:
        """Where the machine stands."""
        state = self._state
        return View(state.phase, state.end_reason, state.pause_reason, state.message)

    def show(self, view: View) -> None:
        """Publish where the machine stands, by the rules of `change`."""
        with self.change() as state:
            state.phase = view.phase
            state.end_reason = view.end_reason
            state.pause_reason = view.pause_reason
            state.message = view.message

    def session_of(self, kind: type[_S]) -> _S:
        """The driver's session, for a call that needs a live one; VmmFailed when there is none of that kind."""
        if not isinstance(self.session, kind):
            raise VmmFailed(f"there is no control channel to machine {self.id!r}; adopt it first")
        return self.session

    def disconnected(self) -> None:
        """Report that the control channel is lost: the next Adopt reaches the driver, with fresh descriptors."""
        self.connected = False

    def publish(self) -> None:
        """Make the machine visible to watchers (the kit does it once Prepare or Adopt succeeded)."""
        if not self._published:
            self._published = True
            self._log.append(Event(kind=Event.KIND_STATE, machine_id=self.id, state=self._state), time.time_ns())

    @property
    def published(self) -> bool:
        """Whether watchers know the machine."""
        return self._published


class Registry:
    """All machines of one driver process."""

    def __init__(self, log: EventLog, *, max_machines: int) -> None:
        self._machines: dict[str, MachineContext] = {}
        self._log = log
        self._max = max_machines

    def __iter__(self) -> Iterator[MachineContext]:
        return iter(list(self._machines.values()))

    def __len__(self) -> int:
        return len(self._machines)

    def find(self, machine_id: str) -> MachineContext | None:
        """The machine, or None."""
        return self._machines.get(machine_id)

    def get(self, machine_id: str) -> MachineContext:
        """The machine, or MachineNotFound."""
        machine = self._machines.get(machine_id)
        if machine is None:
            raise MachineNotFound(
                f"machine {machine_id!r} is not known to this driver process; "
                "adopt it, or prepare it if it never started"
            )
        return machine

    def add(self, machine_id: str, minor: int, spec: Machine | None) -> MachineContext:
        """A new machine, not yet visible to watchers."""
        if len(self._machines) >= self._max:
            raise LimitReached(
                f"this driver holds {self._max} machines, its limit; "
                "destroy those that ended, or place the machine on another node"
            )
        machine = MachineContext(machine_id, minor, self._log, spec)
        self._machines[machine_id] = machine
        return machine

    def remove(self, machine: MachineContext) -> None:
        """Forget the machine and tell the watchers."""
        if self._machines.pop(machine.id, None) is not None and machine.published:
            self._log.append(
                Event(kind=Event.KIND_REMOVED, machine_id=machine.id, state=machine.state),
                time.time_ns(),
            )
