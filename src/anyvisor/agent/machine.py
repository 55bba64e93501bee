"""One machine in the agent's memory: its record, its process, the ways to it. Built at the start or by adoption."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from anyvisor.agent import linux, processes
from anyvisor.agent.display import Viewers
from anyvisor.agent.endpoints import EndpointError, Endpoints
from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.credentials import Credentials
from anyvisor.agent.guest.facts import with_guest
from anyvisor.agent.guest.probe import answer
from anyvisor.agent.guest.protocol import GuestAgentSilent
from anyvisor.agent.guest.watch import Guest
from anyvisor.agent.helpers import Helpers
from anyvisor.agent.hook import StopHook
from anyvisor.agent.launchers import Launcher
from anyvisor.agent.network import MachineNetwork
from anyvisor.agent.nic_changes import NicChanges
from anyvisor.agent.processes import Exit
from anyvisor.agent.records import EndRecord, HelperRecord, Record, RecordError, RecordStore, Stage, read_file
from anyvisor.agent.serial import LOG_BYTES, Console, SerialLog
from anyvisor.agent.streams import Clients
from anyvisor.agent.volumes.under_way import Hotplug
from anyvisor.api.meta import Json
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_OUT_OF_MEMORY,
    END_REASON_UNKNOWN,
    END_REASON_VMM_EXITED,
    END_REASON_VMM_KILLED,
    PHASE_LOST,
    Endpoint,
    MachineState,
)

log = logging.getLogger(__name__)

AGENT: Final = "the agent"
DRIVER: Final = "the driver"
SERIAL_LOG: Final = "serial0.log"
OLD_LOG: Final = "serial0.log.old"
SETTLE_SECONDS: Final = 0.5
MAX_FORWARDS: Final = 128
MAX_USB_CLIENTS: Final = 16
"""Connections to ports of one guest at the same time."""


class Machine:
    """Owns its descriptors; `close` gives all of them back and touches no process."""

    def __init__(self, record: Record, launcher: Launcher | None, changed: Callable[[], None]) -> None:
        self.record = record
        self.launcher = launcher
        self.console = Console(self._noted)
        self.viewers = Viewers()
        self.forwards = Clients(MAX_FORWARDS)
        self.usb_clients = Clients(MAX_USB_CLIENTS)
        self.vsock_clients = Clients(MAX_FORWARDS)
        self.guest = Guest(GuestAgentClient(self._guest_channel, self._guest_channel_closed), changed)
        self.helpers = Helpers(lambda: self.record, self._helper_ended)
        self.lost_helper: HelperRecord | None = None
        """A helper that ended before its time, until somebody was told."""
        self.serial_log: SerialLog | None = None
        self.network: MachineNetwork | None = None
        self.hook: StopHook | None = None
        self.credentials = Credentials(self.guest.client, changed)
        self.hotplug = Hotplug()
        self.nic_changes = NicChanges()
        self.use_endpoints()
        self.alive = launcher is not None
        """Whether the process runs."""
        self.stop_deadline: float | None = None
        """Wall-clock seconds at which the guest is ended by force."""
        self.last_request = 0.0
        """Monotonic seconds of the last request to shut down."""
        self.trouble = ""
        """Why its driver does not run it, as a sentence, while that may still change."""
        self.announced_stop = False
        self.script: asyncio.Task[bool] | None = None
        """The stop script, while it is played because no driver answers."""
        self.links: dict[str, bool] = {}
        """Interface -> whether its link is up, as far as it was set by us."""
        self.taken = False
        """Whether it is known that the launcher took the plan."""
        self._out_of_memory = False
        self._said = ""
        self._changed = changed
        self._watching = False
        if launcher is not None:
            self._watch_process(launcher.pidfd)

    @property
    def id(self) -> str:
        """The VMI's uid."""
        return self.record.machine_id

    @property
    def interfaces(self) -> Sequence[Json] | None:
        """`status.interfaces`; None when nothing is known."""
        if self.network is None or self.guest.facts is None:
            return self.network.status if self.network is not None else None
        return with_guest(self.network.status, self.guest.facts.interfaces)

    def use_endpoints(self) -> None:
        """The record's endpoints are bound from now on."""
        self.endpoints = Endpoints(self.launcher.directory if self.launcher else -1, self.record.endpoints)

    async def _guest_channel(self) -> socket.socket:
        for endpoint in self.endpoints.of_purpose(Endpoint.PURPOSE_GUEST_AGENT):
            try:
                return await self.endpoints.connect(endpoint.id, AGENT)
            except EndpointError as error:
                raise GuestAgentSilent(str(error)) from error
        raise GuestAgentSilent("this machine has no channel to an agent in the guest")

    def _guest_channel_closed(self) -> None:
        for endpoint in self.endpoints.of_purpose(Endpoint.PURPOSE_GUEST_AGENT):
            self.endpoints.release(endpoint.id)

    def _watch_process(self, pidfd: int) -> None:
        asyncio.get_running_loop().add_reader(pidfd, self._ended)
        self._watching = True

    def _ended(self) -> None:
        self._unwatch()
        self._note_end()
        self._changed()

    def _helper_ended(self, helper: HelperRecord) -> None:
        self.lost_helper = helper
        self._changed()

    def _unwatch(self) -> None:
        if self._watching and self.launcher is not None:
            asyncio.get_running_loop().remove_reader(self.launcher.pidfd)
            self._watching = False

    def _note_end(self) -> None:
        """Keep what tells how the process ended, at once: its cgroup and log go with the pod."""
        self.alive = False
        cgroup = self.record.memory_cgroup
        kills = processes.out_of_memory_kills(cgroup) if cgroup else 0
        self._out_of_memory = kills > self.record.out_of_memory_kills
        self._said = self._last_words()

    async def settled(self) -> None:
        """Give a process that is about to end a moment to do so: its exit tells more than a closed socket."""
        if self.launcher is not None and self.alive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await linux.readable(self.launcher.pidfd)
                    self._note_end()

    async def ended_state(self) -> MachineState:
        """How the run ended, as far as the process alone tells."""
        if self.record.boot_id != processes.boot_id():
            return MachineState(phase=PHASE_LOST, end_reason=END_REASON_VMM_KILLED, message="the host was restarted")
        exit_ = await processes.exit_of(self.launcher.pidfd) if self.launcher is not None else Exit()
        reason = END_REASON_UNKNOWN
        if self._out_of_memory:
            reason = END_REASON_OUT_OF_MEMORY
        elif exit_.signal is not None:
            reason = END_REASON_VMM_KILLED
        elif exit_.code:
            reason = END_REASON_VMM_EXITED
        return MachineState(phase=PHASE_LOST, end_reason=reason, message=exit_.sentence() + self._said)

    def _last_words(self) -> str:
        """The last line that the process wrote to its log, for the sentence on the VMI."""
        if self.launcher is None or not self.launcher.log:
            return ""
        try:
            with open(self.launcher.log, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(file.tell() - 2048, 0))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f", saying: {lines[-1][:300]}" if lines else ""

    def _noted(self, count: int) -> None:
        if self.serial_log is not None:
            self.serial_log.noted(count)

    def open_log(self, store: RecordStore, *, adopted: bool) -> None:
        """Open the serial log in the launcher's directory; raises OSError only for a new one."""
        assert self.launcher is not None
        keep = _keeper(store, self.id)
        owner = (self.launcher.uid, self.launcher.gid)
        if not adopted:
            self.serial_log = SerialLog.create(self.launcher.directory, SERIAL_LOG, owner, keep)
            return
        try:
            self.serial_log = SerialLog.adopt(self.launcher.directory, SERIAL_LOG, keep)
        except OSError as error:
            log.warning("machine %s: the serial log cannot be read: %s", self.id, error)
        else:
            self.console = Console(self._noted, self.serial_log.read())

    def open_hook(self, stop_requested: Callable[[], None]) -> None:
        """Listen for the stop hook and for probes; without that, the hook helps itself."""
        assert self.launcher is not None
        try:
            self.hook = StopHook(self.launcher, stop_requested, partial(answer, self.guest.client))
        except OSError as error:
            log.warning("machine %s: no socket for the stop hook: %s", self.id, error)

    async def open_console(self, *, expected: bool = True) -> None:
        """Drain the console from now on; an expected one that does not answer is told in the log only."""
        for endpoint in self.endpoints.of_purpose(Endpoint.PURPOSE_CONSOLE):
            if self.console.connected:
                return
            try:
                connection = await self.endpoints.connect(endpoint.id, AGENT)
            except EndpointError as error:
                if expected:
                    log.warning("machine %s: %s", self.id, error)
                continue
            ended = partial(self.endpoints.release, endpoint.id)
            if endpoint.reader_logs and self.serial_log is not None:
                self.console.attach(connection, ended, self.serial_log.append)
            else:
                self.console.attach(connection, ended)

    async def write(self, store: RecordStore, **changes: object) -> None:
        """Replace the record on the disk, then here."""
        record = msgspec.structs.replace(self.record, **changes)
        await asyncio.to_thread(store.write, record)
        self.record = record

    async def end(self, store: RecordStore, state: MachineState) -> None:
        """Write down how the run ended; the first word stands.

        A full disk does not keep a machine from ending: the end is then known to this process alone.
        """
        if self.record.stage is Stage.ENDED:
            return
        end = EndRecord(phase=state.phase, reason=state.end_reason, message=state.message[:1024])
        try:
            await self.write(store, stage=Stage.ENDED, end=end)
        except RecordError as error:
            log.warning("%s", error)
            self.record = msgspec.structs.replace(self.record, stage=Stage.ENDED, end=end)

    def close(self, why: str = "the machine ended") -> None:
        """Give all descriptors back."""
        if self.script is not None:
            self.script.cancel()
        self.helpers.close()
        self.console.close(why)
        self.viewers.close(why)
        for clients in (self.forwards, self.usb_clients, self.vsock_clients):
            clients.close(why)
        self.guest.close()
        self.credentials.close()
        self.hotplug.close()
        self.nic_changes.close()
        if self.hook is not None:
            self.hook.close()
            self.hook = None
        if self.serial_log is not None:
            self.serial_log.close()
            self.serial_log = None
        if self.network is not None:
            self.network.close()
            self.network = None
        self._unwatch()
        if self.launcher is not None:
            self.launcher.close()
            self.launcher = None


def _keeper(store: RecordStore, machine_id: str) -> Callable[[bytes], None]:
    def keep(data: bytes) -> None:
        directory = store.directory(machine_id)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(OLD_LOG, flags, 0o600, dir_fd=directory), "wb") as file:
                file.write(data)
        finally:
            os.close(directory)

    return keep


def serial_text(machine: Machine, store: RecordStore) -> bytes:
    """What the guest wrote to its console last: the part that was moved away, then the log."""
    older = b""
    with contextlib.suppress(OSError):
        directory = store.directory(machine.id)
        try:
            older = read_file(directory, OLD_LOG, LOG_BYTES)
        finally:
            os.close(directory)
    return older + (machine.serial_log.read() if machine.serial_log is not None else b"")
