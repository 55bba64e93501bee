"""What all parts of the agent share: who we are, what we watch, what we use."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.launchers import LauncherSource
from anyvisor.agent.machine import Machine
from anyvisor.agent.network import MachineNetwork, detach
from anyvisor.agent.records import Record, RecordStore
from anyvisor.agent.turns import Turns
from anyvisor.agent.volumes.source import ClaimSource, ImageSource
from anyvisor.api.meta import Json
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventKind, EventRecorder, Reference
from anyvisor.kube.informer import Informer
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import VMIS

BY_UID = "uid"
BY_VMI = "vmi"


class AttachNetwork(Protocol):
    """Opens the network of one machine."""

    async def __call__(
        self, vmi: Json, *, pod: Json, netns: int | None, adopted: bool, only: str = ""
    ) -> MachineNetwork:
        """Open it in the namespace (None: there is none, use the VMM's own user-mode network).

        `adopted`: the guest runs already; open again only what ended with the agent before (DHCP sockets).
        `only`: an interface that a running guest is about to get.
        """
        ...


class DetachNetwork(Protocol):
    """Takes down the pod's side of an interface that the guest has no more."""

    async def __call__(self, *, pod: Json, netns: int, interface: str) -> None:
        """`interface`: the pod's."""
        ...


async def detach_bridge(*, pod: Json, netns: int, interface: str) -> None:
    """Take down what we made; the pod's own interface is its network plug-in's."""
    del pod
    await detach(netns, interface)


VolumesOf = Callable[[Json, str], tuple[ImageSource, ClaimSource]]
"""From a VMI and the uid of its launcher pod to where its images and claims are found."""


@dataclass(slots=True)
class NodeContext:
    """One node's agent."""

    node: str
    client: Client
    recorder: EventRecorder
    store: RecordStore
    launchers: LauncherSource
    images: ImageSource
    claims: ClaimSource
    attach_network: AttachNetwork
    volumes_of: VolumesOf | None
    vmis: Informer
    pods: Informer
    queue: WorkQueue[str]
    tasks: asyncio.TaskGroup
    turns: Turns
    detach_network: DetachNetwork = detach_bridge
    sessions: dict[str, DriverSession] = field(default_factory=dict[str, DriverSession])
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])
    starting: set[str] = field(default_factory=set[str])
    """Machines that a driver may know before they have a record."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Starts that failed in a row."""
    not_before: dict[str, float] = field(default_factory=dict[str, float])
    """Monotonic seconds of the next try: what a failed start itself stirs up must not begin it anew."""
    damaged: dict[str, str] = field(default_factory=dict[str, str])
    """Machines whose record cannot be used, and why: they are reported and not touched."""

    def session_of(self, record: Record) -> DriverSession | None:
        """The driver that runs a machine: the version that started it where that is here, else the current one."""
        return self.sessions.get(f"{record.driver}@{record.driver_version}") or self.sessions.get(record.driver)

    def volume_sources(self, vmi: Json, pod_uid: str) -> tuple[ImageSource, ClaimSource]:
        """Where the images and claims of one machine are found."""
        if self.volumes_of is not None:
            return self.volumes_of(vmi, pod_uid)
        return self.images, self.claims

    def vmi(self, machine_id: str) -> Json | None:
        """The VMI of a machine, as it was last seen."""
        found = self.vmis.index(BY_UID, machine_id)
        return found[0].json() if found else None

    def pod(self, machine_id: str, pod_uid: str = "") -> Json | None:
        """The launcher pod of a VMI on this node: the one with `pod_uid`, or the newest."""
        pods = self.pods.index(BY_VMI, machine_id)
        if pod_uid:
            pods = tuple(pod for pod in pods if pod.meta.uid == pod_uid)
        newest = max(pods, key=lambda pod: pod.meta.creation_timestamp or "", default=None)
        return newest.json() if newest is not None else None

    def event(self, machine: Machine, kind: EventKind, reason: str, message: str) -> None:
        """Record an event on the machine's VMI."""
        record = machine.record
        about = Reference(VMIS.api_version, VMIS.kind, record.namespace, record.name, record.machine_id)
        self.recorder.record(about, kind, reason, message)
