"""Rules for where a guest may run: affinity and topology spread.

They are those of a pod (kubernetes.io, Assigning Pods to Nodes), and so are the paths except for one habit of this API:
an affinity's path leaves the word `affinity` out.
"""

from collections.abc import Callable

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.names import LABEL_RULE, SUBDOMAIN_RULE, is_label, is_label_key, is_label_value, is_subdomain
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, integer, items, mapping, shown, strings, text
from anyvisor.admission.view import Spec

_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_COMPARING = ("In", "NotIn")
_SET_OPERATORS = (*_COMPARING, "Exists", "DoesNotExist")
_MAX_WEIGHT = 100
_KEY_RULE = "an optional DNS prefix and '/', then at most 63 letters, digits, '-', '_' or '.'"


class _At:
    """A place in the object: the path on the wire and the real one."""

    __slots__ = ("path", "wire")

    def __init__(self, wire: str, path: str) -> None:
        self.wire, self.path = wire, path

    def child(self, name: str) -> "_At":
        return _At(f"{self.wire}.{name}", f"{self.path}.{name}")

    def index(self, number: int) -> "_At":
        return _At(f"{self.wire}[{number}]", f"{self.path}[{number}]")


def _bad(out: Causes, at: _At, problem: str) -> None:
    out.invalid(at.wire, f"{at.path} {problem}", at.path)


def affinity(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Node affinity, pod affinity and pod anti-affinity."""
    del config
    written = mapping(spec.raw.get("affinity"))
    for name, check in _AFFINITIES.items():
        if written.get(name) is not None:
            check(_At(f"{spec.at}.{name}", f"{spec.at}.affinity.{name}"), mapping(written[name]), out)


def _node_affinity(at: _At, node: Obj, out: Causes) -> None:
    if node.get(_REQUIRED) is not None:
        terms_at = at.child(_REQUIRED).child("nodeSelectorTerms")
        terms = items(mapping(node[_REQUIRED]).get("nodeSelectorTerms"))
        if not terms:
            _bad(out, terms_at, "is empty; give at least one term or remove the affinity")
        for index, term in enumerate(terms):
            _node_term(terms_at.index(index), term, out)
    for index, term in enumerate(items(node.get(_PREFERRED))):
        where = at.child(_PREFERRED).index(index)
        _weight(where, term, out)
        _node_term(where.child("preference"), mapping(term.get("preference")), out)


def _weight(at: _At, term: Obj, out: Causes) -> None:
    weight = integer(term.get("weight"))
    if not 0 < weight <= _MAX_WEIGHT:
        _bad(out, at.child("weight"), f"is {weight}; weights are 1 to {_MAX_WEIGHT}")


def _node_term(at: _At, term: Obj, out: Causes) -> None:
    for index, requirement in enumerate(items(term.get("matchExpressions"))):
        _node_expression(at.child("matchExpressions").index(index), requirement, out)
    for index, requirement in enumerate(items(term.get("matchFields"))):
        _node_field(at.child("matchFields").index(index), requirement, out)


def _set_values(at: _At, operator: str, count: int, out: Causes) -> None:
    """In and NotIn compare with values; Exists and DoesNotExist with none."""
    if operator in _COMPARING and not count:
        _bad(out, at.child("values"), f"is empty; {operator} needs values to compare with")
    elif operator not in _COMPARING and count:
        _bad(out, at.child("values"), f"must be empty with {operator}; remove the values")


def _node_expression(at: _At, requirement: Obj, out: Causes) -> None:
    operator, count = text(requirement.get("operator")), len(strings(requirement.get("values")))
    if operator in _SET_OPERATORS:
        _set_values(at, operator, count, out)
    elif operator in ("Gt", "Lt"):
        if count != 1:
            _bad(out, at.child("values"), f"needs exactly one number with {operator}")
    else:
        _bad(out, at.child("operator"), f"is {operator!r}; use In, NotIn, Exists, DoesNotExist, Gt or Lt")
    _label_key(at.child("key"), text(requirement.get("key")), out)


def _node_field(at: _At, requirement: Obj, out: Causes) -> None:
    operator, values = text(requirement.get("operator")), strings(requirement.get("values"))
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            _bad(out, at.child("values"), "of a field needs exactly one value")
    else:
        _bad(out, at.child("operator"), f"is {operator!r}; fields can be compared by In and NotIn only")
    if requirement.get("key") != "metadata.name":
        _bad(out, at.child("key"), f"is {shown(requirement.get('key'))}; the only field of a node is metadata.name")
        return
    for index, value in enumerate(values):
        if not is_subdomain(value):
            _bad(out, at.child("values").index(index), f"is {value!r}, no name of a node; it must be {SUBDOMAIN_RULE}")


def _pod_affinity(at: _At, pods: Obj, out: Causes) -> None:
    for index, term in enumerate(items(pods.get(_REQUIRED))):
        _pod_term(at.child(_REQUIRED).index(index), term, out)
    for index, weighted in enumerate(items(pods.get(_PREFERRED))):
        where = at.child(_PREFERRED).index(index)
        _weight(where, weighted, out)
        _pod_term(where.child("podAffinityTerm"), mapping(weighted.get("podAffinityTerm")), out)


def _pod_term(at: _At, term: Obj, out: Causes) -> None:
    for name in ("labelSelector", "namespaceSelector"):
        _label_selector(at.child(name), term.get(name), out)
    for index, namespace in enumerate(strings(term.get("namespaces"))):
        if not is_label(namespace):
            path = f"{at.path}.namespaces[{index}]"
            out.invalid(f"{at.wire}.namespace", f"{path} is {namespace!r}; a namespace is {LABEL_RULE}", path)
    _label_key(at.child("topologyKey"), text(term.get("topologyKey")), out)


_AFFINITIES: dict[str, Callable[[_At, Obj, Causes], None]] = {
    "nodeAffinity": _node_affinity,
    "podAffinity": _pod_affinity,
    "podAntiAffinity": _pod_affinity,
}


def _label_key(at: _At, key: str, out: Causes) -> None:
    if not is_label_key(key):
        _bad(out, at, f"is {key!r}; it must be the key of a label: {_KEY_RULE}")


def _label_selector(at: _At, written: object, out: Causes) -> None:
    selector = mapping(written)
    for key, value in mapping(selector.get("matchLabels")).items():
        labels = at.child("matchLabels")
        if not is_label_key(key):
            _bad(out, labels, f"has the key {key!r}; it must be {_KEY_RULE}")
        if not is_label_value(text(value)):
            _bad(out, labels, f"has the value {value!r}, which no label can have")
    for index, requirement in enumerate(items(selector.get("matchExpressions"))):
        _label_requirement(at.child("matchExpressions").index(index), requirement, out)


def _label_requirement(at: _At, requirement: Obj, out: Causes) -> None:
    operator, values = text(requirement.get("operator")), strings(requirement.get("values"))
    if operator in _SET_OPERATORS:
        _set_values(at, operator, len(values), out)
    else:
        _bad(out, at.child("operator"), f"is {operator!r}; use In, NotIn, Exists or DoesNotExist")
    _label_key(at.child("key"), text(requirement.get("key")), out)
    for index, value in enumerate(values):
        if not is_label_value(value):
            _bad(out, at.child("values").index(index), f"is {value!r}, which no label can have")


def topology_spread(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Topology spread constraints."""
    del config
    at = _At(f"{spec.at}.topologySpreadConstraints", f"{spec.at}.topologySpreadConstraints")
    constraints = items(spec.raw.get("topologySpreadConstraints"))
    kinds = [(text(c.get("topologyKey")), text(c.get("whenUnsatisfiable"))) for c in constraints]
    last = {pair: index for index, pair in enumerate(kinds)}
    for index, constraint in enumerate(constraints):
        where = at.index(index)
        if integer(constraint.get("maxSkew")) <= 0:
            _bad(out, where.child("maxSkew"), f"is {shown(constraint.get('maxSkew'))}; it must be at least 1")
        _label_key(where.child("topologyKey"), kinds[index][0], out)
        if kinds[index][1] not in ("DoNotSchedule", "ScheduleAnyway"):
            _bad(out, where.child("whenUnsatisfiable"), "must be DoNotSchedule or ScheduleAnyway")
        path = where.child("labelSelector").path
        _label_selector(_At(f"{at.wire}.labelSelector", path), constraint.get("labelSelector"), out)
        if last[kinds[index]] != index:
            _bad(out, where.child("{topologyKey, whenUnsatisfiable}"), "is the same as in another constraint; keep one")
