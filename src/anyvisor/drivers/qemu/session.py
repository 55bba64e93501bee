"""One machine's live control channel: commands down, events up into the machine's state."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Any, Final

from anyvisor.drivers.qemu import blocks, memory, states
from anyvisor.drivers.qemu.forwards import Forwards
from anyvisor.drivers.qemu.qmp import Command, Event, QmpClient, QmpClosed, QmpRefused
from anyvisor.drivers.qemu.stats import Counters
from anyvisor.drivers.qemu.translate.devices import AGENT_CHARDEV, AGENT_PORT
from anyvisor.drivers.qemu.translate.nics import NIC_PREFIX
from anyvisor.hri.errors import HriError, MachineNotFound, Refused, VmmFailed
from anyvisor.hri.kit import Intent, MachineContext, View
from anyvisor.hri.kit.retry import IoRetry
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_VMM_EXITED,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_PAUSED,
    Endpoint,
    Thread,
)

QUIT_SECONDS: Final = 20.0
"""How long QEMU may take to flush its images once it was told to quit."""


@dataclass(frozen=True, slots=True)
class FirstRun:
    """How a guest begins that QEMU holds."""

    paused: bool = False
    links_down: tuple[str, ...] = ()
    """Devices of NICs that have no carrier."""
    balloon: str = ""
    """The balloon's device, when the guest is asked for its use of memory."""
    balloon_seconds: int = 0

    @property
    def commands(self) -> list[Command]:
        """What to tell QEMU."""
        links: list[Command] = [("set_link", {"name": nic, "up": False}) for nic in self.links_down]
        polling: list[Command] = []
        if self.balloon:
            path, name = f"/machine/peripheral/{self.balloon}", "guest-stats-polling-interval"
            polling.append(("qom-set", {"path": path, "property": name, "value": self.balloon_seconds}))
        return [*links, *polling] if self.paused else [*links, *polling, ("cont", None)]


class Session:
    """The driver's object for one machine, in `machine.session`."""

    def __init__(self, machine: MachineContext, first_run: FirstRun | None = None) -> None:
        self._machine = machine
        self._first_run = first_run or FirstRun()
        self._intent = Intent()
        self._client: QmpClient | None = None
        self._starting = False
        self.forwards = Forwards(self._monitor)
        self.counters = Counters(lambda name, arguments: self._live().execute(name, arguments))
        self._retry = IoRetry(machine, self._try_again)
        self._awaited: dict[str, asyncio.Future[None]] = {}
        self._leftovers: dict[str, list[Command]] = {}
        self._added = 0
        """Bytes of memory that came while the guest ran."""

    @property
    def machine(self) -> MachineContext:
        """The machine, for those who change it."""
        return self._machine

    # Beginning

    async def start(self, connection: socket.socket) -> None:
        """Negotiate with a QEMU that was just started, and let its guest run."""
        self._starting = True
        try:
            client = await self._open(connection)
            version = await client.greet(*self._first_run.commands)
        except QmpClosed as error:
            self._machine.show(_failed_start())
            raise VmmFailed(_failed_start().message, retry="after_change") from error
        except QmpRefused as error:
            raise VmmFailed(f"the guest could not be started: {error.description}") from error
        finally:
            self._starting = False
        self._began()
        with self._machine.change() as state:
            state.vmm_version = version
            state.graceful_stop_possible = True

    async def run_first(self) -> None:
        """Let the guest of an adopted QEMU run that was held until now."""
        client = self._live()
        for name, arguments in self._first_run.commands:
            await client.execute(name, arguments)
        self._began()

    def _began(self) -> None:
        if self._first_run.paused:
            self._machine.show(View(PHASE_PAUSED, pause_reason=PAUSE_REASON_USER))

    async def adopt(self, connection: socket.socket) -> None:
        """Take over a QEMU that runs: prove that it is this machine's, and read its state anew."""
        try:
            client = await self._open(connection)
            version = await client.greet()
            name: dict[str, Any] = await client.execute("query-name")
            status: dict[str, Any] = await client.execute("query-status")
        except QmpClosed as error:
            raise MachineNotFound(
                f"the QEMU of machine {self._machine.id!r} is gone: its control channel was closed"
            ) from error
        if name.get("name") != self._machine.id:
            client.close()
            raise Refused(f"this QEMU runs machine {str(name.get('name'))[:80]!r}, not {self._machine.id!r}")
        self._machine.show(states.of_run_state(str(status.get("status")), self._intent))
        with self._machine.change() as state:
            state.vmm_version = version
            state.graceful_stop_possible = True
        await self._read_agent_port(client)
        await self._read_disks(client)
        await self.refresh()
        self._retry.look()

    async def _read_agent_port(self, client: QmpClient) -> None:
        """Whether the guest's agent has its port open: the event of that was a former client's."""
        if not any(each.purpose == Endpoint.PURPOSE_GUEST_AGENT for each in self._machine.state.endpoints):
            return
        chardevs: list[dict[str, Any]] = await client.execute("query-chardev")
        with self._machine.change() as state:
            state.guest_agent.connected = any(
                each.get("label") == AGENT_CHARDEV and each.get("frontend-open") is True for each in chardevs
            )

    async def _read_disks(self, client: QmpClient) -> None:
        """Which disks came or went while the guest ran; the handle knows those of the start."""
        found = await blocks.devices(client, list(self._machine.state.devices))
        with self._machine.change() as state:
            del state.devices[:]
            state.devices.extend(found)

    async def _open(self, connection: socket.socket) -> QmpClient:
        self._client = await QmpClient.open(connection, self._on_event, self._on_closed)
        return self._client

    # Commands

    async def press_button(self, *, reboot: bool) -> None:
        """Ask the guest by the power button. A reboot is a shutdown after which the same QEMU starts over."""
        client = self._live()
        self._intent.reboot = reboot
        self._intent.stop = not reboot
        if self._machine.phase == PHASE_PAUSED:
            await client.execute("cont")
        await client.execute("system_powerdown")

    async def end(self) -> None:
        """End QEMU with its images flushed; returns when it is gone."""
        self._intent.force = True
        client = self._client
        if client is None or client.closed:
            self._machine.show(states.after_close(self._machine.view, self._intent))
            return
        with contextlib.suppress(QmpClosed):
            await client.execute("quit")
        async with asyncio.timeout(QUIT_SECONDS):
            await client.wait_closed()

    async def reset(self) -> None:
        """The reset button."""
        await self._live().execute("system_reset")

    async def pause(self) -> None:
        """Halt the vCPUs."""
        self._retry.cancel()
        await self._live().execute("stop")

    async def resume(self) -> None:
        """Run the vCPUs again."""
        try:
            await self._live().execute("cont")
        except QmpRefused as error:
            raise Refused(f"the guest cannot run on: {error.description}") from error

    async def refresh(self) -> None:
        """Read what no event tells: threads, memory, and the run state in case that an event was missed."""
        client = self._live()
        cpus: list[dict[str, Any]] = await client.execute("query-cpus-fast")
        loops: list[dict[str, Any]] = await client.execute("query-iothreads")
        memory = await self._memory(client)
        status: dict[str, Any] = await client.execute("query-status")
        if status.get("status") in ("running", "shutdown", "guest-panicked", "internal-error"):
            self._machine.show(states.of_run_state(status["status"], self._intent))
        with self._machine.change() as state:
            state.memory_bytes = memory
            del state.threads[:]
            state.threads.extend(_threads(cpus, loops))

    async def read_end(self) -> None:
        """Read the run state that QEMU holds after the guest went down, if it can still be asked."""
        client = self._client
        if client is None or client.closed or self._machine.view.final:
            return
        with contextlib.suppress(HriError):
            status: dict[str, Any] = await client.execute("query-status")
            view = states.of_run_state(str(status.get("status")), self._intent)
            if view.final:
                self._machine.show(view)

    def close(self) -> None:
        """Leave QEMU alone."""
        self._retry.cancel()
        if self._client is not None:
            self._client.close()

    async def _monitor(self, line: str) -> str:
        return str(await self._live().execute("human-monitor-command", {"command-line": line}))

    def awaited(self, device: str) -> asyncio.Future[None]:
        """Done when the device is gone, its tray has moved, or memory has changed; to be forgotten by who asked."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[device] = future
        return future

    def leaves(self, device: str, leftovers: list[Command]) -> None:
        """The guest was asked to let go of a device; what is to be done once it did, however late that is."""
        self._leftovers[device] = leftovers

    def forget(self, device: str) -> None:
        """Nobody waits for the device any more."""
        self._awaited.pop(device, None)

    def client(self) -> QmpClient:
        """The control channel; raises VmmFailed when there is none."""
        return self._live()

    def _live(self) -> QmpClient:
        if self._client is None or self._client.closed:
            raise VmmFailed(f"there is no control channel to machine {self._machine.id!r}; adopt it first")
        return self._client

    async def _memory(self, client: QmpClient) -> int:
        """What it began with, less what its balloon gave back, and what came while it ran."""
        self._added = (await memory.read(client)).size
        with contextlib.suppress(QmpRefused):  # no balloon
            return int((await client.execute("query-balloon"))["actual"]) + self._added
        summary: dict[str, int] = await client.execute("query-memory-size-summary")
        return int(summary["base-memory"]) + self._added

    # Observations

    def _on_event(self, event: Event) -> None:
        match event.name:
            case "SHUTDOWN" if self._intent.reboot and event.data.get("reason") == "guest-shutdown":
                self._start_over()
            case "VSERPORT_CHANGE" if event.data.get("id") == AGENT_PORT:
                with self._machine.change() as state:
                    state.guest_agent.connected = event.data.get("open") is True
            case "BALLOON_CHANGE" if isinstance(actual := event.data.get("actual"), int):
                with self._machine.change() as state:
                    state.memory_bytes = max(actual, 0) + self._added
            case "MEMORY_DEVICE_SIZE_CHANGE" if isinstance(size := event.data.get("size"), int):
                with self._machine.change() as state:
                    state.memory_bytes += max(size, 0) - self._added
                self._added = max(size, 0)
                self._notify(memory.SIZE)
            case "DEVICE_DELETED" if isinstance(device := event.data.get("device"), str):
                self._gone(device)
            case "DEVICE_TRAY_MOVED" if isinstance(drive := event.data.get("id"), str):
                self._notify(drive)
            case _:
                before = self._machine.view
                after = states.after_event(before, event, self._intent)
                if after != before:
                    self._machine.show(after)
                self._retry.look()

    def _notify(self, device: str) -> None:
        waiting = self._awaited.get(device)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _gone(self, device: str) -> None:
        """The guest let go of a device, also of one that nobody waits for any more."""
        gone = device.removeprefix(blocks.PREFIX).removeprefix(NIC_PREFIX)
        with self._machine.change() as state:
            kept = [each for each in state.devices if each.id != gone]
            del state.devices[:]
            state.devices.extend(kept)
        for command in self._leftovers.pop(device, ()):
            self._live().send(*command)
        self._notify(device)

    def _start_over(self) -> None:
        client = self._live()
        client.send("system_reset")
        client.send("cont")
        self._intent.reboot = False

    def _on_closed(self) -> None:
        self._retry.cancel()
        self._machine.show(_failed_start() if self._starting else states.after_close(self._machine.view, self._intent))
        self._machine.disconnected()

    def _try_again(self) -> None:
        if self._client is not None:
            self._client.send("cont")


def _failed_start() -> View:
    return View(
        PHASE_CRASHED,
        END_REASON_VMM_EXITED,
        message="QEMU ended before it had built the machine",
    )


def _threads(cpus: list[dict[str, Any]], loops: list[dict[str, Any]]) -> list[Thread]:
    found = [Thread(tid=int(cpu["thread-id"]), role=Thread.ROLE_VCPU, index=int(cpu["cpu-index"])) for cpu in cpus]
    return found + [
        Thread(tid=int(loop["thread-id"]), role=Thread.ROLE_IO, index=index) for index, loop in enumerate(loops)
    ]
