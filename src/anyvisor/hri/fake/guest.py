"""A guest that does nothing: it can be asked to end, ends by itself when told to, and echoes on its console."""

import asyncio
import socket
from typing import Final

from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.v1.machine_spec_pb2 import Lifecycle, Machine
from anyvisor.hri.v1.stats_pb2 import DiskStats, GuestMemoryStats, MachineStats, NicStats, VcpuStats
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_GUEST_REBOOT,
    END_REASON_GUEST_SHUTDOWN,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    END_REASON_VMM_EXITED,
    PHASE_CRASHED,
    PHASE_STOPPED,
    EndReason,
)

_ENDS: Final = {"panic": END_REASON_PANIC, "exited": END_REASON_VMM_EXITED}
_CRASHES: Final = (END_REASON_PANIC, END_REASON_VMM_EXITED)
_READ_BYTES: Final = 4096


class FakeGuest:
    """One running entry."""

    def __init__(self, machine: MachineContext, spec: Machine) -> None:
        self.machine = machine
        self.spec = Machine()
        self.spec.CopyFrom(spec)
        self.boots = 1
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._streams: dict[str, socket.socket] = {}
        self._opened = 0

    def schedule_end(self) -> None:
        """Let it end by itself, where its parameters say so."""
        seconds = int(self.spec.parameters.get("runSeconds", "0"))
        if seconds:
            reason = _ENDS.get(self.spec.parameters.get("end", ""), END_REASON_GUEST_SHUTDOWN)
            self._timer = self._loop.call_later(seconds, self.end, reason)

    def press_button(self, *, reboot: bool) -> None:
        """The guest follows, unless it is stubborn."""
        if self.spec.parameters.get("stubborn") == "true":
            return
        if reboot:
            self.reboot()
        else:
            self.end(END_REASON_REQUESTED_SHUTDOWN)

    def reboot(self) -> None:
        """It starts again in place, or ends where the machine says so."""
        if self.spec.lifecycle.on_reboot == Lifecycle.ON_REBOOT_STOP:
            self.end(END_REASON_GUEST_REBOOT)
        else:
            self.boots += 1

    def end(self, reason: EndReason) -> None:
        """It is down."""
        self.close()
        with self.machine.change() as state:
            state.phase = PHASE_CRASHED if reason in _CRASHES else PHASE_STOPPED
            state.end_reason = reason
            state.graceful_stop_possible = False

    def stats(self, round_: int) -> MachineStats:
        """Counters of a guest that has been busy for so many rounds."""
        size = self.spec.memory.size_bytes
        return MachineStats(
            vcpus=[VcpuStats(index=0, run_nanoseconds=round_ * 1_000_000)],
            memory=GuestMemoryStats(balloon_bytes=size, total_bytes=size, unused_bytes=size // 2),
            disks=[
                DiskStats(device_id=disk.id, read_requests=round_, read_bytes=512 * round_) for disk in self.spec.disks
            ],
            nics=[NicStats(device_id=nic.id, received_bytes=round_, sent_bytes=2 * round_) for nic in self.spec.nics],
        )

    def attach(self, stream: socket.socket) -> str:
        """A console that greets and echoes."""
        self._opened += 1
        name = f"console-{self._opened}"
        self._streams[name] = stream
        stream.send(f"{self.machine.id} boot {self.boots}\r\n".encode())
        self._loop.add_reader(stream, self._echo, name)
        return name

    def _echo(self, name: str) -> None:
        stream = self._streams[name]
        try:
            data = stream.recv(_READ_BYTES)
            if data:
                stream.send(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.detach(name)

    def detach(self, name: str) -> None:
        """Hang up one console."""
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._loop.remove_reader(stream)
            stream.close()

    def close(self) -> None:
        """Let go of everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for name in list(self._streams):
            self.detach(name)
