"""What the scheduler reads of pods and nodes, and the amounts they ask for and have."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.kube.objects import Metadata

Amounts = dict[str, int]
"""Resource name -> amount in 1e-9 units, as quantities are exact."""

ONE = 10**9


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the read-only views: unknown fields are ignored."""


class Toleration(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Taint(View, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Requirement(View, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(View, frozen=True, kw_only=True):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class PreferredNodeTerm(View, frozen=True, kw_only=True):
    weight: int
    preference: NodeTerm


class NodeSelector(View, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(View, frozen=True, kw_only=True):
    topology_key: str
    label_selector: dict[str, Any] | None = None
    namespace_selector: dict[str, Any] | None = None
    namespaces: tuple[str, ...] = ()
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodTerm(View, frozen=True, kw_only=True):
    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(View, frozen=True, kw_only=True):
    required: tuple[PodTerm, ...] = msgspec.field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True, kw_only=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class Spread(View, frozen=True, kw_only=True):
    topology_key: str
    max_skew: int
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: dict[str, Any] | None = None


class Resources(View, frozen=True, kw_only=True):
    requests: dict[str, str | int | float] = {}
    limits: dict[str, str | int | float] = {}


class Container(View, frozen=True, kw_only=True):
    resources: Resources = Resources()
    restart_policy: str = ""


class Gate(View, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[Spread, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | int | float] = {}


class Condition(View, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(View, frozen=True, kw_only=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def over(self) -> bool:
        """Whether its containers have ended for good, so that it holds nothing on its node."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeSpec(View, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(View, frozen=True, kw_only=True):
    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[Condition, ...] = ()


class Node(View, frozen=True, kw_only=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.labels or {}

    @property
    def not_ready(self) -> bool:
        """Whether the node says that it is not ready; a node that says nothing counts as ready."""
        return any(each.type == "Ready" and each.status != "True" for each in self.status.conditions)


def amounts(quantities: Mapping[str, str | int | float]) -> Amounts:
    """Read quantities; one that cannot be read counts as none, as admission refuses such objects."""
    found: Amounts = {}
    for name, value in quantities.items():
        try:
            found[name] = parse_quantity(value if isinstance(value, int) else str(value)).nanos
        except QuantityError:
            continue
    return found


def requested(spec: PodSpec) -> Amounts:
    """Return what a pod needs at its worst moment, by the rules of sidecars (KEP-753) and pod overhead."""
    total = _sum(_requests(container) for container in spec.containers)
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.init_containers:
        mine = _requests(container)
        if container.restart_policy == "Always":
            sidecars = _sum((sidecars, mine))
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _sum((sidecars, mine)))
    return _sum((_max(peak, _sum((total, sidecars))), amounts(spec.overhead)))


def _requests(container: Container) -> Amounts:
    """A limit without a request requests the limit, as the API defaults it."""
    return amounts({**container.resources.limits, **container.resources.requests})


def _sum(parts: Iterable[Mapping[str, int]]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _max(left: Mapping[str, int], right: Mapping[str, int]) -> Amounts:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


@dataclass(slots=True)
class NodeState:
    """A node, the pods on it and what they use."""

    node: Node
    allocatable: Amounts
    used: Amounts = field(default_factory=dict[str, int])
    pods: dict[tuple[str, str], Pod] = field(default_factory=dict[tuple[str, str], Pod])

    @classmethod
    def of(cls, node: Node) -> "NodeState":
        return cls(node, amounts(node.status.allocatable))

    def add(self, pod: Pod) -> None:
        self.pods[pod.key] = pod
        self.used = _sum((self.used, requested(pod.spec), {"pods": ONE}))

    def remove(self, key: tuple[str, str]) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            minus = {name: -amount for name, amount in requested(pod.spec).items()}
            self.used = _sum((self.used, minus, {"pods": -ONE}))


class Cluster:
    """The nodes and what runs on them; a pod may be put in before the API server confirms its binding."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of each namespace."""
        self._where: dict[tuple[str, str], str] = {}
        self._waiting: dict[str, dict[tuple[str, str], Pod]] = {}

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> "Cluster":
        cluster = cls()
        for node in nodes:
            cluster.set_node(node)
        for pod in pods:
            cluster.put(pod, pod.spec.node_name)
        return cluster

    def set_node(self, node: Node) -> None:
        """Take in a node or its new state; its pods stay."""
        state = NodeState.of(node)
        old = self.nodes.get(node.name)
        for pod in old.pods.values() if old else self._waiting.pop(node.name, {}).values():
            state.add(pod)
        self.nodes[node.name] = state

    def drop_node(self, name: str) -> None:
        """Forget a node; its pods are remembered in case it comes back."""
        state = self.nodes.pop(name, None)
        if state is not None and state.pods:
            self._waiting[name] = state.pods

    def put(self, pod: Pod, node: str) -> None:
        """Count a pod on a node, known or not."""
        self.take(pod.key)
        self._where[pod.key] = node
        if node in self.nodes:
            self.nodes[node].add(pod)
        else:
            self._waiting.setdefault(node, {})[pod.key] = pod

    def take(self, key: tuple[str, str]) -> bool:
        """Count a pod no more; whether it was counted."""
        node = self._where.pop(key, None)
        if node is None:
            return False
        if node in self.nodes:
            self.nodes[node].remove(key)
        else:
            self._waiting.get(node, {}).pop(key, None)
        return True
