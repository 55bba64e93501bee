"""Where a pod may run, and if nowhere, why not; pure.

Filters and words are those of kube-scheduler, since people and tools know its sentences. The score prefers what
the pod prefers, then nodes with more left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anyvisor.api.selectors import NOTHING, Operator, Selector, SelectorError, selector_of
from anyvisor.api.selectors import Requirement as Rule
from anyvisor.embedded.scheduler.views import (
    ONE,
    Amounts,
    Cluster,
    Node,
    NodeSelector,
    NodeState,
    NodeTerm,
    Pod,
    PodTerm,
    Requirement,
    Spread,
    Taint,
    Toleration,
    requested,
)

HARD_EFFECTS = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Placement:
    """The node to bind to."""

    node: str


@dataclass(frozen=True, slots=True)
class Reasons:
    """No node will do; `per_node` has each one's reasons, `message` says it in one sentence."""

    message: str
    per_node: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A pod affinity term, read: which pods it means."""

    term: PodTerm
    selector: Selector
    namespaces: frozenset[str] | None
    """None = all."""

    def means(self, pod: Pod) -> bool:
        inside = self.namespaces is None or pod.metadata.namespace in self.namespaces
        return inside and self.selector.matches(pod.labels)


def decide(pod: Pod, cluster: Cluster) -> Placement | Reasons:
    """Choose the node for `pod`; equal ones by name, so that the answer depends on the input alone."""
    needs = requested(pod.spec)
    filters = _PodFilters(pod, cluster)
    per_node: dict[str, tuple[str, ...]] = {}
    feasible: list[NodeState] = []
    for name, state in cluster.nodes.items():
        reasons = _node_reasons(pod, needs, state) or filters.reasons(state)
        if reasons:
            per_node[name] = tuple(reasons)
        else:
            feasible.append(state)
    if not feasible:
        return Reasons(_sentence(per_node), per_node)
    best = min(feasible, key=lambda state: (-_score(pod, needs, state, filters), state.node.name))
    return Placement(best.node.name)


def _sentence(per_node: Mapping[str, tuple[str, ...]]) -> str:
    if not per_node:
        return "0/0 nodes are available: no node is registered."
    counts = Counter(reason for reasons in per_node.values() for reason in reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(per_node)} nodes are available: {listed}."


def _node_reasons(pod: Pod, needs: Amounts, state: NodeState) -> list[str]:
    node = state.node
    if node.spec.unschedulable and not _tolerated(UNSCHEDULABLE, pod.spec.tolerations):
        return ["node(s) were unschedulable"]
    taint = _untolerated(node, pod.spec.tolerations)
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not _selects(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _shortages(needs, state)


def _shortages(needs: Amounts, state: NodeState) -> list[str]:
    short: list[str] = []
    limit = state.allocatable.get("pods")
    if limit is not None and state.used.get("pods", 0) + ONE > limit:
        short.append("Too many pods")
    for name, amount in sorted(needs.items()):
        if amount > 0 and amount > state.allocatable.get(name, 0) - state.used.get(name, 0):
            short.append(f"Insufficient {name}")
    return short


def _untolerated(node: Node, tolerations: Iterable[Toleration]) -> Taint | None:
    taints = (*node.spec.taints, NOT_READY) if node.not_ready else node.spec.taints
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not _tolerated(taint, tolerations)), None)


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(
        (not one.effect or one.effect == taint.effect)
        and (not one.key or one.key == taint.key)
        and (one.operator == "Exists" or (bool(one.key) and one.value == taint.value))
        for one in tolerations
    )


def _selects(pod: Pod, node: Node) -> bool:
    labels = node.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    required = pod.spec.affinity.node_affinity.required
    return required is None or _any_term(required, node)


def _any_term(selector: NodeSelector, node: Node) -> bool:
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def _term_matches(term: NodeTerm, node: Node) -> bool:
    """An empty term matches nothing, as the API defines it."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_matches(rule, node.labels) for rule in term.match_expressions) and all(
        _matches(rule, fields) for rule in term.match_fields
    )


_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.NOT_EXISTS,
    "Gt": Operator.GREATER,
    "Lt": Operator.LESS,
}


def _matches(rule: Requirement, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(rule.operator)
    if operator is None or (operator in (Operator.GREATER, Operator.LESS) and len(rule.values) != 1):
        return False
    return Rule(rule.key, operator, rule.values).matches(labels)


class _PodFilters:
    """The filters that look at other pods; what they need of the whole cluster is counted once."""

    def __init__(self, pod: Pod, cluster: Cluster) -> None:
        affinity = pod.spec.affinity
        self._pod = pod
        self._cluster = cluster
        self._affinity = [_scope(term, pod, cluster) for term in affinity.pod_affinity.required]
        self._anti = [_scope(term, pod, cluster) for term in affinity.pod_anti_affinity.required]
        self._near = [self._domains(scope) for scope in self._affinity]
        self._far = [self._domains(scope) for scope in self._anti]
        self._first = not any(self._near) and all(scope.means(pod) for scope in self._affinity)
        self._foreign = self._foreign_domains()
        self._spread = [
            (constraint, self._spread_counts(constraint))
            for constraint in pod.spec.topology_spread_constraints
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ]

    def reasons(self, state: NodeState) -> list[str]:
        labels = state.node.labels
        if not self._attracted(labels):
            return ["node(s) didn't match pod affinity rules"]
        if self._in_any(labels, zip(self._anti, self._far, strict=True)):
            return ["node(s) didn't match pod anti-affinity rules"]
        if any(labels.get(key) == value for key, value in self._foreign):
            return ["node(s) didn't satisfy existing pods anti-affinity rules"]
        for constraint, counts in self._spread:
            domain = labels.get(constraint.topology_key)
            if domain is None:
                return ["node(s) didn't match pod topology spread constraints (missing required label)"]
            own = _pods_selector(constraint.label_selector).matches(self._pod.labels)
            if counts[domain] + own - min(counts.values()) > constraint.max_skew:
                return ["node(s) didn't match pod topology spread constraints"]
        return []

    def preference(self, state: NodeState) -> int:
        """Return the weights of the preferred terms that hold on the node."""
        affinity = self._pod.spec.affinity
        total = sum(
            term.weight for term in affinity.node_affinity.preferred if _term_matches(term.preference, state.node)
        )
        for sign, terms in (
            (1, affinity.pod_affinity.preferred),
            (-1, affinity.pod_anti_affinity.preferred),
        ):
            for term in terms:
                scope = _scope(term.pod_affinity_term, self._pod, self._cluster)
                domain = state.node.labels.get(scope.term.topology_key)
                if domain is not None and domain in self._domains(scope):
                    total += sign * term.weight
        return total

    def _attracted(self, labels: Mapping[str, str]) -> bool:
        """The first pod of a group that wants to be together may go anywhere that has the topology."""
        if self._first:
            return all(scope.term.topology_key in labels for scope in self._affinity)
        return all(
            labels.get(scope.term.topology_key) in domains
            for scope, domains in zip(self._affinity, self._near, strict=True)
        )

    @staticmethod
    def _in_any(labels: Mapping[str, str], scopes: Iterable[tuple[_Scope, set[str]]]) -> bool:
        return any(labels.get(scope.term.topology_key) in domains for scope, domains in scopes)

    def _domains(self, scope: _Scope) -> set[str]:
        """Values of the topology key on nodes with a pod that the term means."""
        key = scope.term.topology_key
        return {
            state.node.labels[key]
            for state in self._cluster.nodes.values()
            if key in state.node.labels and any(scope.means(other) for other in state.pods.values())
        }

    def _foreign_domains(self) -> set[tuple[str, str]]:
        """(topology key, value) of the domains that other pods keep this one out of."""
        found: set[tuple[str, str]] = set()
        for state in self._cluster.nodes.values():
            for other in state.pods.values():
                for term in other.spec.affinity.pod_anti_affinity.required:
                    value = state.node.labels.get(term.topology_key)
                    if value is not None and _scope(term, other, self._cluster).means(self._pod):
                        found.add((term.topology_key, value))
        return found

    def _spread_counts(self, constraint: Spread) -> Counter[str]:
        """Matching pods per domain, over the nodes that the pod could use at all."""
        selector = _pods_selector(constraint.label_selector)
        counts: Counter[str] = Counter()
        for state in self._cluster.nodes.values():
            domain = state.node.labels.get(constraint.topology_key)
            if domain is not None and _selects(self._pod, state.node):
                counts[domain] += sum(
                    other.metadata.namespace == self._pod.metadata.namespace and selector.matches(other.labels)
                    for other in state.pods.values()
                )
        return counts


def _scope(term: PodTerm, owner: Pod, cluster: Cluster) -> _Scope:
    selector = _pods_selector(term.label_selector)
    extra = [
        Rule(key, operator, (owner.labels[key],))
        for operator, keys in (
            (Operator.IN, term.match_label_keys),
            (Operator.NOT_IN, term.mismatch_label_keys),
        )
        for key in keys
        if key in owner.labels
    ]
    if extra:
        selector = Selector((*selector.requirements, *extra), selector.nothing)
    return _Scope(term, selector, _namespaces(term, owner, cluster))


def _namespaces(term: PodTerm, owner: Pod, cluster: Cluster) -> frozenset[str] | None:
    if term.namespace_selector is None:
        return frozenset(term.namespaces) or frozenset({owner.metadata.namespace})
    if not any(term.namespace_selector.values()):
        return None
    selector = _pods_selector(term.namespace_selector)
    selected = (name for name, labels in cluster.namespaces.items() if selector.matches(labels))
    return frozenset((*term.namespaces, *selected))


def _pods_selector(selector: Mapping[str, object] | None) -> Selector:
    """Read a label selector; one that cannot be read selects nothing, as admission refuses such objects."""
    try:
        return selector_of(selector)
    except SelectorError:
        return NOTHING


def _score(pod: Pod, needs: Amounts, state: NodeState, filters: _PodFilters) -> float:
    """Preferences count in whole points, soft taints one against, and the free share decides between equals."""
    soft = sum(
        taint.effect == "PreferNoSchedule" and not _tolerated(taint, pod.spec.tolerations)
        for taint in state.node.spec.taints
    )
    return filters.preference(state) - soft + _free_share(needs, state)


def _free_share(needs: Amounts, state: NodeState) -> float:
    """What is left of CPU and memory once the pod is there, in [0, 1)."""
    shares = [
        (total - state.used.get(name, 0) - needs.get(name, 0)) / total
        for name in ("cpu", "memory")
        if (total := state.allocatable.get(name, 0)) > 0
    ]
    return sum(shares) / (len(shares) + 1e-9) if shares else 0.0
