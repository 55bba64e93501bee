"""What the author of a driver writes: a subclass of `Driver`. Everything else is the kit's.

The kit has checked before it calls a method: ids, sizes, the generation, the replay of operations, that the machine
exists, and that calls for one machine come one after another (a forced stop and a destroy cancel what runs first).
"""

# ruff: noqa: B027 - the empty methods are optional on purpose

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from anyvisor.hri import versions
from anyvisor.hri.errors import NotImplementedByDriver
from anyvisor.hri.kit.descriptors import Descriptors
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import AdoptRequest, ApplyRequest, PrepareRequest, PrepareResponse, StopRequest
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.stream_pb2 import OpenStreamRequest, OpenStreamResponse


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """Who the driver is; constant for the life of its process."""

    driver: str
    """DNS subdomain, as in the manifest: `qemu.anyvisor.io`."""
    version: str
    vmm_name: str
    manifest_digest: str
    vmm_version: str = ""
    min_minor: int = versions.MIN_MINOR
    max_minor: int = versions.MINOR
    profiles: tuple[str, ...] = ()


@dataclass(slots=True)
class Call:
    """One accepted operation: what it brought, and how to report progress."""

    operation_id: str
    generation: int
    descriptors: Descriptors = field(default_factory=lambda: Descriptors({}))
    """Those named by the request's tokens. What is not taken is closed when the method returns."""
    report: Callable[[int, str], None] = lambda _percent, _message: None
    """`report(percent, message)`: progress for those who watch a long operation."""


class Driver(ABC):
    """One VMM behind the HRI.

    Errors: raise a subclass of `anyvisor.hri.errors.HriError`; anything else reaches the caller as UNKNOWN.
    State: edit `with machine.change() as state: ...`, at any time, also outside a call (an event of the VMM).
    Cancellation: every method may be cancelled at an await; it then leaves the machine in a state that `destroy`
    can clear.
    """

    @property
    @abstractmethod
    def info(self) -> DriverInfo:
        """Who the driver is."""

    @abstractmethod
    def node_facts(self) -> AsyncGenerator[NodeFacts]:
        """The facts of this host: first the whole, then the whole again at each change. Written as `async def` with
        `yield`; it is closed when the watcher leaves, and each watcher gets its own."""

    @abstractmethod
    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        """Plan the start and touch nothing: translate `request.machine`, refuse what is not understood (`Refused`).

        `confirmed` lists those of `request.needs` that are understood and met. The kit copies handle, devices,
        endpoints and accelerator of the response into the machine's state, with PHASE_PREPARED.
        """

    @abstractmethod
    async def start(self, machine: MachineContext, call: Call) -> None:
        """The VMM has been started by the agent from the launch plan: take its control channel and run the guest.

        The kit sets PHASE_STARTING before, and PHASE_RUNNING after unless the driver set another phase.
        """

    @abstractmethod
    async def stop(self, machine: MachineContext, call: Call, mode: StopRequest.Mode, reboot: bool) -> None:
        """MODE_REQUEST: ask the guest and return once it has been asked; that it is down is a change of state.
        MODE_FORCE: return when the guest is down, its images flushed, and the phase is final."""

    @abstractmethod
    async def destroy(self, machine: MachineContext, call: Call) -> None:
        """Read the end state if there is one, end the VMM if it still runs, forget the machine. Must succeed when
        the VMM is gone, and when it never started."""

    @abstractmethod
    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        """Take over a VMM that runs, from `request.handle` and fresh descriptors, and set the machine's whole state.
        Raise `MachineNotFound` when there is nothing at the other end."""

    async def inspect(self, machine: MachineContext) -> None:
        """Bring `machine.state` up to date where events do not (processes, threads, memory)."""

    async def probe(self) -> Sequence[Condition]:
        """The driver is ready when all conditions hold."""
        return ()

    async def reset(self, machine: MachineContext, call: Call) -> None:
        """Hard reset of the guest."""
        raise _missing(self, "Reset")

    async def pause(self, machine: MachineContext, call: Call) -> None:
        """Halt the vCPUs. The kit sets PHASE_PAUSED (user) after, unless the driver set another phase."""
        raise _missing(self, "Pause")

    async def resume(self, machine: MachineContext, call: Call) -> None:
        """Run the vCPUs again. The kit sets PHASE_RUNNING after, unless the driver set another phase."""
        raise _missing(self, "Resume")

    async def apply(self, machine: MachineContext, request: ApplyRequest, call: Call) -> None:
        """One live change, `request.WhichOneof("change")`."""
        raise _missing(self, f"Apply {request.WhichOneof('change')}")

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """Say where the stream is, or hand `descriptors.take(request.token.handle)` to the VMM."""
        raise _missing(self, "Open of a stream")

    async def close_stream(self, machine: MachineContext, stream_id: str) -> None:
        """End a stream that `open_stream` gave out."""

    async def stats(self, machine: MachineContext) -> MachineStats:
        """The counters of one machine, now; a driver that has them states the profile "stats". `machine_id` is set by
        the kit. Called for many machines at the same time."""
        raise _missing(self, "Stats")

    async def close(self) -> None:
        """The driver process ends: let go of control channels. Never end a guest here."""


def _missing(driver: Driver, what: str) -> NotImplementedByDriver:
    return NotImplementedByDriver(f"{what} is not served by driver {driver.info.driver}")
