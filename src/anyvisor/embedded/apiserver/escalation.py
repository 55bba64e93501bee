"""Nobody grants more than they have: the checks on writes of roles and bindings, and aggregated roles."""

from typing import Any, Literal

from anyvisor.api.meta import list_at
from anyvisor.api.selectors import SelectorError, selector_of
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.identity import MASTERS
from anyvisor.embedded.apiserver.rbac import GROUP, Attributes, Authorizer, covers, make_rule
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.values import as_object, as_objects, lookup, objects_at

Json = dict[str, Any]

_ROLES = ("roles", "clusterroles")
_BINDINGS = ("rolebindings", "clusterrolebindings")


class EscalationCheck:
    """Refuses a role or binding that grants what its writer does not have (verbs `escalate` and `bind` apart)."""

    phase: Literal["mutating", "validating"] = "validating"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Answer a write of a role or binding; all others are allowed."""
        if request.resource.group != GROUP or request.object is None or MASTERS in request.user.groups:
            return ALLOWED
        plural = request.resource.plural
        if plural in _ROLES:
            if request.old_object is not None and request.object.get("rules") == request.old_object.get("rules"):
                return ALLOWED
            if self._may(request, "escalate", plural, request.name):
                return ALLOWED
            rules = as_objects(request.object.get("rules"))
        elif plural in _BINDINGS:
            reference = as_object(request.object.get("roleRef"))
            target = "clusterroles" if reference.get("kind") == "ClusterRole" else "roles"
            if self._may(request, "bind", target, str(reference.get("name"))):
                return ALLOWED
            rules = list(self._authorizer.role_rules(reference, request.namespace))
        else:
            return ALLOWED
        return self._judge(request, rules)

    def _may(self, request: AdmissionRequest, verb: str, plural: str, name: str) -> bool:
        asked = Attributes(verb, GROUP, plural, namespace=request.namespace, name=name)
        return self._authorizer.allowed(request.user, asked)

    def _judge(self, request: AdmissionRequest, rules: list[Json]) -> AdmissionResult:
        have = self._authorizer.rules(request.user)
        missing = [rule for rule in rules if not covers(have, make_rule(request.namespace, rule))]
        if not missing:
            return ALLOWED
        shown = "; ".join(str(rule) for rule in missing[:5])
        return AdmissionResult(
            denied=f'user "{request.user.user}" is attempting to grant RBAC permissions not currently held: {shown}'
        )


def aggregated_rules(state: State, role: Json) -> list[Json] | None:
    """Return the rules of an aggregated ClusterRole; None when it is not aggregated, or its selectors are malformed."""
    try:
        selectors = [selector_of(each) for each in list_at(role, "aggregationRule", "clusterRoleSelectors")]
    except SelectorError:
        return None
    if not selectors:
        return None
    rules: list[Json] = []
    for entry in state.collection(f"{GROUP}/clusterroles").range(None):
        if entry.key[1] == lookup(role, ("metadata", "name")):
            continue
        if any(selector.matches(entry.labels) for selector in selectors):
            rules.extend(rule for rule in objects_at(entry.object(), "rules") if rule not in rules)
    return rules
