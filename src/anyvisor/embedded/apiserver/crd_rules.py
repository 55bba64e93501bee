"""What a CustomResourceDefinition must look like, and the status that the server gives it."""

from collections.abc import Sequence
from typing import Any, cast

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.compiled import compiled
from anyvisor.embedded.apiserver.jsonpath import JsonPathError, compile_path
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.status import Cause, invalid_value, required
from anyvisor.embedded.apiserver.values import as_list, lookup, objects_at

Json = dict[str, Any]

GROUP = "apiextensions.k8s.io"
PLURAL = "customresourcedefinitions"
STORE = f"{GROUP}/{PLURAL}"
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def set_defaults(crd: Json) -> None:
    """Fill in what a CRD may leave out, in place."""
    spec: Json = crd.setdefault("spec", {})
    names: Json = spec.setdefault("names", {})
    kind = str(names.get("kind", ""))
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})


def check(crd: Json, old: Json | None) -> list[Cause]:
    """Return the mistakes of a CRD, before anything is compiled from it."""
    spec: Json = crd.get("spec") or {}
    names: Json = spec.get("names") or {}
    group, plural = spec.get("group", ""), names.get("plural", "")
    causes: list[Cause] = [
        required(path)
        for path, value in (
            ("spec.group", group),
            ("spec.scope", spec.get("scope")),
            ("spec.names.plural", plural),
            ("spec.names.kind", names.get("kind")),
            ("spec.versions", spec.get("versions")),
        )
        if not value
    ]
    name = lookup(crd, ("metadata", "name"))
    if not causes and name != f"{plural}.{group}":
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    versions: Sequence[Json] = spec.get("versions") or ()
    if versions and sum(bool(item.get("storage")) for item in versions) != 1:
        causes.append(invalid_value("spec.versions", "", "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        causes.extend(_check_version(version, f"spec.versions[{index}]"))
    causes.extend(_check_conversion(object_at(spec, "conversion")))
    names_of_versions = [item.get("name") for item in versions]
    stored = as_list(lookup(old, ("status", "storedVersions")))
    causes.extend(
        invalid_value(f"status.storedVersions[{index}]", name, "missing from spec.versions; objects are stored in it")
        for index, name in enumerate(stored)
        if name not in names_of_versions
    )
    if old is not None and spec.get("scope") != lookup(old, ("spec", "scope")):
        causes.append(invalid_value("spec.scope", spec.get("scope"), "field is immutable"))
    return causes


def _check_conversion(conversion: Json) -> list[Cause]:
    if conversion.get("strategy") != "Webhook":
        return []
    webhook = object_at(conversion, "webhook")
    config = object_at(webhook, "clientConfig")
    causes: list[Cause] = []
    if not config.get("url") and not config.get("service"):
        causes.append(required("spec.conversion.webhook.clientConfig", "exactly one of url or service is required"))
    if "v1" not in as_list(webhook.get("conversionReviewVersions")):
        where = "spec.conversion.webhook.conversionReviewVersions"
        causes.append(invalid_value(where, "", "must include v1"))
    return causes


def _check_version(version: Json, path: str) -> list[Cause]:
    schema = lookup(version, ("schema", "openAPIV3Schema"))
    if not isinstance(schema, dict):
        return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    mistakes = compiled(cast("Json", schema)).mistakes()
    causes = [Cause(f"{path}.{cause.field}", cause.reason, cause.message) for cause in mistakes]
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            compile_path(str(column.get("jsonPath", "")))
        except JsonPathError as error:
            where = f"{path}.additionalPrinterColumns[{index}].jsonPath"
            causes.append(invalid_value(where, column.get("jsonPath"), str(error)))
    return causes


def conflicts(crd: Json, served: Sequence[Resource]) -> list[Cause]:
    """Return which names of a CRD other resources of its group have."""
    names, group = crd["spec"]["names"], crd["spec"]["group"]
    others = [item for item in served if item.group == group and item.plural != names["plural"]]
    taken: dict[str, set[str]] = {
        "plural": {item.singular for item in others},
        "singular": {name for item in others for name in (item.plural, item.singular)},
        "kind": {name for item in others for name in (item.kind, item.list_kind)},
        "listKind": {name for item in others for name in (item.kind, item.list_kind)},
    }
    found = [
        Cause(f"spec.names.{part}", f"{part[0].upper()}{part[1:]}Conflict", f'"{names[part]}" is already in use')
        for part, used in taken.items()
        if names.get(part) in used
    ]
    short = {name for item in others for name in item.short_names} & set(names.get("shortNames") or ())
    return [*found, *(Cause("spec.names.shortNames", "ShortNamesConflict", f'"{n}" is already in use') for n in short)]


def status_of(crd: Json, clashes: Sequence[Cause], now: str) -> Json:
    """Return the status of a CRD: served, unless its names belong to others."""
    spec: Json = crd["spec"]
    storage = next(item["name"] for item in spec["versions"] if item.get("storage"))
    before: Json = crd.get("status") or {}
    versions = list(before.get("storedVersions") or ())
    if storage not in versions:
        versions.append(storage)
    if clashes:
        accepted = ("False", clashes[0].reason, "; ".join(cause.message for cause in clashes))
        established = ("False", "NotAccepted", "not all names are accepted")
    else:
        accepted = ("True", "NoConflicts", "no conflicts found")
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    kept = [item for item in objects_at(before, "conditions") if item.get("type") == "Terminating"]
    return {
        "acceptedNames": spec["names"] if not clashes else {"plural": "", "kind": ""},
        "storedVersions": versions,
        "conditions": [
            _condition(before, "NamesAccepted", accepted, now),
            _condition(before, "Established", established, now),
            *kept,
        ],
    }


def mark_terminating(crd: Json, now: str) -> bool:
    """Say in the status, in place, that the objects of a CRD are being deleted; returns whether that is new."""
    verdict = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
    status: Json = crd.setdefault("status", {})
    conditions: list[Json] = status.setdefault("conditions", [])
    condition = _condition(status, "Terminating", verdict, now)
    if condition in conditions:
        return False
    status["conditions"] = [*(item for item in conditions if item.get("type") != "Terminating"), condition]
    return True


def is_established(crd: Json) -> bool:
    """Say whether the resources of a CRD may be served."""
    conditions = objects_at(crd, "status", "conditions")
    return any(item.get("type") == "Established" and item.get("status") == "True" for item in conditions)


def _condition(before: Json, kind: str, verdict: tuple[str, str, str], now: str) -> Json:
    status, reason, message = verdict
    for item in objects_at(before, "conditions"):
        if item.get("type") == kind and item.get("status") == status:
            return item
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
