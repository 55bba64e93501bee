"""The objects that a new server starts with: namespaces and the default roles."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
MANAGED = {"kubernetes.io/bootstrapping": "rbac-defaults"}

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


def default_roles() -> list[Json]:
    """Return Kubernetes' user-facing roles, as far as their resources are served here."""
    aggregate = f"{RBAC.removesuffix('authorization.k8s.io')}authorization.k8s.io/aggregate-to-"
    return [
        cluster_role("cluster-admin", [rule("*", "*", "*"), {"nonResourceURLs": ["*"], "verbs": ["*"]}]),
        cluster_binding("cluster-admin", "cluster-admin", groups=["system:masters"]),
        cluster_role("system:discovery", [{"nonResourceURLs": _DISCOVERY, "verbs": ["get"]}]),
        cluster_binding("system:discovery", "system:discovery", groups=["system:authenticated"]),
        cluster_role(
            "system:basic-user",
            [
                rule("authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews", "create"),
                rule("authentication.k8s.io", "selfsubjectreviews", "create"),
            ],
        ),
        cluster_binding("system:basic-user", "system:basic-user", groups=["system:authenticated"]),
        cluster_role("view", [rule("core", _VIEWED, READ)], {f"{aggregate}edit": "true"}, f"{aggregate}view"),
        cluster_role(
            "edit",
            [
                rule("core", _VIEWED + ",secrets", READ),
                rule("core", _EDITED, WRITE),
                rule("core", "pods/eviction", "create"),
            ],
            {f"{aggregate}admin": "true"},
            f"{aggregate}edit",
        ),
        cluster_role(
            "admin",
            [
                rule("core", _VIEWED + ",secrets", READ),
                rule("core", _EDITED, WRITE),
                rule("core", "pods/eviction,serviceaccounts/token", "create"),
                rule(RBAC, "roles,rolebindings", f"{READ},{WRITE}"),
                rule("authorization.k8s.io", "localsubjectaccessreviews", "create"),
            ],
            aggregates=f"{aggregate}admin",
        ),
    ]


def namespaces() -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
