"""A driver whose VMM is `vmm.py`, made with the driver kit and run as a process of its own.

usage: testdriver.py DIRECTORY PYTHON VMM

Serves DIRECTORY/hri.sock and fd.sock. DIRECTORY/faults, when there, is JSON: method -> hang | crash | refuse | fail.
DIRECTORY/starts/<machine id> gets a line from each VMM that was started.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from anyvisor.hri.errors import MachineNotFound, Refused, VmmFailed, finding
from anyvisor.hri.kit.descriptors import Descriptors
from anyvisor.hri.kit.driver import Call, Driver, DriverInfo
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.kit.server import serve
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import (
    AdoptRequest,
    DescriptorSlot,
    LaunchPlan,
    PrepareRequest,
    PrepareResponse,
    StopRequest,
)
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.stream_pb2 import OpenStreamRequest, OpenStreamResponse
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_EMULATION,
    END_REASON_FORCED,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_UNKNOWN,
    PHASE_LOST,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    Endpoint,
    StopScript,
)

NAME = "test.anyvisor.io"
CAPABILITIES = frozenset({"console.log", "console.serial", "lifecycle.shutdown"})


class Session:
    """The control channel to one VMM."""

    def __init__(self, machine: MachineContext) -> None:
        self.machine = machine
        self.asked = False
        self.forced = False
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self.task: asyncio.Task[None] | None = None
        self.states: asyncio.Queue[str] = asyncio.Queue()

    async def open(self, connection: socket.socket) -> str:
        self.reader, self.writer = await asyncio.open_unix_connection(sock=connection)
        self.task = asyncio.create_task(self.follow(), name=f"vmm {self.machine.id}")
        async with asyncio.timeout(5):
            return await self.states.get()

    async def follow(self) -> None:
        assert self.reader is not None
        while line := await self.reader.readline():
            word, _, value = line.decode().strip().partition(" ")
            if word == "STATE":
                self.states.put_nowait(value)
            elif word == "DOWN":
                self.down(END_REASON_REQUESTED_SHUTDOWN if self.asked else END_REASON_GUEST_SHUTDOWN)
        self.machine.connected = False
        self.states.put_nowait("gone")
        if not self.machine.ended:
            with self.machine.change() as state:
                state.phase = PHASE_STOPPED if self.forced else PHASE_LOST
                state.end_reason = END_REASON_FORCED if self.forced else END_REASON_UNKNOWN

    def down(self, reason: int) -> None:
        if not self.machine.ended:
            with self.machine.change() as state:
                state.phase = PHASE_STOPPED
                state.end_reason = reason  # type: ignore[assignment]

    def send(self, line: bytes) -> None:
        if self.writer is None or self.writer.is_closing():
            raise VmmFailed("the control channel is closed")
        self.writer.write(line + b"\n")


class TestDriver(Driver):
    """Real hand-over, real sockets, a small VMM."""

    def __init__(self, directory: Path, python: str, vmm: str) -> None:
        self.directory, self.python, self.vmm = directory, python, vmm

    @property
    def info(self) -> DriverInfo:
        return DriverInfo(driver=NAME, version="1.0", vmm_name="test", manifest_digest="sha256:0")

    async def node_facts(self) -> AsyncGenerator[NodeFacts]:
        yield NodeFacts(
            health=NodeFacts.HEALTH_HEALTHY,
            accelerators=[AcceleratorFact(accelerator=ACCELERATOR_EMULATION, opens=True, runs_guest=True)],
        )
        await asyncio.Event().wait()

    async def probe(self) -> Sequence[Condition]:
        return ()

    async def fault(self, method: str) -> None:
        try:
            fault = json.loads((self.directory / "faults").read_text()).get(method)
        except FileNotFoundError:
            return
        if fault == "hang":
            await asyncio.sleep(3600)
        elif fault == "crash":
            os._exit(70)
        elif fault == "refuse":
            found = [finding("VALUE_NOT_IN_SET", "the bus is not one of ours", field="disks[0].bus")]
            raise Refused("this machine cannot be", findings=found)
        elif fault == "fail":
            raise VmmFailed("the VMM said no", retry="never")

    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        await self.fault("prepare")
        spec = request.machine
        script = StopScript(
            request=[StopScript.Step(send=b"powerdown\n", expect=b"DOWN")],
            finish=[StopScript.Step(send=b"quit\n")],
        )
        slots = [(10, "control"), (11, "stop"), (12, "console/serial0")]
        if spec.consoles and spec.consoles[0].log_handle:
            slots.append((13, spec.consoles[0].log_handle))
        return PrepareResponse(
            confirmed=request.needs,
            launch=LaunchPlan(
                mode=LaunchPlan.MODE_EXEC,
                argv=[self.python, "-I", "-S", self.vmm, str(self.directory / "starts" / spec.id)],
                descriptors=[DescriptorSlot(number=number, handle=handle) for number, handle in slots],
                working_directory=True,
            ),
            endpoints=[
                Endpoint(id="control", purpose=Endpoint.PURPOSE_CONTROL, exclusive=True, listen_descriptor=10),
                Endpoint(id="stop", purpose=Endpoint.PURPOSE_STOP, listen_descriptor=11, stop_script=script),
                Endpoint(id="console/serial0", purpose=Endpoint.PURPOSE_CONSOLE, exclusive=True, listen_descriptor=12),
                *(_display(display.id) for display in spec.displays),
            ],
            driver_handles=["control"],
            handle=spec.id.encode(),
            accelerator=ACCELERATOR_EMULATION,
            profile="test-1",
        )

    async def start(self, machine: MachineContext, call: Call) -> None:
        await self.fault("start")
        session = machine.session
        if session is None or not machine.connected:
            session = machine.session = Session(machine)
            if await session.open(call.descriptors.take_socket("control")) == "gone":
                raise VmmFailed("the VMM closed its control channel", retry="never")
        session.send(b"run")
        async with asyncio.timeout(5):
            while await session.states.get() != "running":
                continue

    async def stop(self, machine: MachineContext, call: Call, mode: StopRequest.Mode, reboot: bool) -> None:
        await self.fault("stop")
        session: Session = machine.session
        if mode == StopRequest.MODE_REQUEST:
            session.asked = True
            session.send(b"powerdown")
            return
        session.forced = True
        session.send(b"quit")
        if session.task is not None:
            await session.task

    async def destroy(self, machine: MachineContext, call: Call) -> None:
        await self.fault("destroy")
        session: Session | None = machine.session
        if session is not None and session.writer is not None and not session.writer.is_closing():
            session.forced = True
            session.send(b"quit")

    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        await self.fault("adopt")
        session = machine.session = Session(machine)
        word = await session.open(call.descriptors.take_socket("control"))
        if word == "gone":
            raise MachineNotFound("nothing answers")
        phases = {"prelaunch": PHASE_PREPARED, "running": PHASE_RUNNING, "down": PHASE_STOPPED}
        with machine.change() as state:
            state.phase = phases[word]
            state.accelerator = ACCELERATOR_EMULATION
            if word == "down":
                state.end_reason = END_REASON_UNKNOWN

    async def inspect(self, machine: MachineContext) -> None:
        await self.fault("inspect")

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """A port of the guest is that of this host; the file `streams` lists what is open."""
        await self.fault("open_stream")
        stream = f"{request.transport}-{request.port}"
        (self.directory / "streams").write_text(stream)
        far = "192.0.2.1" if request.port == 1 else "127.0.0.1"
        return OpenStreamResponse(stream_id=stream, address=f"{far}:{request.port}")

    async def close_stream(self, machine: MachineContext, stream_id: str) -> None:
        assert (self.directory / "streams").read_text() == stream_id
        (self.directory / "streams").unlink()


def _display(device_id: str) -> Endpoint:
    return Endpoint(
        id=f"display/{device_id}",
        purpose=Endpoint.PURPOSE_DISPLAY,
        protocol="rfb",
        vmm_path="display.sock",
        device_id=device_id,
    )


def main() -> None:
    directory = Path(sys.argv[1])
    driver = TestDriver(directory, sys.argv[2], sys.argv[3])
    asyncio.run(serve(driver, directory / "hri.sock", directory / "fd.sock"))


if __name__ == "__main__":
    main()
