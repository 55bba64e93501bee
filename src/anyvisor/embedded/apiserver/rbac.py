"""Role-based access control over the Role and binding objects of the server itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyvisor.api.meta import list_at
from anyvisor.api.selectors import SelectorError, selector_of
from anyvisor.embedded.apiserver.entries import Event
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.apiserver.state import State

Json = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
STORES = {f"{GROUP}/{name}" for name in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")}
CACHE_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked: a verb on a resource, or on a path when `path` is set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that applies to a user, with the namespace in which it does (empty: everywhere)."""

    namespace: str
    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: frozenset[str]
    raw: Mapping[str, Any]

    def allows(self, asked: Attributes) -> bool:
        if "*" not in self.verbs and asked.verb not in self.verbs:
            return False
        if asked.path:
            return any(_path_matches(url, asked.path) for url in self.urls)
        if self.namespace and self.namespace != asked.namespace:
            return False
        if "*" not in self.groups and asked.group not in self.groups:
            return False
        if not self._has_resource(asked):
            return False
        return not self.names or asked.name in self.names

    def _has_resource(self, asked: Attributes) -> bool:
        if "*" in self.resources:
            return True
        if not asked.subresource:
            return asked.resource in self.resources
        full = f"{asked.resource}/{asked.subresource}"
        return full in self.resources or f"*/{asked.subresource}" in self.resources


def _path_matches(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))


def make_rule(namespace: str, raw: Mapping[str, Any]) -> Rule:
    def values(name: str) -> frozenset[str]:
        return frozenset(raw.get(name) or ())

    return Rule(
        namespace,
        values("verbs"),
        values("apiGroups"),
        values("resources"),
        values("resourceNames"),
        values("nonResourceURLs") if not namespace else frozenset(),
        raw,
    )


class Authorizer:
    """Answers whether a user may do something; its cache empties when any role or binding changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._rules: dict[tuple[str, tuple[str, ...]], tuple[Rule, ...]] = {}
        state.listen(self._changed)

    def _changed(self, resource: str, _event: Event) -> None:
        if resource in STORES:
            self._rules.clear()

    def allowed(self, identity: Identity, asked: Attributes) -> bool:
        if MASTERS in identity.groups:
            return True
        return any(rule.allows(asked) for rule in self.rules(identity))

    def rules(self, identity: Identity) -> Sequence[Rule]:
        """Return every rule that applies to a user."""
        key = (identity.user, identity.groups)
        found = self._rules.get(key)
        if found is None:
            if len(self._rules) >= CACHE_ENTRIES:
                self._rules.clear()
            found = self._rules[key] = tuple(self._collect(identity))
        return found

    def _collect(self, identity: Identity) -> Iterator[Rule]:
        for entry in self._state.collection(f"{GROUP}/clusterrolebindings").range(None):
            yield from self._bound(entry.object(), "", identity)
        for entry in self._state.collection(f"{GROUP}/rolebindings").range(None):
            yield from self._bound(entry.object(), entry.key[0], identity)

    def _bound(self, binding: Json, namespace: str, identity: Identity) -> Iterator[Rule]:
        if any(_is_subject(subject, namespace, identity) for subject in binding.get("subjects") or ()):
            for rule in self.role_rules(binding["roleRef"], namespace):
                yield make_rule(namespace, rule)

    def role_rules(self, reference: Json, namespace: str) -> Sequence[Json]:
        """Return the rules of the role that a binding refers to; none when it does not exist."""
        if reference.get("kind") == "ClusterRole":
            entry = self._state.collection(f"{GROUP}/clusterroles").entries.get(("", reference["name"]))
        else:
            entry = self._state.collection(f"{GROUP}/roles").entries.get((namespace, reference["name"]))
        if entry is None:
            return ()
        role = entry.object()
        return [*(role.get("rules") or ()), *self._aggregated(role, {reference["name"]})]

    def _aggregated(self, role: Json, seen: set[str]) -> Iterator[Json]:
        """Yield the rules of the ClusterRoles that a role takes in by label, and of those that they take in."""
        try:
            selectors = [selector_of(each) for each in list_at(role, "aggregationRule", "clusterRoleSelectors")]
        except SelectorError:
            return
        if not selectors:
            return
        for entry in self._state.collection(f"{GROUP}/clusterroles").range(None):
            name = entry.key[1]
            if name not in seen and any(selector.matches(entry.labels) for selector in selectors):
                seen.add(name)
                other = entry.object()
                yield from other.get("rules") or ()
                yield from self._aggregated(other, seen)


def _is_subject(subject: Json, namespace: str, identity: Identity) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == identity.user
        case "Group":
            return subject.get("name") in identity.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return identity.user == f"system:serviceaccount:{home}:{subject.get('name')}"
        case _:
            return False


def covers(have: Sequence[Rule], wanted: Rule) -> bool:
    """Say whether rules grant everything that `wanted` does (the escalation check)."""
    if wanted.urls:
        return all(
            any(
                ("*" in rule.verbs or verb in rule.verbs) and any(_path_matches(own, url) for own in rule.urls)
                for rule in have
            )
            for verb in wanted.verbs
            for url in wanted.urls
        )
    names = wanted.names or frozenset({""})
    return all(
        any(
            (not rule.namespace or rule.namespace == wanted.namespace)
            and ("*" in rule.verbs or verb in rule.verbs)
            and ("*" in rule.groups or group in rule.groups)
            and ("*" in rule.resources or resource in rule.resources)
            and (not rule.names or name in rule.names)
            for rule in have
        )
        for verb in wanted.verbs
        for group in wanted.groups
        for resource in wanted.resources
        for name in names
    )
