"""The kit's core with rules broken to order; a driver on the true kit could not break them."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

from google.protobuf.message import Message

from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.core import Core, KitLimits
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.kit.machines import MachineContext, Registry
from anyvisor.hri.kit.operations import Entry, OperationTable
from anyvisor.hri.v1.identity_pb2 import GetInfoResponse
from anyvisor.hri.v1.machine_pb2 import Event, Mutation, WatchRequest


class _GappyLog(EventLog):
    """Loses every n-th event, and its number."""

    def __init__(self, boot_id: str, every: int) -> None:
        super().__init__(boot_id)
        self._every = every

    def append(self, event: Event, now_unix_nano: int) -> Event:
        if (self.head + 1) % self._every == 0:
            self._head += 1
        return super().append(event, now_unix_nano)

    def since(self, sequence: int) -> list[Event] | None:
        if not 1 <= sequence <= self.head + 1:
            return None
        return [event for _, event in self._events if event.sequence >= sequence]


class _Forgetful(OperationTable):
    """Takes each replay for a new operation."""

    def replay(self, operation_id: str, digest: bytes) -> Entry | None:
        return None


class _Hoard(Registry):
    """Never forgets a machine."""

    def remove(self, machine: MachineContext) -> None:
        return None


class FaultyCore(Core):
    """The kit's core, as the fake driver's faults order it."""

    def __init__(self, driver: FakeDriver, limits: KitLimits | None = None) -> None:
        super().__init__(driver, limits)
        self._fake = driver
        self._faults = driver.faults
        if self._faults.gaps:
            self.log = _GappyLog(self.boot_id, self._faults.gaps)
            self.machines = Registry(self.log, max_machines=self.limits.machines)
        if self._faults.amnesia:
            self.operations = _Forgetful()
        if self._faults.leak:
            self.machines = _Hoard(self.log, max_machines=self.limits.machines)

    async def get_info(self) -> GetInfoResponse:
        await self._fake.fault("info")
        info = await super().get_info()
        if "info" in self._faults.lies:
            info.boot_id = os.urandom(8).hex()
        return info

    async def watch(self, request: WatchRequest) -> AsyncGenerator[Event]:
        await self._fake.fault("watch")
        async with aclosing(super().watch(request)) as events:
            async for event in events:
                yield event

    def check_generation(self, machine: MachineContext, mutation: Mutation) -> None:
        if not self._faults.stale:
            super().check_generation(machine, mutation)

    def check_understood(self, message: Message, what: str) -> None:
        if not self._faults.skips:
            super().check_understood(message, what)
