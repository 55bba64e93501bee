"""What a check works with: a client, raw access to the wire, machines that are cleaned up."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from grpclib.client import Channel
from grpclib.const import Cardinality
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError

from anyvisor.hri.client import Deadlines, HriClient, new_operation_id
from anyvisor.hri.conformance.process import DriverProcess
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.identity_pb2 import GetInfoResponse
from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Boot, Console, Cpu, Kernel, Machine, Memory
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_UNSPECIFIED
from anyvisor.planning.manifest import Manifest, Statement

DEADLINES: Final = Deadlines(quick=5, plan=10, accept=10, destroy=15)
SERVICE: Final = "/anyvisor.hri.v1.MachineService/"


class CheckFailedError(Exception):
    """The driver did not keep the contract; the message says what was done, expected and seen."""


class CheckSkippedError(Exception):
    """The check does not apply to this driver, or cannot look."""


def fail(message: str) -> NoReturn:
    """End the check as failed."""
    raise CheckFailedError(message)


def expect(holds: object, message: str) -> None:
    """Fail with the message unless it holds."""
    if not holds:
        fail(message)


class _RawCodec(CodecBase):
    """Bytes as they are."""

    __content_subtype__ = "proto"  # pyright: ignore - declared as an abstract property

    def encode(self, message: Any, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


@dataclass(frozen=True, slots=True)
class Files:
    """What a guest boots from."""

    kernel: str | None = None
    initrd: str | None = None
    command_line: str = ""


@dataclass
class Session:
    """One run's connection. `info` is set by the first check."""

    hri_socket: str
    fd_socket: str | None
    client: HriClient
    machine: Machine
    manifest_digest: str = ""
    manifest: Manifest | None = None
    """What the driver says of itself; without, what it claims cannot be tried."""
    talking: Files = Files()
    """What to boot at level 1: it must talk on the first serial port and obey the power button."""
    talks: bool = False
    """Whether that guest goes on talking by itself."""
    reporting: Files | None = None
    """What to boot from level 2 on: the guest that reports its hardware (docs/hri, section 10)."""
    driver: DriverProcess | None = None
    """The driver, where this program started it."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What lives until the run ends."""
    shared: dict[str, Any] = field(default_factory=dict[str, Any])
    """What one check made and others use, by name."""
    notes: list[str] = field(default_factory=list[str])
    """What the check that runs has to tell though it passes; emptied before each."""
    info: GetInfoResponse = field(default_factory=GetInfoResponse)
    facts: NodeFacts = field(default_factory=NodeFacts)
    """What the driver said of this host, once asked."""
    not_ready: str = ""
    """Why the driver says that it cannot run machines here; what needs one is then skipped."""
    _count: int = 0

    def claim(self, capability_id: str) -> Statement | None:
        """What the driver states of a capability here: its manifest, narrowed by the facts of this host.

        None: it does not have it. Skips the check where no manifest was given.
        """
        if self.manifest is None:
            raise CheckSkippedError("no manifest file was given (--manifest): nobody knows what the driver claims")
        statement = self.manifest.capabilities.get(capability_id)
        if statement is None or not statement.yes or capability_id in self.facts.withdrawn_capabilities:
            return None
        return statement

    def needs(self, capability_id: str) -> Statement:
        """The driver's statement; skips the check where it makes none."""
        statement = self.claim(capability_id)
        if statement is None:
            raise CheckSkippedError(f"the driver does not claim {capability_id}")
        return statement

    def spec(self, **more: Any) -> Machine:
        """A new machine of the shape under test, with an id of its own."""
        if self.not_ready:
            raise CheckSkippedError(f"the driver is not ready: {self.not_ready}")
        self._count += 1
        machine = Machine()
        machine.CopyFrom(self.machine)
        machine.id = f"conform-{os.getpid()}-{self._count}"
        machine.MergeFrom(Machine(**more))
        return machine

    @asynccontextmanager
    async def prepared(self, needs: Sequence[str] = ()) -> AsyncGenerator[tuple[Machine, PrepareResponse]]:
        """A prepared machine, destroyed at the end."""
        machine = self.spec()
        async with self.cleanup(machine.id):
            yield machine, await self.client.prepare(machine, needs, generation=1)

    @asynccontextmanager
    async def cleanup(self, machine_id: str) -> AsyncGenerator[None]:
        """Destroy the machine at the end, whatever happened."""
        try:
            yield
        finally:
            with contextlib.suppress(HriError):
                await self.client.destroy(machine_id, generation=1 << 40)

    async def raw(self, method: str, request: bytes, seconds: float = 5.0) -> tuple[str, bytes]:
        """One unary call with bytes that need be no message: status name and answer.

        A method without a slash is one of MachineService.
        """
        path = method if method.startswith("/") else SERVICE + method
        begin = time.monotonic()
        async with Channel(path=self.hri_socket, codec=_RawCodec()) as channel:
            call = channel.request(path, Cardinality.UNARY_UNARY, bytes, bytes, timeout=seconds)
            try:
                async with call as stream:
                    await stream.send_message(request, end=True)
                    answer = await stream.recv_message()
                return "OK", answer or b""
            except GRPCError as error:
                return error.status.name, b""
            except TimeoutError:
                return "DEADLINE_EXCEEDED", b""
            except (OSError, StreamTerminatedError):
                # The server knows the deadline too, and may be the first to end the call for it.
                late = time.monotonic() - begin >= seconds
                return ("DEADLINE_EXCEEDED" if late else "UNAVAILABLE"), b""

    def driver_pid(self) -> int:
        """The pid of the driver, as the kernel tells it; skips the check where it is not visible."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(self.hri_socket)
            pid, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if pid <= 0 or not Path(f"/proc/{pid}/fd").is_dir():
            raise CheckSkippedError("the driver's process is not visible from here")
        return pid

    def driver_descriptors(self) -> int:
        """How many descriptors the driver's process has open."""
        try:
            return len(os.listdir(f"/proc/{self.driver_pid()}/fd"))
        except OSError as error:
            raise CheckSkippedError(f"the driver's descriptors are not visible from here: {error}") from None


async def status_of(call: Awaitable[object]) -> str:
    """The status name of a call through the client."""
    try:
        await call
    except HriError as error:
        return error.status
    return "OK"


async def refusal(call: Awaitable[object], what: str, *statuses: str) -> HriError:
    """The error of a call that must be refused with one of the statuses, with a message for a person."""
    try:
        await call
    except HriError as error:
        expect(
            error.status in statuses, f"{what}: expected {' or '.join(statuses)}, got {error.status} ({error.message})"
        )
        expect(error.message and error.message != error.status, f"{what}: the refusal {error.status} has no message")
        return error
    fail(f"{what}: expected {' or '.join(statuses)}, but it was accepted")


def small_machine() -> Machine:
    """One vCPU, 128 MiB, a kernel with an initial RAM disk, a serial console: what every driver can plan."""
    return Machine(
        id="conform",
        name="conformance",
        accelerator=ACCELERATOR_UNSPECIFIED,
        cpu=Cpu(sockets=1, cores=1, threads=1),
        memory=Memory(size_bytes=128 << 20),
        boot=Boot(kernel=Kernel(kernel_handle="kernel", initrd_handle="initrd", command_line="console=ttyS0")),
        consoles=[Console(id="serial0", kind=Console.KIND_SERIAL)],
    )


def operation_id() -> str:
    """A new one."""
    return new_operation_id()


Check = Callable[[Session], Awaitable[None]]
