"""CustomResourceDefinitions as served resources."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.builtin_types import is_metadata
from anyvisor.embedded.apiserver.callout import Callout
from anyvisor.embedded.apiserver.columns import AGE, NAME
from anyvisor.embedded.apiserver.compiled import compiled
from anyvisor.embedded.apiserver.conversion import Converter
from anyvisor.embedded.apiserver.discovery import version_order
from anyvisor.embedded.apiserver.jsonpath import compile_path
from anyvisor.embedded.apiserver.resource import Column, Resource, Scale
from anyvisor.embedded.apiserver.values import lookup

Json = dict[str, Any]


def resources(crd: Json, callout: Callout | None = None) -> list[Resource]:
    """Return a descriptor for each served version of a valid CRD; `callout` reaches its conversion webhook."""
    spec: Json = crd["spec"]
    storage = next(item["name"] for item in spec["versions"] if item.get("storage"))
    converter = None
    if callout is not None and lookup(spec, ("conversion", "strategy")) == "Webhook":
        converter = Converter(callout, spec["names"]["kind"], object_at(spec, "conversion", "webhook", "clientConfig"))
    leaving = "deletionTimestamp" in crd["metadata"]
    return [
        replace(_resource(spec, version, storage, converter), terminating=leaving)
        for version in spec["versions"]
        if version.get("served")
    ]


def _resource(spec: Json, version: Json, storage: str, converter: Converter | None) -> Resource:
    names, group = spec["names"], spec["group"]
    schema: Json = lookup(version, ("schema", "openAPIV3Schema")) or {}
    made = compiled(schema)
    subresources: Json = version.get("subresources") or {}
    return Resource(
        group,
        version["name"],
        names["kind"],
        names["plural"],
        spec["scope"] == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        store=f"{group}/{names['plural']}",
        stored_version=f"{group}/{storage}",
        schema_of=made.node,
        openapi=made.public,
        columns=_columns(version.get("additionalPrinterColumns")),
        has_status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        selectable={
            path.lstrip("."): tuple(path.lstrip(".").split("."))
            for item in version.get("selectableFields") or ()
            if (path := item.get("jsonPath", ""))
        },
        custom=True,
        check=made.check,
        has_types=is_metadata,
        warning=_deprecation(version, spec),
        converter=converter,
    )


def _deprecation(version: Json, spec: Json) -> str:
    if not version.get("deprecated"):
        return ""
    group, kind = spec["group"], spec["names"]["kind"]
    text = version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"
    newer = [item["name"] for item in spec["versions"] if item.get("served") and not item.get("deprecated")]
    if newer and not version.get("deprecationWarning"):
        text += f"; use {group}/{min(newer, key=version_order)} {kind}"
    return text


def _scale(scale: Json | None) -> Scale | None:
    if not scale:
        return None

    def path(name: str) -> tuple[str, ...]:
        return tuple(str(scale.get(name, "")).strip(".").split(".")) if scale.get(name) else ()

    return Scale(path("specReplicasPath"), path("statusReplicasPath"), path("labelSelectorPath"))


def _columns(columns: Sequence[Json] | None) -> tuple[Column, ...]:
    if not columns:
        return (NAME, AGE)
    return (NAME, *(_column(item) for item in columns))


def _column(item: Json) -> Column:
    run = compile_path(item["jsonPath"])
    kind = item.get("type", "string")

    def read(obj: Json) -> Any:
        found = run(obj)
        if not found:
            return None
        if kind == "string" and (len(found) > 1 or found[0] is not None):
            return ",".join(_cell(value) for value in found) if len(found) > 1 else _cell(found[0])
        return found[0]

    return Column(
        item["name"], read, kind, item.get("format", ""), item.get("priority", 0), item.get("description", "")
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return "" if value is None else str(value)
