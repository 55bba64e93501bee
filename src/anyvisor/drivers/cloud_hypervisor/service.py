"""The Cloud Hypervisor driver: the HRI's methods in terms of sessions and translations."""

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from anyvisor import __version__
from anyvisor.drivers.cloud_hypervisor import changes, facts, manifest, overlays
from anyvisor.drivers.cloud_hypervisor.facts import Facts
from anyvisor.drivers.cloud_hypervisor.session import Session
from anyvisor.drivers.cloud_hypervisor.translate import Host, Translation, translate
from anyvisor.drivers.cloud_hypervisor.translate.machine import CONTROL, EVENTS
from anyvisor.hri.errors import HriError, InvalidRequest, VmmFailed
from anyvisor.hri.kit import Call, Descriptors, DriverInfo, MachineContext, kvm, streams
from anyvisor.hri.kit.facts import Finder
from anyvisor.hri.kit.sessions import SessionDriver
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import AdoptRequest, ApplyRequest, PrepareRequest, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.stream_pb2 import OpenStreamRequest, OpenStreamResponse
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_KVM,
    END_REASON_INTERNAL_ERROR,
    PHASE_CRASHED,
    PHASE_PREPARED,
    Endpoint,
)

VMM: Final = "Cloud Hypervisor"
HANDLE_FORM: Final = 1
MAX_SPEC: Final = 24 << 10
"""Bytes of a machine in its handle, which may have 64 KiB, as Base64 and with all else."""


class Remembered(msgspec.Struct, frozen=True):
    """The handle: what Adopt needs and the VMM does not tell."""

    form: int
    system_uuid: str
    memory_max: int
    endpoints: tuple[bytes, ...]
    machine: bytes = b""
    """What was asked for, so that a process that comes before Start can carry it out; empty where it is too large."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What Prepare made and Start needs."""

    translation: Translation
    remembered: Remembered


class CloudHypervisorDriver(SessionDriver[Session]):
    """Cloud Hypervisor on x86 with KVM."""

    def __init__(self, binary: str = "", cache: Path | None = None) -> None:
        """`binary` is the configured program; empty = by environment or PATH. `cache` keeps the node's facts."""
        super().__init__(Session)
        self._configured = binary
        self._facts = Finder(lambda: facts.key(*self._program()), lambda: facts.find(*self._program(), cache))

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

    def _program(self) -> tuple[str, str]:
        """The program and the firmware, as they are now."""
        return facts.binary_path(self._configured, os.environ), facts.firmware_path(os.environ)

    def node_facts(self) -> AsyncGenerator[NodeFacts]:
        """The facts, and again whenever they change."""
        return self._facts.node_facts(_node_facts)

    async def probe(self) -> Sequence[Condition]:
        """Ready when the VMM is there and new enough."""
        found = await self._facts.now()
        return [found.condition(VMM)]

    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        """Translate."""
        found = await self._facts.usable()
        result = translate(request.machine, _host(found))
        remembered = _remember(request.machine, result)
        machine.session = Planned(result, remembered)
        stated = manifest.read().stated - frozenset(_withdrawn(found))
        return PrepareResponse(
            confirmed=[need for need in request.needs if need in stated],
            launch=result.launch,
            endpoints=result.endpoints,
            driver_handles=result.driver_handles,
            handle=msgspec.json.encode(remembered),
            devices=result.devices,
            accelerator=ACCELERATOR_KVM,
            findings=result.findings,
        )

    async def start(self, machine: MachineContext, call: Call) -> None:
        """Take the channels, create the machine and boot it."""
        planned = machine.session
        if not isinstance(planned, Planned):
            raise VmmFailed(f"machine {machine.id!r} was not prepared; prepare it again")
        translation = planned.translation
        with contextlib.ExitStack() as stack:
            handles = [handle for handle in translation.driver_handles if handle not in (CONTROL, EVENTS)]
            taken = {handle: _take(call.descriptors, handle, stack) for handle in handles}
            await _prepare_overlays(machine, translation, taken)
            session = Session(machine, planned.remembered.memory_max)
            machine.session = session
            connection = call.descriptors.take_socket(CONTROL)
            events = call.descriptors.take(EVENTS)
            nics = [(nic, [taken[handle] for handle in nic.handles]) for nic in translation.nics]
            await session.start(connection, events, translation.config, nics)

    async def apply(self, machine: MachineContext, request: ApplyRequest, call: Call) -> None:
        """One live change."""
        await changes.apply(self.session(machine), request, call.descriptors)

    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        """Take over a VMM that runs."""
        remembered = _remembered(request.handle)
        connection = call.descriptors.take_socket(CONTROL)
        try:
            events = call.descriptors.take(EVENTS)
        except HriError:
            connection.close()
            raise
        if isinstance(machine.session, Session):
            machine.session.close()
        with machine.change() as state:
            state.handle = request.handle
            state.accelerator = ACCELERATOR_KVM
            del state.endpoints[:]
            state.endpoints.extend(Endpoint.FromString(each) for each in remembered.endpoints)
        session = Session(machine, remembered.memory_max)
        machine.session = session
        if not await session.adopt(connection, events, remembered.system_uuid, begun=not remembered.machine):
            session.close()
            await self._plan_again(machine, remembered)

    async def _plan_again(self, machine: MachineContext, remembered: Remembered) -> None:
        """The VMM waits for its machine still: the process that planned it ended before Start."""
        machine.spec = Machine.FromString(remembered.machine)
        machine.session = Planned(translate(machine.spec, _host(await self._facts.usable())), remembered)
        with machine.change() as state:
            state.phase = PHASE_PREPARED

    async def stats(self, machine: MachineContext) -> MachineStats:
        """By the VMM's own counters."""
        return await self.session(machine).counters()

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """Streams are endpoints of the machine: say which."""
        return streams.endpoint_of(machine, request, streams.CONSOLE)


def _take(descriptors: Descriptors, handle: str, stack: contextlib.ExitStack) -> int:
    """Take a descriptor that the VMM gets a copy of, or none; ours is closed with the stack."""
    descriptor = descriptors.take(handle)
    stack.callback(os.close, descriptor)
    return descriptor


async def _prepare_overlays(machine: MachineContext, translation: Translation, taken: Mapping[str, int]) -> None:
    try:
        await overlays.prepare(translation.overlays, taken.__getitem__)
    except HriError as error:
        with machine.change() as state:
            state.phase, state.end_reason = PHASE_CRASHED, END_REASON_INTERNAL_ERROR
            state.message = error.message
        raise


def _remember(machine: Machine, result: Translation) -> Remembered:
    spec = machine.SerializeToString(deterministic=True)
    platform = result.config.get("platform")
    uuid = platform.get("system_uuid") if isinstance(platform, dict) else None
    return Remembered(
        form=HANDLE_FORM,
        system_uuid=uuid if isinstance(uuid, str) else "",
        memory_max=machine.memory.max_bytes or machine.memory.size_bytes,
        endpoints=tuple(endpoint.SerializeToString(deterministic=True) for endpoint in result.endpoints),
        machine=spec if len(spec) <= MAX_SPEC else b"",
    )


def _remembered(handle: bytes) -> Remembered:
    try:
        remembered = msgspec.json.decode(handle, type=Remembered)
    except msgspec.DecodeError as error:
        raise InvalidRequest("the handle was not made by this driver") from error
    if remembered.form != HANDLE_FORM:
        raise InvalidRequest(f"the handle has form {remembered.form}, which this driver does not know; upgrade it")
    return remembered


def _host(found: Facts) -> Host:
    return Host(
        binary=found.binary,
        firmware=found.firmware,
        kvm_opens=found.kvm_opens,
        kvm_message=found.kvm_message,
        kvm_runs=found.kvm_runs,
        landlock=found.landlock,
    )


def _withdrawn(found: Facts) -> list[str]:
    """What the manifest states and this node lacks."""
    return [] if found.firmware else ["boot.uefi"]


def _node_facts(found: Facts) -> NodeFacts:
    return NodeFacts(
        health=found.health,
        conditions=[found.condition(VMM)],
        accelerators=[] if found.problem else [found.kvm],
        withdrawn_capabilities=_withdrawn(found),
        vmm_version=found.version,
        devices_needed=[kvm.DEVICE] if not found.problem else [],
    )
