"""The fake driver: machines are entries in a book."""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from typing import cast

from anyvisor.hri import manifests
from anyvisor.hri.errors import DriverUnavailable, InvalidRequest, MachineNotFound
from anyvisor.hri.fake import changes
from anyvisor.hri.fake.faults import Faults
from anyvisor.hri.fake.guest import FakeGuest
from anyvisor.hri.fake.honoured import refuse_unclaimed
from anyvisor.hri.kit.descriptors import Descriptors
from anyvisor.hri.kit.driver import Call, Driver, DriverInfo
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.machine_pb2 import (
    AdoptRequest,
    ApplyRequest,
    LaunchPlan,
    PrepareRequest,
    PrepareResponse,
    StopRequest,
)
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_CONSOLE, OpenStreamRequest, OpenStreamResponse
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_NONE,
    END_REASON_FORCED,
    PHASE_PAUSED,
    PHASE_RUNNING,
    DeviceState,
    MachineState,
    Phase,
)

NAME = "fake.anyvisor.io"
CRASH_CODE = 70
UNKNOWN_PHASE = 99
PROFILES = ("q35", "pc", "virt")
"""What the API's own machine types are, so that a node with this driver alone is asked for none that it lacks."""
_MAX_HANDLE = 60 << 10


class FakeDriver(Driver):
    """See the package. `guests` lets a test play the guest: end it, panic, reboot."""

    def __init__(
        self, faults: Faults | None = None, vmm_version: str = "1.0", manifest: manifests.Packaged | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.guests: dict[str, FakeGuest] = {}
        self.healthy = True
        self._health_changed = asyncio.Event()
        self._vmm_version = vmm_version
        self._calls: Counter[str] = Counter()
        self._kept: list[int] = []
        packaged = manifest or manifests.packaged("anyvisor.hri.fake")
        self.manifest = packaged.data
        self._digest = packaged.digest
        self._stated = packaged.stated

    @property
    def info(self) -> DriverInfo:
        """Who it is; `minor` of the faults is all that it speaks then."""
        minor = self.faults.minor
        return DriverInfo(
            driver=self.manifest["driver"],
            version=self.manifest["version"],
            vmm_name="none",
            vmm_version=self._vmm_version,
            manifest_digest=self._digest,
            min_minor=self.manifest["hri"]["minMinor"] if minor is None else minor[0],
            max_minor=self.manifest["hri"]["maxMinor"] if minor is None else minor[1],
            profiles=("snapshot", "guest", "stats", "move") if "profile" in self.faults.lies else ("stats",),
        )

    def set_health(self, healthy: bool) -> None:
        """Change the node facts, as a VMM does that is removed or comes back."""
        self.healthy = healthy
        self._health_changed.set()
        self._health_changed = asyncio.Event()

    async def node_facts(self) -> AsyncGenerator[NodeFacts]:
        """One fact: it needs nothing."""
        await self.fault("facts")
        while True:
            changed = self._health_changed
            yield NodeFacts(
                health=NodeFacts.HEALTH_HEALTHY if self.healthy else NodeFacts.HEALTH_UNHEALTHY,
                conditions=[
                    Condition(
                        type="VmmAvailable",
                        status=self.healthy,
                        reason="NothingNeeded" if self.healthy else "Ordered",
                        message="" if self.healthy else "the fake driver was told to be sick",
                    )
                ],
                accelerators=[AcceleratorFact(accelerator=ACCELERATOR_NONE, opens=True, runs_guest=True)],
                machine_profiles=PROFILES,
                vmm_version=self._vmm_version,
            )
            await changed.wait()

    async def probe(self) -> list[Condition]:
        """Healthy or not."""
        await self.fault("probe")
        return [Condition(type="Healthy", status=self.healthy, reason="Ordered")]

    async def prepare(self, machine: MachineContext, request: PrepareRequest) -> PrepareResponse:
        """Enter the machine into the books."""
        await self.fault("prepare")
        if "claims" not in self.faults.lies:
            refuse_unclaimed(request.machine)
        lying = "echo" in self.faults.lies
        broken = "launch" in self.faults.lies
        return PrepareResponse(
            confirmed=[need for need in request.needs if lying or need in self._stated],
            launch=(
                LaunchPlan(mode=LaunchPlan.MODE_EXEC, argv=["vmm", "--run"], env=["BROKEN"])
                if broken
                else LaunchPlan(mode=LaunchPlan.MODE_NONE)
            ),
            handle=_handle(request.machine),
            devices=addresses(request.machine),
            accelerator=ACCELERATOR_NONE,
            profile=request.machine.profile or "fake-1",
        )

    async def start(self, machine: MachineContext, call: Call) -> None:
        """The guest runs."""
        await self.fault("start", call)
        assert machine.spec is not None
        self._run(machine, machine.spec)
        with machine.change() as state:
            state.phase = PHASE_PAUSED if machine.spec.lifecycle.start_paused else PHASE_RUNNING
            state.memory_bytes = machine.spec.memory.size_bytes
            state.vmm_version = self._vmm_version
            state.graceful_stop_possible = True
            for device in state.devices:
                device.state = DeviceState.STATE_PLUGGED
            if "phase" in self.faults.lies:
                state.phase = cast("Phase", UNKNOWN_PHASE)

    def _run(self, machine: MachineContext, spec: Machine) -> None:
        guest = FakeGuest(machine, spec)
        machine.session = guest
        self.guests[machine.id] = guest
        guest.schedule_end()

    async def stop(self, machine: MachineContext, call: Call, mode: StopRequest.Mode, reboot: bool) -> None:
        """Press the button, or end the guest."""
        await self.fault("stop", call)
        guest = self._guest(machine)
        if mode == StopRequest.MODE_REQUEST:
            guest.press_button(reboot=reboot)
        elif "state" not in self.faults.lies:
            guest.end(END_REASON_FORCED)

    async def reset(self, machine: MachineContext, call: Call) -> None:
        """The guest begins anew."""
        await self.fault("reset", call)
        self._guest(machine).reboot()

    async def pause(self, machine: MachineContext, call: Call) -> None:
        """Nothing to halt."""
        await self.fault("pause", call)

    async def resume(self, machine: MachineContext, call: Call) -> None:
        """Nothing to continue."""
        await self.fault("resume", call)

    async def destroy(self, machine: MachineContext, call: Call) -> None:
        """Strike the entry out."""
        await self.fault("destroy", call)
        guest = self.guests.pop(machine.id, None)
        if guest is not None:
            if not machine.ended:
                guest.end(END_REASON_FORCED)
            guest.close()

    async def adopt(self, machine: MachineContext, request: AdoptRequest, call: Call) -> None:
        """The books of the former process stand in the handle."""
        await self.fault("adopt", call)
        spec = Machine()
        try:
            spec.ParseFromString(request.handle)
        except Exception as error:
            raise InvalidRequest("the handle was not made by this driver; prepare the machine anew") from error
        if spec.id != machine.id:
            raise MachineNotFound(f"the handle is of machine {spec.id!r}, not {machine.id!r}")
        if not isinstance(machine.session, FakeGuest):
            self._run(machine, spec)
        with machine.change() as state:
            state.CopyFrom(
                MachineState(
                    phase=PHASE_RUNNING,
                    handle=request.handle,
                    accelerator=ACCELERATOR_NONE,
                    vmm_version=self._vmm_version,
                    devices=addresses(spec),
                    memory_bytes=spec.memory.size_bytes,
                    graceful_stop_possible=True,
                )
            )

    async def inspect(self, machine: MachineContext) -> None:
        """The books are always up to date."""
        await self.fault("inspect")

    async def apply(self, machine: MachineContext, request: ApplyRequest, call: Call) -> None:
        """Change the entry."""
        await self.fault("apply", call)
        guest = self._guest(machine)
        if "apply" in self.faults.lies:
            return
        changes.apply(guest.spec, request)
        with machine.change() as state:
            del state.devices[:]
            state.devices.extend(addresses(guest.spec, DeviceState.STATE_PLUGGED))
            state.memory_bytes = guest.spec.memory.size_bytes
            state.handle = _handle(guest.spec)

    async def open_stream(
        self, machine: MachineContext, request: OpenStreamRequest, descriptors: Descriptors
    ) -> OpenStreamResponse:
        """A console that says who it is and echoes."""
        await self.fault("open")
        if request.kind != STREAM_KIND_CONSOLE:
            raise MachineNotFound(f"machine {machine.id!r} has no such stream; it has a console")
        stream = self._guest(machine).attach(descriptors.take_socket(request.token.handle))
        return OpenStreamResponse(stream_id=stream, use_token=True, protocol="raw", protocol_version="1")

    async def stats(self, machine: MachineContext) -> MachineStats:
        """Numbers that are made up, and grow with the calls."""
        await self.fault("stats")
        return self._guest(machine).stats(self._calls["stats"])

    async def close_stream(self, machine: MachineContext, stream_id: str) -> None:
        """Hang up."""
        guest = self.guests.get(machine.id)
        if guest is not None:
            guest.detach(stream_id)

    async def close(self) -> None:
        """The process ends; the books go with it."""
        for guest in self.guests.values():
            guest.close()
        for fd in self._kept:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _guest(self, machine: MachineContext) -> FakeGuest:
        guest = self.guests.get(machine.id)
        if guest is None:
            raise MachineNotFound(f"machine {machine.id!r} does not run")
        return guest

    async def fault(self, method: str, call: Call | None = None) -> None:
        """Do what was ordered for the method, before it acts."""
        faults = self.faults
        self._calls[method] += 1
        if call is not None:
            for step in range(faults.flood):
                call.report(step * 100 // faults.flood, f"step {step}")
        if faults.leak:
            self._kept.extend(pair.detach() for pair in socket.socketpair())
        if method in faults.crash:
            os._exit(CRASH_CODE)
        if method in faults.hang:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(faults.slow.get(method, 0))
        every = faults.flaky.get(method, 0)
        if every and (self._calls[method] - 1) % every == 0:
            raise DriverUnavailable(f"{method} failed, as ordered; try again")


def addresses(machine: Machine, state: DeviceState.State = DeviceState.STATE_UNSPECIFIED) -> list[DeviceState]:
    """PCI places: those that are asked for, the rest in order of first free slot."""
    taken = {d.pci_address for d in machine.disks} | {n.pci_address for n in machine.nics}
    free = (f"0000:{bus:02x}:00.0" for bus in range(1, 4096))
    found: list[DeviceState] = []
    for device in [*machine.disks, *machine.nics]:
        address = device.pci_address or next(place for place in free if place not in taken)
        found.append(DeviceState(id=device.id, address=address, state=state))
    return found


def _handle(machine: Machine) -> bytes:
    """The machine itself, so that another process can go on with its books."""
    data = machine.SerializeToString(deterministic=True)
    if len(data) > _MAX_HANDLE:
        raise InvalidRequest(f"the machine has {len(data)} bytes; {_MAX_HANDLE} fit into the books")
    return data
