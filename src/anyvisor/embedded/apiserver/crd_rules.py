"""What a CustomResourceDefinition must look like, and the status that the server gives it."""

from collections.abc import Sequence
from typing import Any, cast

import jsonschema_rs

from anyvisor.embedded.apiserver import validation
from anyvisor.embedded.apiserver.jsonpath import JsonPathError, compile_path
from anyvisor.embedded.apiserver.rules import check_rules
from anyvisor.embedded.apiserver.status import Cause, invalid_value, required
from anyvisor.embedded.apiserver.values import as_object, lookup

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
    if old is not None and spec.get("scope") != lookup(old, ("spec", "scope")):
        causes.append(invalid_value("spec.scope", spec.get("scope"), "field is immutable"))
    return causes


def _check_version(version: Json, path: str) -> list[Cause]:
    schema = lookup(version, ("schema", "openAPIV3Schema"))
    if not isinstance(schema, dict):
        return [required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    causes = _structural(cast("Json", schema), f"{path}.schema.openAPIV3Schema", root=True)
    causes.extend(check_rules(cast("Json", schema), f"{path}.schema.openAPIV3Schema"))
    try:
        if not causes:
            validation.fast_check(cast("Json", schema))
    except (jsonschema_rs.ValidationError, ValueError) as error:
        causes.append(invalid_value(f"{path}.schema.openAPIV3Schema", "", str(error).splitlines()[0]))
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            compile_path(str(column.get("jsonPath", "")))
        except JsonPathError as error:
            where = f"{path}.additionalPrinterColumns[{index}].jsonPath"
            causes.append(invalid_value(where, column.get("jsonPath"), str(error)))
    return causes


def _structural(schema: Json, path: str, *, root: bool = False) -> list[Cause]:
    causes: list[Cause] = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if root and schema.get("type") != "object":
        causes.append(invalid_value(f"{path}.type", schema.get("type", ""), "must be object at the root"))
    elif not schema.get("type") and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    for name, child in as_object(schema.get("properties")).items():
        causes.extend(_structural(child, f"{path}.properties[{name}]"))
    for name in ("items", "additionalProperties"):
        child = schema.get(name)
        if isinstance(child, dict):
            causes.extend(_structural(cast("Json", child), f"{path}.{name}"))
    return causes


def accepted_status(crd: Json, now: str) -> Json:
    """Return the status of a CRD whose names are accepted and which is served."""
    spec: Json = crd["spec"]
    storage = next(item["name"] for item in spec["versions"] if item.get("storage"))
    before: Json = crd.get("status") or {}
    versions = list(before.get("storedVersions") or ())
    if storage not in versions:
        versions.append(storage)
    return {
        "acceptedNames": spec["names"],
        "storedVersions": versions,
        "conditions": [
            _condition(before, "NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition(before, "Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ],
    }


def _condition(before: Json, kind: str, reason: str, message: str, now: str) -> Json:
    for item in before.get("conditions") or ():
        if item.get("type") == kind and item.get("status") == "True":
            return item
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
