"""The QEMU driver: the HRI's methods in terms of sessions and translations."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from anyvisor import __version__
from anyvisor.drivers.qemu import EMULATOR, facts, handle, manifest
from anyvisor.drivers.qemu.facts import Facts
from anyvisor.drivers.qemu.session import Session
from anyvisor.drivers.qemu.translate import Host, translate
from anyvisor.drivers.qemu.translate.machine import CONTROL
from anyvisor.hri.errors import HriError
from anyvisor.hri.kit import Call, Descriptors, Driver, DriverInfo, MachineContext, kvm, streams
from anyvisor.hri.kit.facts import Finder
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import AdoptRequest, PrepareRequest, PrepareResponse, StopRequest
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.stream_pb2 import (
    OpenStreamRequest,
    OpenStreamResponse,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM

VMM: Final = "QEMU"


class QemuDriver(Driver):
    """QEMU on x86, by KVM where a guest really runs on it, else by software emulation."""

    def __init__(self, emulator: str = EMULATOR, cache: Path | None = None) -> None:
        self._facts = Finder(lambda: facts.key(emulator), lambda: facts.find(emulator, cache))

    @property
    def info(self) -> DriverInfo:
        """Who the driver is."""
        return DriverInfo(
            driver=manifest.DRIVER,
            version=__version__,
            vmm_name=VMM,
            vmm_version=self._facts.version,
            manifest_digest=manifest.read().digest,
        )

    def node_facts(self) -> AsyncGenerator[NodeFacts]:
        """The facts, and again whenever they change."""
        return self._facts.node_facts(_node_facts)

    async def probe(self) -> Sequence[Condition]:
        """Ready when QEMU answers."""
        found = await self._facts.now()
        return [found.condition(VMM)]

    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        """Translate."""
        found = await self._facts.usable()
        result = translate(request.machine, _host(found))
        stated = manifest.read().stated
        response = PrepareResponse(
            confirmed=[need for need in request.needs if need in stated],
            launch=result.launch,
            endpoints=result.endpoints,
            driver_handles=[CONTROL],
            devices=result.devices,
            accelerator=result.accelerator,
            profile=result.profile,
            findings=result.findings,
        )
        response.handle = handle.make(request.machine, response)
        return response

    async def start(self, machine: MachineContext, call: Call) -> None:
        """Take the control channel and let the guest run."""
        if machine.connected and isinstance(machine.session, Session):
            # Adopted before its guest ever ran: the channel came with Adopt, and a second one would wait for ever.
            await machine.session.run_first()
            return
        connection = call.descriptors.take_socket(CONTROL)
        assert machine.spec is not None
        session = Session(machine, handle.first_run(machine.spec))
        machine.session = session
        await session.start(connection)

    async def stop(self, machine: MachineContext, call: Call, mode: StopRequest.Mode, reboot: bool) -> None:
        """Press the power button, or end QEMU."""
        session = machine.session_of(Session)
        if mode == StopRequest.MODE_REQUEST:
            await session.press_button(reboot=reboot)
        else:
            await session.quit()

    async def reset(self, machine: MachineContext, call: Call) -> None:
        """Hard reset."""
        await machine.session_of(Session).reset()

    async def pause(self, machine: MachineContext, call: Call) -> None:
        """Halt the vCPUs."""
        await machine.session_of(Session).pause()

    async def resume(self, machine: MachineContext, call: Call) -> None:
        """Run the vCPUs."""
        await machine.session_of(Session).resume()

    async def destroy(self, machine: MachineContext, call: Call) -> None:
        """Read the end state, end QEMU, forget the machine. A QEMU that does not answer is the agent's to kill."""
        if not isinstance(machine.session, Session):
            return
        session = machine.session
        await session.read_end()
        with contextlib.suppress(HriError, TimeoutError):
            await session.quit()
        session.close()

    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        """Take over a QEMU that runs."""
        remembered, first_run = handle.read(request.handle)
        connection = call.descriptors.take_socket(CONTROL)
        if isinstance(machine.session, Session):
            machine.session.close()
        with machine.change() as state:
            state.handle = request.handle
            state.accelerator = remembered.accelerator
            del state.devices[:], state.endpoints[:]
            state.devices.extend(remembered.devices)
            state.endpoints.extend(remembered.endpoints)
        session = Session(machine, first_run)
        machine.session = session
        await session.adopt(connection)

    async def inspect(self, machine: MachineContext) -> None:
        """Bring threads and memory up to date."""
        if isinstance(machine.session, Session) and machine.connected and not machine.ended:
            await machine.session.refresh()

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """Streams are endpoints of the machine: say which."""
        return streams.endpoint_of(machine, request, streams.CONSOLE, streams.DISPLAY)


def _host(found: Facts) -> Host:
    return Host(
        emulator=found.emulator,
        profiles=frozenset(found.profiles),
        default_profile=found.default_profile,
        accelerators=found.accelerators,
        reasons={ACCELERATOR_KVM: found.kvm_message},
        cpu_models=frozenset(found.cpu_models),
        displays=frozenset(found.displays),
    )


def _node_facts(found: Facts) -> NodeFacts:
    return NodeFacts(
        health=found.health,
        conditions=[found.condition(VMM)],
        accelerators=[
            found.kvm,
            AcceleratorFact(accelerator=ACCELERATOR_EMULATION, opens=not found.problem, runs_guest=not found.problem),
        ],
        withdrawn_capabilities=[] if found.kvm_runs else ["accel.kvm"],
        cpu_models=found.cpu_models,
        machine_profiles=[*(["q35"] if found.default_profile else []), *found.profiles],
        vmm_version=found.version,
        devices_needed=[kvm.DEVICE] if found.kvm_runs else [],
    )
