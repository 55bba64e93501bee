"""The objects that a new server starts with: namespaces and the default roles."""

from collections.abc import Callable, Sequence
from typing import Any

from anyvisor.api.meta import object_at

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
AGGREGATE = f"{RBAC}/aggregate-to-"
BOOTSTRAPPING = "kubernetes.io/bootstrapping"
MANAGED = {BOOTSTRAPPING: "rbac-defaults"}

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def rule(groups: str, resources: str, verbs: str, names: str = "") -> Json:
    """Return a policy rule from comma-separated words; `core` is the group without a name."""
    made: Json = {
        "apiGroups": ["" if group == "core" else group for group in groups.split(",")],
        "resources": resources.split(","),
        "verbs": verbs.split(","),
    }
    if names:
        made["resourceNames"] = names.split(",")
    return made


def cluster_role(name: str, rules: Sequence[Json], labels: Json | None = None, aggregates: str | None = None) -> Json:
    """Return a ClusterRole; with `aggregates` it takes in the roles that carry this label."""
    role: Json = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {**MANAGED, **(labels or {})}},
        "rules": list(rules),
    }
    if aggregates is not None:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {aggregates: "true"}}]}
    return role


def cluster_binding(name: str, role: str, *, users: Sequence[str] = (), groups: Sequence[str] = ()) -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(MANAGED)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [
            *({"apiGroup": RBAC, "kind": "User", "name": user} for user in users),
            *({"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups),
        ],
    }


READ = "get,list,watch"
WRITE = "create,delete,deletecollection,patch,update"
_DISCOVERY = [
    "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
    "/version/",
]  # fmt: skip
_VIEWED = (
    "configmaps,endpoints,events,persistentvolumeclaims,pods,pods/log,pods/status,resourcequotas,limitranges,"
    "serviceaccounts,services,namespaces"
)
_EDITED = "configmaps,endpoints,persistentvolumeclaims,pods,secrets,serviceaccounts,services"


def aggregated_role(name: str, *sources: str) -> Json:
    """Return a role whose rules are those of all roles that say they add to it."""
    selectors = [{"matchLabels": {f"{AGGREGATE}{source}": "true"}} for source in (name, *sources)]
    return {**cluster_role(name, []), "aggregationRule": {"clusterRoleSelectors": selectors}}


def default_roles() -> list[Json]:
    """Return Kubernetes' user-facing roles, as far as their resources are served here."""
    return [
        cluster_role("cluster-admin", [rule("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        cluster_binding("cluster-admin", "cluster-admin", groups=["system:masters"]),
        cluster_role("system:discovery", [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}]),
        cluster_binding("system:discovery", "system:discovery", groups=["system:authenticated"]),
        cluster_role("system:basic-user", _basic_user()),
        cluster_binding("system:basic-user", "system:basic-user", groups=["system:authenticated"]),
        cluster_role("system:aggregate-to-view", [rule("core", _VIEWED, READ)], {f"{AGGREGATE}view": "true"}),
        cluster_role("system:aggregate-to-edit", _edit(), {f"{AGGREGATE}edit": "true"}),
        cluster_role("system:aggregate-to-admin", _admin(), {f"{AGGREGATE}admin": "true"}),
        aggregated_role("view"),
        aggregated_role("edit", "view"),
        aggregated_role("admin", "edit", "view"),
    ]


def _basic_user() -> list[Json]:
    return [
        rule("authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews", "create"),
        rule("authentication.k8s.io", "selfsubjectreviews", "create"),
    ]


def _edit() -> list[Json]:
    return [
        rule("core", "secrets", READ),
        rule("core", _EDITED, WRITE),
        rule("core", "pods/eviction,serviceaccounts/token", "create"),
        rule("coordination.k8s.io", "leases", f"{READ},{WRITE}"),
    ]


def _admin() -> list[Json]:
    return [
        rule(RBAC, "roles,rolebindings", f"{READ},{WRITE}"),
        rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    ]


def is_outdated(have: Json, wanted: Json) -> bool:
    """Say whether a stored default role or binding is of an older version and may be renewed."""
    labels = object_at(have, "metadata", "labels")
    notes = object_at(have, "metadata", "annotations")
    if labels.get(BOOTSTRAPPING) != "rbac-defaults" or notes.get(f"{RBAC}/autoupdate") == "false":
        return False
    if "aggregationRule" in wanted:
        return have.get("aggregationRule") != wanted["aggregationRule"]
    return any(have.get(part) != wanted.get(part) for part in ("rules", "subjects") if part in wanted)


def renewal(wanted: Json) -> Callable[[Json], Json]:
    """Return the change that brings a stored default role or binding up to date."""

    def change(obj: Json) -> Json:
        parts = ("aggregationRule",) if "aggregationRule" in wanted else ("rules", "subjects")
        return {**obj, **{part: wanted[part] for part in parts if part in wanted}}

    return change


def namespaces() -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
