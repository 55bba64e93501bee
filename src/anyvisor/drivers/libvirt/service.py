"""The libvirt driver: the HRI's methods in terms of sessions and translations."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Final

from anyvisor import __version__
from anyvisor.drivers.libvirt import facts, handle, kernels, manifest
from anyvisor.drivers.libvirt.connection import Connection
from anyvisor.drivers.libvirt.facts import Facts
from anyvisor.drivers.libvirt.session import Session
from anyvisor.drivers.libvirt.translate import Host, translate
from anyvisor.hri.errors import VmmFailed
from anyvisor.hri.kit import Call, Descriptors, DriverInfo, MachineContext, streams
from anyvisor.hri.kit.sessions import SessionDriver
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import AdoptRequest, LaunchPlan, PrepareRequest, PrepareResponse
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.stream_pb2 import OpenStreamRequest, OpenStreamResponse
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM

VMM: Final = "libvirt"
PROBE_SECONDS: Final = 3.0
LOOK_AGAIN_SECONDS: Final = 60.0
"""Nothing tells when a daemon is installed, or /dev/kvm appears."""


class LibvirtDriver(SessionDriver[Session]):
    """QEMU on x86 as a libvirt daemon runs it."""

    def __init__(self, uri: str, cache: Path | None = None) -> None:
        super().__init__(Session)
        self._uri = uri
        self._cache = cache
        self._directory = kernels.directory()
        self._held: Connection | None = None
        self._version = ""

    @property
    def _connection(self) -> Connection:
        """Made at the first use: it belongs to the running loop."""
        if self._held is None:
            self._held = Connection(self._uri)
        return self._held

    @property
    def info(self) -> DriverInfo:
        """Who the driver is."""
        return DriverInfo(
            driver=manifest.DRIVER,
            version=__version__,
            vmm_name=VMM,
            vmm_version=self._version,
            manifest_digest=manifest.read().digest,
            profiles=("stats",),
        )

    async def _facts(self) -> Facts:
        found = await facts.find(self._connection, self._directory, self._cache)
        self._version = found.version
        return found

    async def _usable(self) -> Facts:
        found = await self._facts()
        if found.problem:
            raise VmmFailed(found.problem, retry="after_change")
        return found

    async def node_facts(self) -> AsyncGenerator[NodeFacts]:
        """The facts, and again whenever they change: when the daemon comes or goes, and once in a while."""
        last: Facts | None = None
        while True:
            changed = self._connection.changed
            found = await self._facts()
            if found != last:
                last = found
                yield _node_facts(found)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_SECONDS):
                    await changed.wait()

    async def probe(self) -> Sequence[Condition]:
        """Ready when the daemon answers; for its first answer it looks at QEMU, which may take longer than a call."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                found = await self._facts()
        except TimeoutError:
            said = f"libvirt has not said within {PROBE_SECONDS:g} s what it can do here; ask again"
            return [Condition(type="VmmAvailable", reason="Asking", message=said)]
        return [found.condition(VMM)]

    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        """Translate."""
        found = await self._usable()
        result = translate(request.machine, self._host(found))
        stated = manifest.read().stated
        response = PrepareResponse(
            confirmed=[need for need in request.needs if need in stated],
            launch=LaunchPlan(mode=LaunchPlan.MODE_EXTERNAL),
            endpoints=result.endpoints,
            driver_handles=result.handles,
            devices=result.devices,
            accelerator=result.accelerator,
            profile=result.profile,
            findings=result.findings,
        )
        response.handle = handle.make(response)
        return response

    async def start(self, machine: MachineContext, call: Call) -> None:
        """Define the domain and run it."""
        assert machine.spec is not None
        found = await self._usable()
        session = self._session_for(machine)
        await session.start(
            translate(machine.spec, self._host(found)),
            call.descriptors,
            paused=machine.spec.lifecycle.start_paused,
        )
        with machine.change() as state:
            state.vmm_version = found.version

    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        """Take over a domain that a driver process before this one started."""
        remembered = handle.read(request.handle)
        with machine.change() as state:
            state.handle = request.handle
            state.accelerator = remembered.accelerator
            del state.devices[:], state.endpoints[:]
            state.devices.extend(remembered.devices)
            state.endpoints.extend(remembered.endpoints)
        await self._session_for(machine).adopt(remembered.endpoints, call.descriptors)

    def _session_for(self, machine: MachineContext) -> Session:
        if isinstance(machine.session, Session):
            machine.session.close()
        machine.session = Session(machine, self._connection, self._directory)
        return machine.session

    async def destroy(self, machine: MachineContext, call: Call) -> None:
        """End the domain and take it out of libvirt; fails when libvirt does not answer, as only it can do that."""
        session = machine.session if isinstance(machine.session, Session) else self._session_for(machine)
        await session.read_end()
        await session.end()
        await session.forget()
        session.close()

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """Streams are endpoints of the machine: say which."""
        return streams.endpoint_of(machine, request, streams.CONSOLE, streams.DISPLAY)

    async def stats(self, machine: MachineContext) -> MachineStats:
        """By libvirt's own counters."""
        return await self.session(machine).counters()

    async def close(self) -> None:
        """Let go of the daemon; domains go on."""
        if self._held is not None:
            await self._held.close()

    def _host(self, found: Facts) -> Host:
        return Host(
            profiles=frozenset(found.profiles),
            default_profile=found.default_profile,
            accelerators=(ACCELERATOR_KVM, ACCELERATOR_EMULATION) if found.kvm_runs else (ACCELERATOR_EMULATION,),
            reasons={ACCELERATOR_KVM: found.kvm_message},
            cpu_models=frozenset(found.cpu_models),
            displays=frozenset(found.displays),
            directory=str(self._directory),
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
    )
