"""OpenAPI v3 documents, one for each group version, made from the registry when they are asked for."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

from anyvisor.embedded.apiserver.builtin_types import table_name
from anyvisor.embedded.apiserver.codec import encode_json
from anyvisor.embedded.apiserver.discovery import subresources
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.typetable import REF, closure, messages, openapi_name, openapi_schema

Json = dict[str, Any]

PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_ACTIONS = {"get": "get", "post": "post", "put": "put", "patch": "patch", "delete": "delete"}


def _parameter(name: str, kind: str, where: str = "query") -> Json:
    parameter: Json = {"name": name, "in": where, "schema": {"type": kind, "uniqueItems": True}}
    if where == "path":
        parameter["required"] = True
    return parameter


_WRITE = [_parameter(name, "string") for name in ("dryRun", "fieldManager", "fieldValidation")]
_LIST = [
    _parameter("allowWatchBookmarks", "boolean"),
    _parameter("continue", "string"),
    _parameter("fieldSelector", "string"),
    _parameter("labelSelector", "string"),
    _parameter("limit", "integer"),
    _parameter("resourceVersion", "string"),
    _parameter("resourceVersionMatch", "string"),
    _parameter("sendInitialEvents", "boolean"),
    _parameter("timeoutSeconds", "integer"),
    _parameter("watch", "boolean"),
]


def definition_name(resource: Resource) -> str:
    """Return the name of a kind's definition; custom groups are reversed as Kubernetes does."""
    if not resource.custom:
        return openapi_name(table_name(resource.group, resource.version, resource.kind))
    reverse = ".".join(reversed(resource.group.split(".")))
    return f"{reverse}.{resource.version}.{resource.kind}"


def group_path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def document(resources: Sequence[Resource], group: str, version: str) -> Json | None:
    """Return the OpenAPI document of one group version; None when it is not served."""
    served = [item for item in resources if item.group == group and item.version == version]
    if not served:
        return None
    schemas: Json = {}
    paths: Json = {}
    needed = {"meta.v1.ObjectMeta", "meta.v1.DeleteOptions", "meta.v1.Status", "meta.v1.ListMeta"}
    for resource in served:
        name = definition_name(resource)
        if resource.custom:
            schema = dict(resource.openapi())
            schema["properties"] = {
                **schema.get("properties", {}),
                "metadata": {"allOf": [{"$ref": REF + openapi_name("meta.v1.ObjectMeta")}]},
            }
        else:
            table = table_name(resource.group, resource.version, resource.kind)
            schema = openapi_schema(table, kind=True)
            needed.update(set(closure(table)) - {table})
        schemas[name] = {**schema, "x-kubernetes-group-version-kind": [_gvk(resource)]}
        if "list" in resource.verbs:
            schemas[f"{name}List"] = _list_schema(resource, name)
        _add_paths(paths, resource, name)
    for message in {item for root in needed for item in closure(root)}:
        if not messages()[message].unwrapped:
            schemas.setdefault(openapi_name(message), openapi_schema(message))
    options = schemas[openapi_name("meta.v1.DeleteOptions")]
    options["x-kubernetes-group-version-kind"] = [{"group": group, "version": version, "kind": "DeleteOptions"}]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Anyvisor", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _gvk(resource: Resource) -> Json:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _list_schema(resource: Resource, name: str) -> Json:
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": REF + openapi_name("meta.v1.ListMeta")}]},
            "items": {"type": "array", "items": {"allOf": [{"$ref": REF + name}]}},
        },
        "x-kubernetes-group-version-kind": [{**_gvk(resource), "kind": resource.list_kind}],
    }


def _operation(
    resource: Resource, action: str, name: str, parameters: Sequence[Json], *, body: bool, suffix: str = ""
) -> Json:
    content = {"application/json": {"schema": {"$ref": REF + name}}}
    operation: Json = {
        "operationId": f"{action}{resource.version.capitalize()}{resource.kind}{suffix}",
        "parameters": list(parameters),
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    if action == "patch":
        kinds = [kind for kind in PATCH_TYPES if not (resource.custom and "strategic" in kind)]
        operation["requestBody"] = {"content": {kind: {"schema": {"type": "object"}} for kind in kinds}}
    elif body:
        operation["requestBody"] = {"content": {"application/json": {"schema": {"$ref": REF + name}}}}
    return operation


def _add_paths(paths: Json, resource: Resource, name: str) -> None:
    root = "/" + group_path(resource.group, resource.version)
    base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    common = [_parameter("namespace", "string", "path")] if resource.namespaced else []
    many: Json = {"parameters": common}
    if "create" in resource.verbs:
        many["post"] = _operation(resource, "post", name, _WRITE, body=True)
    if "list" in resource.verbs:
        many["get"] = _operation(resource, "list", f"{name}List", _LIST, body=False)
        many["delete"] = _operation(resource, "deletecollection", name, _LIST, body=False)
    paths[base] = many
    if "get" not in resource.verbs:
        return
    item = [_parameter("name", "string", "path"), *common]
    force = [*_WRITE, _parameter("force", "boolean")]
    paths[f"{base}/{{name}}"] = {
        "parameters": item,
        "get": _operation(resource, "get", name, (), body=False),
        "put": _operation(resource, "put", name, _WRITE, body=True),
        "patch": _operation(resource, "patch", name, force, body=True),
        "delete": _operation(resource, "delete", name, _WRITE, body=True),
    }
    for below in subresources(resource):
        if below.name in ("status", "scale"):
            suffix = below.name.capitalize()
            paths[f"{base}/{{name}}/{below.name}"] = {
                "parameters": item,
                "get": _operation(resource, "get", name, (), body=False, suffix=suffix),
                "put": _operation(resource, "put", name, _WRITE, body=True, suffix=suffix),
                "patch": _operation(resource, "patch", name, force, body=True, suffix=suffix),
            }


class Documents:
    """The documents of the current registry, encoded once."""

    def __init__(self) -> None:
        self._generation = -1
        self._nonce = secrets.token_hex(8)
        self._encoded: dict[tuple[str, str], tuple[bytes, str]] = {}

    def get(self, resources: Sequence[Resource], generation: int, group: str, version: str) -> tuple[bytes, str] | None:
        """Return the bytes of a document and their hash."""
        if generation != self._generation:
            self._generation = generation
            self._encoded.clear()
        found = self._encoded.get((group, version))
        if found is None:
            made = document(resources, group, version)
            if made is None:
                return None
            raw = encode_json(made)
            found = self._encoded[(group, version)] = (raw, hashlib.sha256(raw).hexdigest())
        return found

    def index(self, resources: Sequence[Resource], generation: int) -> Json:
        """Return the index of `/openapi/v3`; its hashes name this process and its registry's generation."""
        paths: Json = {}
        for group, version in sorted({(item.group, item.version) for item in resources}):
            path = group_path(group, version)
            seed = f"{path} {generation} {self._nonce}"
            digest = hashlib.sha256(seed.encode()).hexdigest()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}
