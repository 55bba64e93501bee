"""Discovery documents, plain and aggregated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anyvisor.embedded.apiserver.config import AggregatedResource
from anyvisor.embedded.apiserver.resource import Resource

Json = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True, slots=True)
class Subresource:
    """One entry of discovery below a resource."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


_ACTION_VERBS = {"log": ("get",), "finalize": ("update",)}


def subresources(resource: Resource) -> list[Subresource]:
    """Return what discovery lists below a resource."""
    found: list[Subresource] = []
    if resource.has_status:
        found.append(Subresource("status", resource.group, resource.version, resource.kind, ("get", "patch", "update")))
    if resource.scale is not None:
        found.append(Subresource("scale", "autoscaling", "v1", "Scale", ("get", "patch", "update")))
    for name, group, version, kind in resource.actions:
        found.append(Subresource(name, group, version, kind, _ACTION_VERBS.get(name, ("create",))))
    return sorted(found, key=lambda item: item.name)


def version_order(version: str) -> tuple[int, int, int]:
    """Sort key that puts Kubernetes' preferred versions first: v2, v1, v1beta2, v1alpha1."""
    body = version.removeprefix("v")
    for level, word in ((1, "beta"), (2, "alpha")):
        major, found, minor = body.partition(word)
        if found and major.isdigit() and minor.isdigit():
            return (level, -int(major), -int(minor))
    return (0, -int(body), 0) if body.isdigit() else (3, 0, 0)


def groups(resources: Iterable[Resource]) -> dict[str, list[str]]:
    """Return the versions of each group, preferred first; the core group is the empty name."""
    found: dict[str, set[str]] = {}
    for resource in resources:
        found.setdefault(resource.group, set()).add(resource.version)
    return {group: sorted(versions, key=version_order) for group, versions in sorted(found.items())}


def aggregated(resources: Sequence[Resource], *, core: bool) -> Json:
    """Return the APIGroupDiscoveryList of `/api` (core) or `/apis`."""
    items: list[Json] = []
    for group, versions in groups(resources).items():
        if (group == "") != core:
            continue
        metadata: Json = {"creationTimestamp": None}
        if group:
            metadata["name"] = group
        items.append(
            {
                "metadata": metadata,
                "versions": [
                    {
                        "version": version,
                        "freshness": "Current",
                        "resources": [
                            _aggregated_resource(resource) for resource in _sorted(resources, group, version)
                        ],
                    }
                    for version in versions
                ],
            }
        )
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _sorted(resources: Sequence[Resource], group: str, version: str) -> list[Resource]:
    found = [item for item in resources if item.group == group and item.version == version]
    return sorted(found, key=lambda item: item.plural)


def _aggregated_resource(resource: Resource) -> Json:
    result: Json = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        result["shortNames"] = list(resource.short_names)
    if resource.categories:
        result["categories"] = list(resource.categories)
    below = subresources(resource)
    if below:
        result["subresources"] = [
            {
                "subresource": item.name,
                "responseKind": {"group": item.group, "version": item.version, "kind": item.kind},
                "verbs": list(item.verbs),
            }
            for item in below
        ]
    return result


def resource_list(resources: Sequence[Resource], group: str, version: str) -> Json | None:
    """Return the APIResourceList of one group version; None when it is not served."""
    found = _sorted(resources, group, version)
    if not found:
        return None
    entries: list[Json] = []
    for resource in found:
        entry: Json = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        entries.extend(_plain_subresource(resource, item) for item in subresources(resource))
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def _plain_subresource(resource: Resource, item: Subresource) -> Json:
    entry: Json = {
        "name": f"{resource.plural}/{item.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": item.kind,
        "verbs": list(item.verbs),
    }
    if (item.group, item.version) != (resource.group, resource.version):
        entry["group"], entry["version"] = item.group, item.version
    return entry


def api_group(group: str, versions: Sequence[str]) -> Json:
    """Return one APIGroup."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def group_list(resources: Iterable[Resource]) -> Json:
    """Return the APIGroupList of `/apis`."""
    found = [api_group(group, versions) for group, versions in groups(resources).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def single_group(resources: Iterable[Resource], group: str) -> Json | None:
    """Return the APIGroup of `/apis/GROUP`; None when it is not served."""
    versions = groups(resources).get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **api_group(group, versions)}


def core_versions() -> Json:
    """Return the APIVersions of `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


@dataclass(frozen=True, slots=True)
class Route:
    """A group version that somebody else answers, and what it serves."""

    group: str
    version: str
    resources: tuple[AggregatedResource, ...]


def aggregated_items(routes: Iterable[Route]) -> list[Json]:
    """Return the aggregated discovery of groups that others answer."""
    items: dict[str, Json] = {}
    for route in routes:
        item = items.setdefault(route.group, {"metadata": {"name": route.group, "creationTimestamp": None}})
        versions = item.setdefault("versions", [])
        versions.append({"version": route.version, "freshness": "Current", "resources": _aggregated_tops(route)})
    return list(items.values())


def _aggregated_tops(route: Route) -> list[Json]:
    tops: dict[str, Json] = {}
    for item in route.resources:
        name, _, below = item.name.partition("/")
        kind = {"group": item.group, "version": item.version, "kind": item.kind}
        entry = tops.setdefault(
            name,
            {
                "resource": name,
                "responseKind": {"group": "", "version": "", "kind": ""},
                "scope": "Namespaced" if item.namespaced else "Cluster",
                "singularResource": item.singular,
                "verbs": [],
            },
        )
        if below:
            entry.setdefault("subresources", []).append(
                {"subresource": below, "responseKind": kind, "verbs": list(item.verbs)}
            )
        else:
            entry["responseKind"], entry["verbs"] = kind, list(item.verbs)
    return list(tops.values())


def aggregated_groups(routes: Iterable[Route]) -> list[Json]:
    """Return the APIGroups that others answer; the first version of a group is preferred."""
    versions: dict[str, list[str]] = {}
    for route in routes:
        versions.setdefault(route.group, []).append(route.version)
    return [api_group(group, found) for group, found in versions.items()]


def aggregated_group(routes: Iterable[Route], group: str) -> Json | None:
    """Return the APIGroup of a group that others answer; None when nobody does."""
    found = next((each for each in aggregated_groups(routes) if each["name"] == group), None)
    return {"kind": "APIGroup", "apiVersion": "v1", **found} if found is not None else None


def aggregated_resource_list(route: Route) -> Json:
    """Return the APIResourceList of a group version that somebody else answers."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{route.group}/{route.version}",
        "resources": [
            {
                "name": item.name,
                "singularName": item.singular,
                "namespaced": item.namespaced,
                "kind": item.kind,
                "verbs": list(item.verbs),
            }
            for item in route.resources
        ],
    }
