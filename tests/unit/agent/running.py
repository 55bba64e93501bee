"""A machine that runs, its driver and its node, for tests of changes to a running guest."""

from collections.abc import Callable
from typing import Any

from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.types_pb2 import PHASE_RUNNING, MachineState, Operation

RUNNING = MachineState(phase=PHASE_RUNNING)


class Record:
    driver, generation, hri_minor, pod_uid = "test.driver", 3, 1, "p-1"


class Machine:
    id, record = "m-1", Record()


class Client:
    """Takes changes, or fails; `read` gives what of a change is noted."""

    def __init__(self, read: Callable[[ApplyRequest], int], error: HriError | None) -> None:
        self.asked: list[int] = []
        self._read, self._error = read, error

    async def apply(self, machine_id: str, change: ApplyRequest, *, generation: int, minor: int) -> Operation:
        assert (machine_id, generation, minor) == ("m-1", 3, 1)
        if self._error is not None:
            raise self._error
        self.asked.append(self._read(change))
        return Operation()


class Address:
    def __init__(self, *capabilities: str) -> None:
        self.capabilities = frozenset(capabilities)


class Session:
    def __init__(self, *capabilities: str, read: Callable[[ApplyRequest], int], error: HriError | None = None) -> None:
        self.client, self.address = Client(read, error), Address(*capabilities)

    async def finished(self, operation: Operation) -> None:
        del operation


class Launchers:
    """Notes how much more memory the pod is to have."""

    def __init__(self, *, fixed: bool) -> None:
        self.sizes: list[int] = []
        self._fixed = fixed

    async def resize(self, pod_uid: str, more: int) -> None:
        assert pod_uid == "p-1"
        if self._fixed:
            raise OSError(95, "its container has a memory limit")
        self.sizes.append(more)


class Context:
    def __init__(self, *, fixed: bool = False) -> None:
        self.events: list[str] = []
        self.launchers = Launchers(fixed=fixed)

    def event(self, _machine: Any, _kind: Any, reason: str, message: str) -> None:
        self.events.append(f"{reason}: {message}")
