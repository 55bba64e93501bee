"""A driver whose machines each have a session: the driver's object that holds the VMM's control channel."""

import contextlib
from typing import Generic, Protocol, TypeVar

from anyvisor.hri.errors import HriError
from anyvisor.hri.kit.driver import Call, Driver
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.machine_pb2 import StopRequest


class LiveSession(Protocol):
    """What `SessionDriver` asks of a session. Errors are HriErrors."""

    async def press_button(self, *, reboot: bool) -> None:
        """Ask the guest to shut down, or to reboot; returns once it has been asked."""
        ...

    async def end(self) -> None:
        """End the VMM with its images written out; returns when it is gone."""
        ...

    async def reset(self) -> None:
        """The reset button."""
        ...

    async def pause(self) -> None:
        """Halt the vCPUs."""
        ...

    async def resume(self) -> None:
        """Run the vCPUs again."""
        ...

    async def refresh(self) -> None:
        """Read into the machine's state what no event tells."""
        ...

    async def read_end(self) -> None:
        """Read the end that the VMM holds after its guest went down, if it can still be asked."""
        ...

    def close(self) -> None:
        """Leave the VMM alone."""
        ...


S = TypeVar("S", bound=LiveSession)


class SessionDriver(Driver, Generic[S]):
    """Hands the calls for a machine to its session, which `start` and `adopt` put into `machine.session`."""

    def __init__(self, kind: type[S]) -> None:
        self._kind = kind

    def session(self, machine: MachineContext) -> S:
        """The machine's session; VmmFailed when it has none."""
        return machine.session_of(self._kind)

    async def stop(self, machine: MachineContext, call: Call, mode: StopRequest.Mode, reboot: bool) -> None:
        """Press the power button, or end the VMM."""
        session = self.session(machine)
        if mode == StopRequest.MODE_REQUEST:
            await session.press_button(reboot=reboot)
        else:
            await session.end()

    async def reset(self, machine: MachineContext, call: Call) -> None:
        """Hard reset."""
        await self.session(machine).reset()

    async def pause(self, machine: MachineContext, call: Call) -> None:
        """Halt the vCPUs."""
        await self.session(machine).pause()

    async def resume(self, machine: MachineContext, call: Call) -> None:
        """Run the vCPUs."""
        await self.session(machine).resume()

    async def destroy(self, machine: MachineContext, call: Call) -> None:
        """Read the end state, end the VMM, forget the machine. A VMM that does not answer is the agent's to kill."""
        session = machine.session
        if not isinstance(session, self._kind):
            return
        await session.read_end()
        with contextlib.suppress(HriError, TimeoutError):
            await session.end()
        session.close()

    async def inspect(self, machine: MachineContext) -> None:
        """Bring the state up to date, of a machine that is connected and not down."""
        if machine.connected and not machine.ended and isinstance(machine.session, self._kind):
            await machine.session.refresh()
