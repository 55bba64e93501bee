"""The built-in kinds, as rows of one table."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anyvisor.embedded.apiserver import events
from anyvisor.embedded.apiserver.builtin_types import has_types, kind_node, table_name
from anyvisor.embedded.apiserver.columns import COLUMNS
from anyvisor.embedded.apiserver.resource import ALL_VERBS, Resource, Strategy
from anyvisor.embedded.apiserver.strategies import STRATEGIES

Json = dict[str, Any]
Action = tuple[str, str, str, str]

_RBAC = "rbac.authorization.k8s.io"
_POD_ACTIONS: tuple[Action, ...] = (
    ("binding", "", "v1", "Binding"),
    ("eviction", "policy", "v1", "Eviction"),
    ("log", "", "v1", "Pod"),
)
_NAMES: Sequence[tuple[str, str, str, str, bool, str, str]] = (
    # group, version, kind, plural, namespaced, short names, flags
    ("", "v1", "Namespace", "namespaces", False, "ns", "status"),
    ("", "v1", "Node", "nodes", False, "no", "status"),
    ("", "v1", "PersistentVolume", "persistentvolumes", False, "pv", "status"),
    ("", "v1", "Pod", "pods", True, "po", "status all generation"),
    ("", "v1", "Secret", "secrets", True, "", ""),
    ("", "v1", "ConfigMap", "configmaps", True, "cm", ""),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, "pvc", "status"),
    ("", "v1", "Service", "services", True, "svc", "status all"),
    ("", "v1", "Endpoints", "endpoints", True, "ep", ""),
    ("", "v1", "ServiceAccount", "serviceaccounts", True, "sa", ""),
    ("", "v1", "Event", "events", True, "ev", ""),
    ("", "v1", "ResourceQuota", "resourcequotas", True, "quota", "status"),
    ("", "v1", "LimitRange", "limitranges", True, "limits", ""),
    ("events.k8s.io", "v1", "Event", "events", True, "ev", ""),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", True, "", ""),
    ("coordination.k8s.io", "v1", "Lease", "leases", True, "", ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True, "", "generation"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, "pdb", "status generation"),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, "sc", ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, "", "status"),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", False, "", ""),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, "", ""),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, "pc", "generation"),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, "", ""),
    (_RBAC, "v1", "Role", "roles", True, "", ""),
    (_RBAC, "v1", "RoleBinding", "rolebindings", True, "", ""),
    (_RBAC, "v1", "ClusterRole", "clusterroles", False, "", ""),
    (_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False, "", ""),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration",
     "validatingwebhookconfigurations", False, "", "generation"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration",
     "mutatingwebhookconfigurations", False, "", "generation"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
     False, "crd crds", "status generation"),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", False, "", "status"),
)  # fmt: skip

_ACTIONS: Mapping[str, tuple[Action, ...]] = {
    "pods": _POD_ACTIONS,
    "serviceaccounts": (("token", "authentication.k8s.io", "v1", "TokenRequest"),),
    "namespaces": (("finalize", "", "v1", "Namespace"),),
}
_SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}

_ZERO: Mapping[str, Json] = {
    "pods": {"metadata": {}, "spec": {"containers": []}, "status": {}},
    "persistentvolumeclaims": {"metadata": {}, "spec": {"resources": {}}, "status": {}},
    "rolebindings": {"metadata": {}, "roleRef": {}},
    "clusterrolebindings": {"metadata": {}, "roleRef": {}},
    "events": {"metadata": {}, "involvedObject": {}, "source": {}},
    "customresourcedefinitions": {"metadata": {}, "spec": {"names": {}}, "status": {}},
}
"""Where the original's structures hold more by value than metadata, spec and status."""

CREATE_ONLY: Sequence[tuple[str, str, str, str, bool]] = (
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", False),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", False),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", False),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", True),
)
"""Kinds that are asked, not stored."""


def built_in() -> list[Resource]:
    """Return a descriptor for every stored built-in kind."""
    return [_resource(*row) for row in _NAMES]


def reviews() -> list[Resource]:
    """Return a descriptor for every kind that is answered and not stored."""
    return [
        Resource(
            group,
            version,
            kind,
            plural,
            namespaced,
            singular=kind.lower(),
            list_kind=f"{kind}List",
            verbs=("create",),
            stored_version=f"{group}/{version}",
            schema_of=partial(kind_node, table_name(group, version, kind)),
        )
        for group, version, kind, plural, namespaced in CREATE_ONLY
    ]


def _resource(group: str, version: str, kind: str, plural: str, namespaced: bool, short: str, flags: str) -> Resource:
    api_version = f"{group}/{version}" if group else version
    is_new_event = group == "events.k8s.io"
    to_stored: Callable[[Json], Json] | None = events.to_core if is_new_event else None
    from_stored: Callable[[Json], Json] | None = events.from_core if is_new_event else None
    words = flags.split()
    return Resource(
        group,
        version,
        kind,
        plural,
        namespaced,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        short_names=tuple(short.split()),
        categories=("all",) if "all" in words else (),
        verbs=ALL_VERBS,
        store="events" if is_new_event else (f"{group}/{plural}" if group else plural),
        stored_version="v1" if is_new_event else api_version,
        schema_of=partial(kind_node, table_name(group, version, kind)),
        has_types=partial(has_types, table_name(group, version, kind)),
        columns=COLUMNS.get(plural, COLUMNS[""]),
        has_status="status" in words,
        actions=_ACTIONS.get(plural, ()),
        strategy=STRATEGIES.get(plural, Strategy()),
        selectable={name: tuple(name.split(".")) for name in _SELECTABLE.get(plural, ())},
        zero=_ZERO.get(plural, {"metadata": {}, "spec": {}, "status": {}}),
        keeps_generation="generation" in words,
        to_stored=to_stored,
        from_stored=from_stored,
    )
