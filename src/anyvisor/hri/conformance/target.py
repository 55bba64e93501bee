"""A running machine that is changed: its guest tells what it sees; of a driver without VMM, the books do."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from anyvisor.hri.client import outcome
from anyvisor.hri.conformance.cases import Basis
from anyvisor.hri.conformance.claims import basis
from anyvisor.hri.conformance.materials import Materials
from anyvisor.hri.conformance.report_guest import GuestReport, ask
from anyvisor.hri.conformance.running import Running, Shape, booted
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect, fail
from anyvisor.hri.conformance.standing import boot, machine_for, standing
from anyvisor.hri.errors import DeadlineExceeded, HriError
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Machine, Memory
from anyvisor.hri.v1.types_pb2 import DescriptorToken, MachineState, Operation

SETTLE_SECONDS: Final = 30.0
"""How long a guest may take to notice a change."""
PAUSE_SECONDS: Final = 0.5
GROWS_FROM: Final = 1 << 30
"""No guest of the API that may grow has less."""
GROWS_TO: Final = GROWS_FROM + (512 << 20)
"""More by a multiple of 128 MiB, in which some VMMs add memory."""


@dataclass(slots=True)
class Target:
    """The machine, what it is made of, and its guest where it has one."""

    session: Session
    machine: Machine
    materials: Materials
    works: Basis
    running: Running | None = None
    """Its VMM; None of a driver that starts none."""
    unseen: str = ""
    """Why its guest cannot tell what it sees: a change is tried all the same, and then proves nothing."""
    placed: int = 0

    async def apply(self, change: ApplyRequest, handles: Mapping[str, int] | None = None) -> None:
        """One change that must come to a good end."""
        try:
            await self.attempt(change, handles)
        except HriError as error:
            if self.unseen and isinstance(error, DeadlineExceeded):
                raise CheckSkippedError(f"the small guest does not take part: {error.message}; {self.unseen}") from None
            said = f"; the VMM said: {self.running.launcher.errors()}" if self.running is not None else ""
            fail(f"{change.WhichOneof('change')} failed with {error.status}: {error.message}{said}")

    async def attempt(self, change: ApplyRequest, handles: Mapping[str, int] | None = None) -> None:
        """One change to its end; raises the error with which it was refused or failed."""
        operation = await self._accept(change, handles)
        async with asyncio.timeout(SETTLE_SECONDS):
            while operation.state == Operation.STATE_RUNNING:
                await asyncio.sleep(PAUSE_SECONDS)
                operation = await self.session.client.get_operation(operation.id)
        error = outcome(operation)
        if error is not None:
            raise error

    async def _accept(self, change: ApplyRequest, handles: Mapping[str, int] | None = None) -> Operation:
        """The call alone. Each descriptor goes by token, and each file under a name in the launcher's directory."""
        tokens: list[DescriptorToken] = []
        for handle, fd in (handles or {}).items():
            if self.session.fd_socket is not None:
                tokens.append(await self.session.client.send_descriptor(handle, fd))
            source = self.materials.file(handle)
            if self.running is not None and source.exists():
                self.placed += 1
                name = f"hot-{self.placed}"
                os.link(source, self.running.launcher.directory / name)
                change.placed[handle] = name
        return await self.session.client.apply(self.machine.id, change, generation=1, tokens=tokens)

    async def state(self) -> MachineState:
        """What Inspect says."""
        return await self.session.client.inspect(self.machine.id)

    async def sees(self, wanted: Callable[[GuestReport], object], what: str) -> None:
        """The guest must come to see it. Without a guest there is nobody to ask."""
        if self.running is None:
            return
        if self.unseen:
            raise CheckSkippedError(f"the VMM has done it, and its guest cannot tell: {self.unseen}")
        report = GuestReport({})
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while not wanted(report):
                    report = await ask(self.running)
                    await asyncio.sleep(0)
        except TimeoutError:
            fail(f"{what}, and {SETTLE_SECONDS:g} s later the guest does not see it: {dict(report.records)}")

    async def memory(self) -> int:
        """The bytes that the guest counts; 0 where there is nobody to ask."""
        if self.running is None or self.unseen:
            return 0
        return int((await ask(self.running)).one("memory").get("bytes", "0"))

    async def tells(self, device: str, present: bool) -> None:
        """The state must name the device, or no longer."""
        named = device in {each.id for each in (await self.state()).devices}
        expect(named == present, f"after the change, the state names {device}: {named}")


async def target(session: Session) -> Target:
    """The machine that all live changes are made to."""
    found = session.shared.get("target")
    if isinstance(found, Target):
        return found
    made = await _of_books(session) or await _with_guest(session)
    session.shared["target"] = made
    return made


@asynccontextmanager
async def growing(session: Session) -> AsyncGenerator[Target]:
    """A machine of its own that has room for more memory: a guest sets much of its own aside for what may come."""
    room = Machine(memory=Memory(size_bytes=GROWS_FROM, max_bytes=GROWS_TO))
    async with AsyncExitStack() as stack:
        books = await _enter_books(session, room, stack)
        if books is not None:
            yield Target(session, books, stack.enter_context(Materials()), basis(session))
            return
        unseen = ""
        try:
            running = await boot(session, Shape(room), stack)
        except CheckSkippedError as error:
            unseen = str(error)
            running = await stack.enter_async_context(booted(session, shape=Shape(room)))
        materials = stack.enter_context(Materials())
        yield Target(session, running.machine, materials, basis(session), running, unseen)


async def _with_guest(session: Session) -> Target:
    try:
        found = await standing(session)
    except CheckSkippedError as error:
        return await _unseen(session, str(error))
    return Target(session, found.running.machine, found.materials, found.works, found.running)


async def _unseen(session: Session, why: str) -> Target:
    """The same machine with the small guest, which runs on hosts where the reporting one does not."""
    materials = session.stack.enter_context(Materials())
    works = basis(session)
    shape = Shape(machine_for(session, works, materials), materials.handles)
    running = await session.stack.enter_async_context(booted(session, shape=shape))
    return Target(session, running.machine, materials, works, running, why)


async def _of_books(session: Session) -> Target | None:
    """The machine of a driver that starts no VMM."""
    materials = session.stack.enter_context(Materials())
    works = basis(session)
    machine = await _enter_books(session, machine_for(session, works, materials), session.stack)
    return Target(session, machine, materials, works) if machine is not None else None


async def _enter_books(session: Session, shape: Machine, stack: AsyncExitStack) -> Machine | None:
    """A machine that runs in the books alone; None where its driver starts a VMM."""
    machine = session.spec()
    machine.MergeFrom(shape)
    await stack.enter_async_context(session.cleanup(machine.id))
    answer = await session.client.prepare(machine, [], generation=1)
    if answer.launch.mode != LaunchPlan.MODE_NONE:
        await session.client.destroy(machine.id, generation=1)
        return None
    operation = await session.client.start(machine.id, generation=1)
    expect(operation.state == Operation.STATE_DONE, "Start was not done within a second")
    return machine
