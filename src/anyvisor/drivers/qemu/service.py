"""The QEMU driver: the HRI's methods in terms of sessions and translations."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from anyvisor import __version__
from anyvisor.drivers.qemu import EMULATOR, changes, cpus, facts, firmware, handle, manifest
from anyvisor.drivers.qemu.facts import Facts
from anyvisor.drivers.qemu.firmware import Uefi
from anyvisor.drivers.qemu.session import Session
from anyvisor.drivers.qemu.translate import Host, tpm, translate
from anyvisor.drivers.qemu.translate.firmware import is_uefi
from anyvisor.drivers.qemu.translate.host import Firmware
from anyvisor.drivers.qemu.translate.machine import CONTROL
from anyvisor.hri.kit import Call, Descriptors, DriverInfo, MachineContext, kvm, streams
from anyvisor.hri.kit.facts import Finder
from anyvisor.hri.kit.sessions import SessionDriver
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import AdoptRequest, ApplyRequest, PrepareRequest, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.stream_pb2 import (
    STREAM_KIND_GUEST_PORT,
    OpenStreamRequest,
    OpenStreamResponse,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM

VMM: Final = "QEMU"


class QemuDriver(SessionDriver[Session]):
    """QEMU on x86, by KVM where a guest really runs on it, else by software emulation."""

    def __init__(self, emulator: str = EMULATOR, cache: Path | None = None) -> None:
        super().__init__(Session)
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
            profiles=("stats",),
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
        result = translate(request.machine, await asyncio.to_thread(_host, found, request.machine))
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

    async def apply(self, machine: MachineContext, request: ApplyRequest, call: Call) -> None:
        """One live change."""
        await changes.apply(self.session(machine), request, call.descriptors)

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """Streams are endpoints of the machine: say which. A port of the guest is opened for the time of the stream."""
        if request.kind == STREAM_KIND_GUEST_PORT:
            session = machine.session_of(Session)
            stream, address = await session.forwards.open(request.transport or "tcp", request.port)
            return OpenStreamResponse(stream_id=stream, address=address, protocol=request.transport or "tcp")
        return streams.endpoint_of(machine, request, streams.CONSOLE, streams.DISPLAY)

    async def stats(self, machine: MachineContext) -> MachineStats:
        """By QMP."""
        return await machine.session_of(Session).counters.read()

    async def close_stream(self, machine: MachineContext, stream_id: str) -> None:
        """Only ports of the guest are ours to close."""
        if isinstance(machine.session, Session):
            await machine.session.forwards.close(stream_id)


def _host(found: Facts, machine: Machine) -> Host:
    """The facts, with the templates read that this machine may need."""
    uefi = is_uefi(machine)
    return Host(
        emulator=found.emulator,
        profiles=frozenset(found.profiles),
        default_profile=found.default_profile,
        accelerators=found.accelerators,
        reasons={ACCELERATOR_KVM: found.kvm_message},
        cpu_models=frozenset(found.cpu_models),
        displays=frozenset(found.displays),
        tpm=found.tpm,
        file_server=found.file_server,
        huge_page_bytes=frozenset(found.huge_page_bytes),
        cpu_features={
            accelerator: frozenset(features)
            for accelerator, features in (
                (ACCELERATOR_EMULATION, found.emulated_features),
                (ACCELERATOR_KVM, found.kvm_features),
            )
            if features
        },
        uefi=_firmware(found.uefi) if uefi else None,
        uefi_secure=_firmware(found.uefi_secure) if uefi else None,
    )


def _firmware(found: Uefi | None) -> Firmware | None:
    return Firmware(found.code, firmware.read_template(found)) if found is not None else None


def _node_facts(found: Facts) -> NodeFacts:
    withdrawn = dict(firmware.problems(found.uefi, found.uefi_secure))
    if not found.tpm:
        withdrawn["device.tpm"] = f"no TPM emulator is installed on this node: {tpm.INSTALL}"
    if found.file_server is None:
        withdrawn["fs.virtiofs"] = found.file_server_problem
    if not found.huge_page_bytes:
        withdrawn["memory.hugepages"] = "no huge pages are reserved on this node: sysctl vm.nr_hugepages=N"
    if not found.vsock:
        withdrawn["device.vsock"] = "this node has no /dev/vhost-vsock: modprobe vhost_vsock"
    if not found.kvm_runs:
        withdrawn["accel.kvm"] = found.kvm_message
        withdrawn["change.cpu"] = cpus.EMULATED
    return NodeFacts(
        health=found.health,
        conditions=[found.condition(VMM)],
        accelerators=[
            found.kvm,
            AcceleratorFact(accelerator=ACCELERATOR_EMULATION, opens=not found.problem, runs_guest=not found.problem),
        ],
        withdrawn_capabilities=sorted(withdrawn),
        withdrawal_reasons=withdrawn,
        cpu_models=found.cpu_models,
        machine_profiles=[*(["q35"] if found.default_profile else []), *found.profiles],
        vmm_version=found.version,
        devices_needed=[kvm.DEVICE] if found.kvm_runs else [],
    )
