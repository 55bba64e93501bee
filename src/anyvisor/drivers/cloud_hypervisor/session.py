"""One machine's live control channel: calls down, events up into the machine's state."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from anyvisor.drivers.cloud_hypervisor import readback, states, stats
from anyvisor.drivers.cloud_hypervisor.channel import EventChannel
from anyvisor.drivers.cloud_hypervisor.events import Event
from anyvisor.drivers.cloud_hypervisor.rest import (
    CALL_SECONDS,
    RequestTooLarge,
    RestClient,
    RestClosed,
    RestError,
    RestRefused,
    RestTimeout,
    closed_within,
)
from anyvisor.drivers.cloud_hypervisor.states import Intent
from anyvisor.drivers.cloud_hypervisor.translate import Json, NicRequest
from anyvisor.drivers.cloud_hypervisor.versions import check_version
from anyvisor.hri.errors import DeadlineExceeded, MachineNotFound, Refused, VmmFailed
from anyvisor.hri.kit import MachineContext, View
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_INTERNAL_ERROR,
    PHASE_CRASHED,
    PHASE_PAUSED,
    PHASE_STARTING,
    Process,
)

PING: Final = "vmm.ping"
INFO: Final = "vm.info"
COUNTERS: Final = "vm.counters"
NOT_CREATED: Final = "VM is not created"
DEAD_LOOP: Final = "receiving on a closed channel"
BOOT_SECONDS: Final = 30.0
"""A boot opens disks and maps all guest memory; with huge pages of a large guest that takes seconds."""
END_SECONDS: Final = 20.0
"""How long the VMM may take to write its images out and end."""
REBOOT_SECONDS: Final = 15.0
UNDO_SECONDS: Final = 2.0


class Session:
    """The driver's object for one machine, in `machine.session`."""

    def __init__(self, machine: MachineContext, memory_max: int) -> None:
        self.machine = machine
        self.memory_max = memory_max
        """Bytes. The VMM itself would allow more after each addition."""
        self.intent = Intent()
        self._client: RestClient | None = None
        self._events: EventChannel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._removals: dict[str, asyncio.Event] = {}
        self._starting_over = False

    # Beginning

    async def start(
        self,
        connection: socket.socket,
        events: int,
        config: Mapping[str, Json],
        nics: Sequence[tuple[NicRequest, Sequence[int]]],
    ) -> None:
        """Create the machine in a VMM that was just started, and boot it."""
        self._open(connection, events)
        try:
            await self._check_vmm()
            await self._create(config, nics)
            await self.call("vm.boot", seconds=BOOT_SECONDS)
            info = await self.info()
        except RestClosed as error:
            self.machine.show(states.after_close(View(PHASE_STARTING), self.intent))
            raise VmmFailed(f"{self.machine.state.message}: {error}", retry="after_change") from error
        except (RestError, RequestTooLarge, VmmFailed) as error:
            await self._undo()
            self.machine.show(_failed_start(str(error)))
            raise VmmFailed(f"the guest could not be started: {error}", retry="after_change") from error
        self.intent.watched = True
        self._take(info)
        self._warn_of_differences(config, info)

    async def _check_vmm(self) -> None:
        ping = await self._live().get(PING)
        version = str(ping.get("version", ""))
        check_version(version)
        with self.machine.change() as state:
            state.vmm_version = version
            state.graceful_stop_possible = True
            pid = ping.get("pid")
            if isinstance(pid, int) and 0 < pid < 1 << 31:
                del state.processes[:]
                state.processes.append(Process(pid=pid, role=Process.ROLE_VMM, name="cloud-hypervisor"))

    async def _create(self, config: Mapping[str, Json], nics: Sequence[tuple[NicRequest, Sequence[int]]]) -> None:
        client = self._live()
        await client.put("vm.create", config)
        for request, descriptors in nics:
            await client.put("vm.add-net", request.config, descriptors=descriptors)

    async def _undo(self) -> None:
        """After a failed start the VMM keeps the config, and would answer `already created` to the next."""
        with contextlib.suppress(RestError):
            await self._live().put("vm.delete", seconds=UNDO_SECONDS)

    def _warn_of_differences(self, config: Mapping[str, Json], info: Mapping[str, Any]) -> None:
        """The VMM drops fields that it does not know without a word, so what matters is read back."""
        wrong = readback.differences(config, info)
        if wrong:
            with self.machine.change() as state:
                state.message = f"Cloud Hypervisor did not take over: {', '.join(wrong[:8])}"

    async def adopt(self, connection: socket.socket, events: int, system_uuid: str, *, begun: bool) -> bool:
        """Take over a VMM that runs: prove that it is this machine's, and read its state anew.

        False: no machine was made in it yet, unless it is known to have `begun`.
        """
        self._open(connection, events)
        assert self._events is not None
        self._events.drain()
        self.intent = Intent()
        try:
            await self._check_vmm()
            info = await self.info()
        except RestClosed as error:
            raise MachineNotFound(
                f"the Cloud Hypervisor of machine {self.machine.id!r} is gone: its control channel was closed"
            ) from error
        except RestError as error:
            raise VmmFailed(f"the Cloud Hypervisor of machine {self.machine.id!r} does not answer: {error}") from error
        if not info and not begun:
            return False
        found = readback.system_uuid(info)
        if info and system_uuid and found != system_uuid:
            self.close()
            raise Refused(
                f"this Cloud Hypervisor runs the machine with UUID {found[:40]!r}, not {system_uuid}; "
                "hand over the descriptors of the right one"
            )
        self.intent.watched = info.get("state") in (states.RUNNING, states.PAUSED)
        self._take(info)
        return True

    def _open(self, connection: socket.socket, events: int) -> None:
        self._client = RestClient(connection, self._on_closed)
        self._events = EventChannel(events, self._on_event, self._ask)

    # Calls

    async def call(
        self, path: str, body: Any = None, *, descriptors: Sequence[int] = (), seconds: float = CALL_SECONDS
    ) -> dict[str, Any]:
        """One PUT; what went wrong as the errors of `rest`. Notes a VMM whose control loop is dying."""
        try:
            return await self._live().put(path, body, descriptors=descriptors, seconds=seconds)
        except RestRefused as error:
            if error.says(DEAD_LOOP):
                self.machine.show(states.dying(self.machine.view))
            raise

    async def info(self) -> dict[str, Any]:
        """`vm.info`; empty when there is no machine."""
        try:
            return await self._live().get(INFO)
        except RestRefused as error:
            if error.status == 404 or error.says(NOT_CREATED):
                return {}
            raise

    async def counters(self) -> MachineStats:
        """What the VMM counts of the machine's devices."""
        try:
            told = await self._live().get(COUNTERS)
            info = await self.info()
        except RestError as error:
            raise VmmFailed(f"Cloud Hypervisor does not tell its counters: {error}") from error
        return stats.machine(told, info, {device.id for device in self.machine.state.devices})

    async def press_button(self, *, reboot: bool) -> None:
        """Ask the guest by the power button. A reboot is a shutdown after which the same VMM boots it again."""
        self.intent.reboot = reboot
        self.intent.stop = not reboot
        if self.machine.phase == PHASE_PAUSED:
            await self.step("vm.resume", already="InvalidStateTransition(Running, Running)")
        await self.step("vm.power-button")

    async def end(self) -> None:
        """End the VMM with its images written out; returns when it is gone."""
        client = self._client
        if client is None or client.closed:
            if self.machine.view.final:
                return
            raise VmmFailed(f"there is no control channel to machine {self.machine.id!r}; adopt it, or kill its VMM")
        self.intent.force = True
        with contextlib.suppress(RestClosed, RestTimeout, RestRefused):
            await client.put("vmm.shutdown", seconds=END_SECONDS)
        if not await closed_within(client, END_SECONDS):
            raise DeadlineExceeded(
                f"the Cloud Hypervisor of machine {self.machine.id!r} did not end within {END_SECONDS:g} s; kill it"
            )

    async def reset(self) -> None:
        """The reset button."""
        await self.step("vm.reboot", seconds=REBOOT_SECONDS)

    async def pause(self) -> None:
        """Halt the vCPUs; done already is done."""
        await self.step("vm.pause", already="InvalidStateTransition(Paused, Paused)")

    async def resume(self) -> None:
        """Run the vCPUs again."""
        await self.step("vm.resume", already="InvalidStateTransition(Running, Running)")

    async def refresh(self) -> None:
        """Read what no event tells: memory, places, and the state in case that an event was missed."""
        try:
            self._take(await self.info())
        except RestClosed:
            return  # its end has been noted
        except RestTimeout as error:
            raise DeadlineExceeded(f"Cloud Hypervisor is busy: {error}; ask again") from error
        except RestRefused as error:
            raise VmmFailed(f"Cloud Hypervisor does not tell its state: {error}") from error

    async def read_end(self) -> None:
        """Read the end that the VMM holds after the guest went down, if it can still be asked."""
        if self._client is None or self._client.closed or self.machine.view.final:
            return
        with contextlib.suppress(RestError):
            view = states.of_vmm_state(str((await self.info()).get("state", states.MISSING)), self.intent)
            if view.final:
                self.machine.show(view)

    async def step(self, path: str, *, already: str = "", seconds: float = CALL_SECONDS) -> None:
        """A call without content, its errors as those of the HRI; `already` is the error of one that is done."""
        try:
            await self.call(path, seconds=seconds)
        except RestRefused as error:
            if not already or not error.says(already):
                raise Refused(f"Cloud Hypervisor refused {path}: {error}") from error
        except RestTimeout as error:
            raise DeadlineExceeded(f"Cloud Hypervisor is busy: {error}; ask for the state and try again") from error
        except RestClosed as error:
            raise VmmFailed(f"the control channel to machine {self.machine.id!r} is lost: {error}") from error

    def removal(self, device_id: str) -> asyncio.Event:
        """An event that is set when the guest has let go of the device."""
        return self._removals.setdefault(device_id, asyncio.Event())

    def close(self) -> None:
        """Leave the VMM alone."""
        for task in self._tasks:
            task.cancel()
        if self._events is not None:
            self._events.close()
        if self._client is not None:
            self._client.close()

    def _live(self) -> RestClient:
        if self._client is None or self._client.closed:
            raise RestClosed(f"there is no control channel to machine {self.machine.id!r}; adopt it first")
        return self._client

    # Observations

    def _take(self, info: Mapping[str, Any]) -> None:
        """Bring the machine's state up to what the VMM says now."""
        told = str(info.get("state", states.MISSING))
        restarts = told == states.CREATED and (self._starting_over or self.intent.reboot)
        if not restarts:
            view = states.of_vmm_state(told, self.intent)
            before = self.machine.view
            if (view.phase, view.end_reason, view.pause_reason) != (
                before.phase,
                before.end_reason,
                before.pause_reason,
            ):
                self.machine.show(view)
        memory = info.get("memory_actual_size")
        with self.machine.change() as state:
            if isinstance(memory, int) and 0 <= memory < 1 << 63:
                state.memory_bytes = memory
            if told in (states.RUNNING, states.PAUSED):
                del state.devices[:]
                state.devices.extend(readback.devices(info))

    def _on_event(self, event: Event) -> None:
        match event.source, event.name:
            case "vm", "device-removed":
                self._removed(event.properties.get("id", ""))
            case "vm", "shutdown":
                self.intent.shutdown = True
                if not self.intent.force:
                    self._ask()
            case _:
                before = self.machine.view
                after = states.after_event(before, event, self.intent)
                if after != before:
                    self.machine.show(after)
                if event.source == "guest" and after.final:
                    self._spawn(self._halt())

    def _removed(self, device_id: str) -> None:
        self.removal(device_id).set()
        with self.machine.change() as state:
            kept = [device for device in state.devices if device.id != device_id]
            del state.devices[:]
            state.devices.extend(kept)

    def _ask(self) -> None:
        """Something happened that only the VMM's own word explains."""
        self._spawn(self._look())

    async def _look(self) -> None:
        with contextlib.suppress(RestError):
            info = await self.info()
            if self.intent.reboot and info.get("state") == states.CREATED:
                await self._boot_again()
                return
            self._take(info)

    async def _boot_again(self) -> None:
        """The guest has followed a request to reboot: it went down, and the VMM still has the machine."""
        self._starting_over, self.intent.reboot = True, False
        try:
            await self.call("vm.boot", seconds=BOOT_SECONDS)
        except RestError as error:
            self.machine.show(_failed_start(str(error)))
        finally:
            self._starting_over = False

    async def _halt(self) -> None:
        """A guest that panicked must not go on."""
        with contextlib.suppress(RestError):
            await self.call("vm.pause")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_closed(self, ended: bool) -> None:
        """The VMM is gone, and what it said last may still wait in the event channel; or it must be adopted anew."""
        if self._events is not None:
            self._events.drain()
        if ended:
            self.machine.show(states.after_close(self.machine.view, self.intent))
        self.machine.disconnected()
        for task in self._tasks:
            task.cancel()


def _failed_start(why: str) -> View:
    return View(PHASE_CRASHED, END_REASON_INTERNAL_ERROR, message=why[:400])
