"""What the machines of this node use: the drivers' Stats, joined with what the host counts for each VMM."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anyvisor.agent import counters
from anyvisor.agent.counters import HostCounters, LinkCounters
from anyvisor.agent.driver import DriverSession
from anyvisor.agent.machine import Machine
from anyvisor.agent.node_context import BY_UID, NodeContext
from anyvisor.hri.errors import HriError, NotImplementedByDriver
from anyvisor.hri.v1.stats_pb2 import MachineStats, NicStats
from anyvisor.hri.v1.types_pb2 import MachineState

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 1.0
"""Who asks within this time after another gets the same answer."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Who uses a machine's streams now."""

    consoles: int = 0
    displays: int = 0
    forwards: int = 0
    usb_devices: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One machine at one moment."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    """The VMI's."""
    stats: MachineStats
    host: HostCounters
    links: Mapping[str, LinkCounters | NicStats]
    """By interface of the VMI."""
    memory_bytes: int = 0
    """What the guest has."""
    streams: Streams = Streams()


@dataclass(frozen=True, slots=True)
class Samples:
    """All machines of a node, and what it took to ask."""

    machines: Sequence[Sample] = ()
    seconds: float = 0.0
    silent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Drivers that did not answer, and why."""


class Sampler:
    """Asks all drivers when it is asked, and each at most once at a time."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._turn = asyncio.Lock()
        self._last = Samples()
        self._taken = -FRESH_SECONDS

    async def read(self) -> Samples:
        """The machines as they are now, or were a moment ago."""
        async with self._turn:
            if time.monotonic() - self._taken >= FRESH_SECONDS:
                began = time.monotonic()
                told, silent = await self._ask()
                jobs = [self._job(machine) for machine in self._context.machines.values() if machine.alive]
                hosts = await asyncio.to_thread(_read_hosts, jobs, told)
                taken = [self._sample(job, told.get(job.machine.id), host) for job, host in hosts]
                self._taken = time.monotonic()
                self._last = Samples(taken, self._taken - began, silent)
            return self._last

    async def _ask(self) -> tuple[dict[str, MachineStats], dict[str, str]]:
        sessions = [session for session in self._context.sessions.values() if session.synced]
        answers = await asyncio.gather(*(_stats(session) for session in sessions))
        told: dict[str, MachineStats] = {}
        silent: dict[str, str] = {}
        for session, answer in zip(sessions, answers, strict=True):
            if isinstance(answer, str):
                silent[session.address.name] = answer
                continue
            told.update((each.machine_id, each) for each in answer)
        return told, silent

    def _job(self, machine: Machine) -> "_Job":
        network = machine.network
        taps = network.taps if network is not None else {}
        return _Job(machine, machine.record.pid if machine.record.has_process else 0, taps)

    def _sample(self, job: "_Job", stats: MachineStats | None, host: HostCounters) -> Sample:
        machine, record = job.machine, job.machine.record
        session = self._context.sessions.get(record.driver)
        state = session.states.get(machine.id) if session is not None else None
        found = self._context.vmis.index(BY_UID, machine.id)
        links: dict[str, LinkCounters | NicStats] = {nic.device_id: nic for nic in stats.nics} if stats else {}
        for interface, tap in job.taps.items():
            if (link := host.links.get(tap)) is not None:
                links[interface] = link
        return Sample(
            record.namespace,
            record.name,
            (found[0].meta.labels if found else None) or {},
            stats if stats is not None else MachineStats(),
            host,
            links,
            _memory(state, stats),
            Streams(machine.console.clients, len(machine.viewers), len(machine.forwards), len(machine.usb_clients)),
        )


def _memory(state: MachineState | None, stats: MachineStats | None) -> int:
    """What the guest has, by the balloon where no event told it yet."""
    told = state.memory_bytes if state is not None else 0
    return told or (stats.memory.balloon_bytes if stats is not None else 0)


@dataclass(frozen=True, slots=True)
class _Job:
    machine: Machine
    pid: int
    taps: Mapping[str, str]


def _read_hosts(jobs: Iterable[_Job], told: Mapping[str, MachineStats]) -> list[tuple[_Job, HostCounters]]:
    found: list[tuple[_Job, HostCounters]] = []
    for job in jobs:
        stats = told.get(job.machine.id)
        threads = [vcpu.thread_id for vcpu in stats.vcpus if vcpu.thread_id] if stats is not None else []
        host = counters.read(job.pid, threads, links=bool(job.taps)) if job.pid else HostCounters()
        found.append((job, host))
    return found


async def _stats(session: DriverSession) -> Sequence[MachineStats] | str:
    """The answer, or why there is none. A driver without the profile is no failure: the host's counters are left."""
    try:
        return await session.client.get_stats()
    except NotImplementedByDriver:
        return ()
    except HriError as error:
        log.info("driver %s tells no counters: %s", session.address.name, error.message)
        return error.message


def usage(sample: Sample) -> dict[str, Any]:
    """A machine's totals as JSON, from which a client makes rates."""
    stats, host = sample.stats, sample.host
    return {
        "namespace": sample.namespace,
        "name": sample.name,
        "cpuSeconds": (host.user_seconds or 0.0) + (host.system_seconds or 0.0),
        "memoryBytes": host.resident_bytes or 0,
        "guestMemoryBytes": sample.memory_bytes,
        "diskReadBytes": sum(disk.read_bytes for disk in stats.disks),
        "diskWriteBytes": sum(disk.write_bytes for disk in stats.disks),
        "networkReceivedBytes": sum(link.received_bytes for link in sample.links.values()),
        "networkSentBytes": sum(link.sent_bytes for link in sample.links.values()),
    }
