"""One custom resource definition from one kind of the table."""

from anyvisor.api.kinds import Column, Kind, Version
from anyvisor.api.meta import Json
from anyvisor.api.schema import root_schema


def definition(kind: Kind) -> Json:
    """The `CustomResourceDefinition` of a kind."""
    names: Json = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    if kind.categories:
        names["categories"] = list(kind.categories)
    metadata: Json = {"name": kind.definition}
    if kind.labels:
        metadata["labels"] = dict(kind.labels)
    schema = root_schema(kind.model)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "conversion": {"strategy": "None"},
            "versions": [_version(kind, version, schema) for version in kind.versions],
        },
    }


def _version(kind: Kind, version: Version, schema: Json) -> Json:
    result: Json = {"name": version.name, "served": True, "storage": version.storage}
    if version.deprecated:
        result["deprecated"] = True
        current = next((each for each in kind.versions if not each.deprecated), None)
        advice = f"; use {kind.group}/{current.name}" if current else ""
        result["deprecationWarning"] = f"{kind.group}/{version.name} {kind.name} is deprecated{advice}"
    if kind.columns:
        result["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    subresources: Json = {}
    if kind.status:
        subresources["status"] = {}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": kind.scale.spec,
            "statusReplicasPath": kind.scale.status,
            "labelSelectorPath": kind.scale.selector,
        }
    if subresources:
        result["subresources"] = subresources
    result["schema"] = {"openAPIV3Schema": schema}
    return result


def _column(column: Column) -> Json:
    result: Json = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        result["priority"] = column.priority
    return result
