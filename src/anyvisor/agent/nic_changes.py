"""Which interfaces a running guest is to get or to lose, and what is under way of it. Pure, but for the task."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec

from anyvisor.agent.network.interfaces import ABSENT
from anyvisor.agent.retries import Retries
from anyvisor.agent.status import Problem
from anyvisor.api.meta import Json, annotations, list_at
from anyvisor.api.names import secondary_interface

ATTACH: Final = "attach"
DETACH: Final = "detach"
NETWORKS: Final = "k8s.v1.cni.cncf.io/networks"
"""Annotation of the pod: the networks that it is to be on."""
REPORT: Final = "k8s.v1.cni.cncf.io/network-status"
"""Annotation of the pod: the networks that it is on."""


class _Network(msgspec.Struct):
    interface: str = ""


class Step(NamedTuple):
    """One interface to be plugged or unplugged."""

    kind: Literal["attach", "detach"]
    interface: str


def steps(vmi: Json, plugged: Collection[str], pod: Json) -> list[Step]:
    """What is to be done, in the order of the spec. An interface comes once the pod is to be on its network."""
    wanted, reported = _interfaces(pod, NETWORKS), _interfaces(pod, REPORT)
    further = {str(each.get("name")) for each in list_at(vmi, "spec", "networks") if "multus" in each}
    todo: list[Step] = []
    for interface in list_at(vmi, "spec", "domain", "devices", "interfaces"):
        name = str(interface.get("name"))
        own = secondary_interface(name)
        if name not in further:
            continue
        if interface.get("state") == ABSENT:
            if name in plugged or own in reported:
                todo.append(Step(DETACH, name))
        elif name not in plugged and own in wanted:
            todo.append(Step(ATTACH, name))
    return todo


def _interfaces(pod: Json, annotation: str) -> set[str]:
    """The pod's interfaces in an annotation; what somebody wrote there by hand in another form counts for nothing."""
    try:
        listed = msgspec.json.decode(annotations(pod).get(annotation) or "[]", type=list[_Network])
    except msgspec.DecodeError:
        return set()
    return {each.interface for each in listed}


@dataclass(slots=True)
class NicChanges:
    """The changes of one machine's interfaces that are under way."""

    task: asyncio.Task[None] | None = None
    problem: Problem | None = None
    """Why the last one failed, until it is done or not wanted any more."""
    retries: Retries[Step] = field(default_factory=Retries[Step])

    def due(self, todo: Collection[Step]) -> list[Step]:
        """Those to try now; a problem with what is not wanted any more is none."""
        due = self.retries.due(todo)
        if not self.retries.failing:
            self.problem = None
        return due

    def tried(self, step: Step, problem: Problem | None) -> bool:
        """Note how a try went; whether it failed for the first time."""
        self.problem = problem
        return self.retries.tried(step, failed=problem is not None)

    def close(self) -> None:
        """End what is under way; the guest keeps what it has."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
