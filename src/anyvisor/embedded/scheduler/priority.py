"""Which pod comes first: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/"""

from collections.abc import Mapping
from typing import Final

import msgspec

from anyvisor.embedded.scheduler.views import PodSpec

SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that are always there."""


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """What a class says."""

    value: int = 0
    global_default: bool = False


def unknown_class(spec: PodSpec, classes: Mapping[str, PriorityClass]) -> bool:
    """Whether the pod names a class that there is not."""
    name = spec.priority_class_name
    return bool(name) and name not in classes and name not in SYSTEM


def priority(spec: PodSpec, classes: Mapping[str, PriorityClass]) -> int:
    """The pod's priority: its own, its class's, else the default class's."""
    if spec.priority is not None:
        return spec.priority
    name = spec.priority_class_name
    if name:
        return classes[name].value if name in classes else SYSTEM.get(name, 0)
    return next((one.value for one in classes.values() if one.global_default), 0)
