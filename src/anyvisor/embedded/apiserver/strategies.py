"""Defaults and rules of the built-in kinds that need some of their own."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver import crd_rules, service_rules
from anyvisor.embedded.apiserver.conditions import check_webhooks
from anyvisor.embedded.apiserver.resource import Strategy
from anyvisor.embedded.apiserver.status import Cause, forbidden_field, invalid_value, required
from anyvisor.embedded.apiserver.values import as_object, as_objects, lookup

Json = dict[str, Any]

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"
MAX_DATA_BYTES = 1 << 20


IMMUTABLE = "field is immutable"


def _namespace_defaults(obj: Json) -> None:
    metadata: Json = obj["metadata"]
    if "name" in metadata:
        metadata.setdefault("labels", {})[NAMESPACE_LABEL] = metadata["name"]


def _namespace(obj: Json, old: Json | None) -> None:
    if old is None:
        obj["spec"] = {"finalizers": [NAMESPACE_FINALIZER]}
        obj["status"] = {"phase": "Active"}
    else:
        obj["spec"] = old.get("spec", {})


_CONTAINER_DEFAULTS = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def _pod_defaults(obj: Json) -> None:
    spec: Json = obj.setdefault("spec", {})
    for name, value in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("terminationGracePeriodSeconds", 30),
    ):
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    for container in [*as_objects(spec.get("containers")), *as_objects(spec.get("initContainers"))]:
        for name, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(name, value)
        container.setdefault("resources", {})
        image = str(container.get("image", ""))
        latest = image.endswith(":latest") or ":" not in image.rsplit("/", 1)[-1]
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")


def _pod(obj: Json, old: Json | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending", "qosClass": _qos(obj["spec"])}


def _qos(spec: Json) -> str:
    requests = limits = 0
    guaranteed = True
    for container in as_objects(spec.get("containers")):
        wants, caps = object_at(container, "resources", "requests"), object_at(container, "resources", "limits")
        requests += len(wants)
        limits += len(caps)
        for name in ("cpu", "memory"):
            if name not in caps or wants.get(name, caps[name]) != caps[name]:
                guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


_POD_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds")


def _check_pod(obj: Json, old: Json | None) -> list[Cause]:
    spec: Json = obj["spec"]
    if old is not None:
        return _check_pod_update(spec, old["spec"])
    causes: list[Cause] = []
    containers = spec.get("containers") or ()
    if not containers:
        causes.append(required("spec.containers"))
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where = f"spec.containers[{index}]"
        name = container.get("name")
        if not name:
            causes.append(required(f"{where}.name"))
        elif name in seen:
            causes.append(Cause(f"{where}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        seen.add(name)
        if not container.get("image"):
            causes.append(required(f"{where}.image"))
    return causes


def _check_pod_update(spec: Json, old: Json) -> list[Cause]:
    def fixed(value: Json) -> Json:
        kept = {name: item for name, item in value.items() if name not in _POD_MUTABLE}
        for part in ("containers", "initContainers"):
            if part in kept:
                kept[part] = [{k: v for k, v in item.items() if k != "image"} for item in kept[part]]
        return kept

    if fixed(spec) == fixed(old):
        return []
    allowed = "`spec.containers[*].image`, `spec.initContainers[*].image`, " + ", ".join(
        f"`spec.{name}`" for name in _POD_MUTABLE
    )
    return [forbidden_field("spec", f"pod updates may not change fields other than {allowed}")]


def _secret_defaults(obj: Json) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        data: Json = obj.setdefault("data", {})
        for name, value in plain.items():
            data[name] = base64.b64encode(str(value).encode()).decode()


def _check_data(obj: Json, old: Json | None) -> list[Cause]:
    causes: list[Cause] = []
    size = 0
    for part in ("data", "binaryData"):
        for name, value in as_object(obj.get(part)).items():
            size += len(value)
            if not _is_config_key(name):
                causes.append(
                    invalid_value(
                        f"{part}[{name}]",
                        name,
                        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                    )
                )
    if size > MAX_DATA_BYTES * 4 // 3:
        causes.append(Cause("", "FieldValueTooLong", f"Too long: may not be more than {MAX_DATA_BYTES} bytes"))
    if old is not None and old.get("immutable"):
        causes.extend(
            forbidden_field(part, "field is immutable when `immutable` is set")
            for part in ("data", "binaryData")
            if obj.get(part) != old.get(part)
        )
    return causes


def _is_config_key(name: str) -> bool:
    return 0 < len(name) <= 253 and name not in (".", "..") and all(c.isalnum() or c in "-_." for c in name)


def _check_secret(obj: Json, old: Json | None) -> list[Cause]:
    causes = _check_data(obj, old)
    for name, value in as_object(obj.get("data")).items():
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            causes.append(invalid_value(f"data[{name}]", "", "the value is not valid base64"))
    if old is not None and obj.get("type") != old.get("type"):
        causes.append(invalid_value("type", obj.get("type"), IMMUTABLE))
    return causes


def _volume_defaults(obj: Json) -> None:
    spec: Json = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")


def _pending(obj: Json, old: Json | None) -> None:
    if old is None:
        obj["status"] = {"phase": "Pending"}


def _claim_defaults(obj: Json) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _check_claim(obj: Json, old: Json | None) -> list[Cause]:
    spec: Json = obj["spec"]
    if old is None:
        causes: list[Cause] = []
        if not spec.get("accessModes"):
            causes.append(required("spec.accessModes", "at least 1 access mode is required"))
        if lookup(spec, ("resources", "requests", "storage")) is None:
            causes.append(required("spec.resources[storage]"))
        return causes
    before: Json = old["spec"]
    free = {"resources", "volumeName", "volumeAttributesClassName"}
    if before.get("storageClassName") is None:
        free.add("storageClassName")  # given by the default class, also later (KEP-3333)
    if {k: v for k, v in spec.items() if k not in free} != {k: v for k, v in before.items() if k not in free}:
        return [
            forbidden_field(
                "spec",
                "spec is immutable after creation except resources.requests and volumeAttributesClassName "
                "for bound claims",
            )
        ]
    return []


def _storage_class_defaults(obj: Json) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _binding_defaults(obj: Json) -> None:
    role: Json = obj.setdefault("roleRef", {})
    role.setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", "rbac.authorization.k8s.io")


def _check_binding(obj: Json, old: Json | None) -> list[Cause]:
    role: Json = obj["roleRef"]
    causes: list[Cause] = []
    if role.get("kind") not in ("Role", "ClusterRole"):
        causes.append(
            Cause(
                "roleRef.kind",
                "FieldValueNotSupported",
                f'Unsupported value: "{role.get("kind", "")}": supported values: "ClusterRole", "Role"',
            )
        )
    if not role.get("name"):
        causes.append(required("roleRef.name"))
    if old is not None and role != old.get("roleRef"):
        causes.append(invalid_value("roleRef", str(role), "cannot change roleRef"))
    return causes


def _check_role(obj: Json, _old: Json | None) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        if not rule.get("verbs"):
            causes.append(required(f"rules[{index}].verbs"))
        if not rule.get("nonResourceURLs") and not rule.get("resources"):
            causes.append(required(f"rules[{index}].resources", "resource rules must supply at least one resource"))
    return causes


def _check_lease(obj: Json, _old: Json | None) -> list[Cause]:
    spec = as_object(obj.get("spec"))
    causes: list[Cause] = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def _definition(obj: Json, old: Json | None) -> None:
    if old is None:
        finalizers: list[str] = obj["metadata"].setdefault("finalizers", [])
        if crd_rules.CLEANUP_FINALIZER not in finalizers:
            finalizers.append(crd_rules.CLEANUP_FINALIZER)


def _priority_class_defaults(obj: Json) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


STRATEGIES: Mapping[str, Strategy] = {
    "validatingwebhookconfigurations": Strategy(validate=check_webhooks, needs_version=True),
    "mutatingwebhookconfigurations": Strategy(validate=check_webhooks, needs_version=True),
    "customresourcedefinitions": Strategy(crd_rules.set_defaults, _definition, crd_rules.check, needs_version=True),
    "namespaces": Strategy(_namespace_defaults, _namespace),
    "pods": Strategy(_pod_defaults, _pod, _check_pod, graceful=True, returns_deleted=True),
    "secrets": Strategy(_secret_defaults, validate=_check_secret),
    "configmaps": Strategy(validate=_check_data),
    "persistentvolumes": Strategy(_volume_defaults, _pending, returns_deleted=True),
    "persistentvolumeclaims": Strategy(_claim_defaults, _pending, _check_claim, returns_deleted=True),
    "storageclasses": Strategy(_storage_class_defaults, returns_deleted=True),
    "services": Strategy(
        service_rules.defaults,
        service_rules.prepare,
        service_rules.check,
        creates_on_update=True,
        returns_deleted=True,
    ),
    "apiservices": Strategy(needs_version=True),
    "poddisruptionbudgets": Strategy(needs_version=True),
    "runtimeclasses": Strategy(needs_version=True),
    "endpoints": Strategy(creates_on_update=True),
    "events": Strategy(creates_on_update=True),
    "limitranges": Strategy(creates_on_update=True),
    "serviceaccounts": Strategy(returns_deleted=True),
    "resourcequotas": Strategy(returns_deleted=True),
    "csinodes": Strategy(returns_deleted=True),
    "csidrivers": Strategy(returns_deleted=True),
    "volumeattachments": Strategy(returns_deleted=True),
    "leases": Strategy(validate=_check_lease, needs_version=True, creates_on_update=True),
    "priorityclasses": Strategy(_priority_class_defaults),
    "roles": Strategy(validate=_check_role, creates_on_update=True, path_segment_names=True),
    "clusterroles": Strategy(validate=_check_role, creates_on_update=True, path_segment_names=True),
    "rolebindings": Strategy(
        _binding_defaults, validate=_check_binding, creates_on_update=True, path_segment_names=True
    ),
    "clusterrolebindings": Strategy(
        _binding_defaults, validate=_check_binding, creates_on_update=True, path_segment_names=True
    ),
}
