"""From what a client sent to an object that the server may keep: identity, name, schema, defaults, validation."""

import random
from typing import Any

from anyvisor.embedded.apiserver import schema as schemas
from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver import typed
from anyvisor.embedded.apiserver.builtin_types import object_meta
from anyvisor.embedded.apiserver.calls import Call
from anyvisor.embedded.apiserver.objectmeta import check_metadata, finalizer_warnings
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.rules import broken_rules
from anyvisor.embedded.apiserver.schema import UNSET
from anyvisor.embedded.apiserver.status import Cause, StatusError
from anyvisor.embedded.apiserver.validation import find_causes, special_causes
from anyvisor.embedded.apiserver.values import as_object, lookup

Json = dict[str, Any]

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
MAX_GENERATED_BASE = 58


_BLOCK_RULES = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)
UNCHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
"""Told beside mistakes after which rules in CEL could fail for want of a value, in the original's words."""


def check_identity(call: Call, obj: Json) -> None:
    """Fill in type and namespace, and refuse those that differ from what the request says."""
    resource = call.resource
    for name, words, value in (("apiVersion", "API version", resource.api_version), ("kind", "kind", resource.kind)):
        given = obj.setdefault(name, value)
        if given != value and call.patch and resource.custom and name == "kind" and isinstance(given, str):
            raise st.invalid(resource.group, given, call.name, [st.invalid_value("kind", given, f"must be {value}")])
        if given != value:
            raise st.bad_request(f"the {words} in the data ({given}) does not match the expected {words} ({value})")
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise st.bad_request("metadata must be an object")
    if resource.namespaced:
        given = obj["metadata"].setdefault("namespace", call.namespace) or call.namespace
        if given != call.namespace:
            raise st.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        obj["metadata"]["namespace"] = call.namespace
    else:
        obj["metadata"].pop("namespace", None)
    given = obj["metadata"].get("name")
    if call.name and given and given != call.name:
        raise st.bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.name})")


def name_new(call: Call, metadata: Json) -> None:
    """Give a new object its name, made up from `generateName` where it has none."""
    name = metadata.get("name") or call.name
    base = metadata.get("generateName")
    if not name and base:
        suffix = "".join(random.choices(SUFFIX_LETTERS, k=5))  # noqa: S311 - a name, not a secret
        name = f"{str(base)[:MAX_GENERATED_BASE]}{suffix}"
    if not name:
        cause = Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
        raise st.invalid(call.resource.group, call.resource.kind, "", [cause])
    call.name = metadata["name"] = name


def normalize(call: Call, obj: Json) -> Json:
    """Prune and default in place, and report unknown fields as the request wants it."""
    resource = call.resource
    unknown: list[str] | None = [] if call.options.field_validation != "Ignore" else None
    schemas.prune(resource.schema, obj, "", unknown)
    if unknown:
        if call.options.field_validation == "Strict":
            text = ", ".join(f'unknown field "{path}"' for path in unknown)
            if call.patch:
                cause = st.invalid_value("patch", call.patch, f"strict decoding error: {text}")
                raise st.invalid("", "", "", [cause])
            raise st.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a '
                f"{resource.kind}: strict decoding error: {text}"
            )
        call.warnings.extend(f'unknown field "{path}"' for path in unknown)
    return complete(call, obj)


def check_partial(call: Call, config: Json) -> None:
    """Refuse an applied configuration that cannot be merged, with the 500 that the original gives."""
    mistakes = list(typed.mistakes(call.resource.schema, config))
    if mistakes:
        text = mistakes[0] if len(mistakes) == 1 else "\n".join(["errors:", *(f"  {item}" for item in mistakes)])
        resource, metadata = call.resource, as_object(config.get("metadata"))
        kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
        where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        raise StatusError(500, "", f"failed to create typed patch object ({where}; {kind}): {text}")


def drop_empty(resource: Resource, obj: Json) -> None:
    """Remove, in place, what the original's typed structures do not write: nulls, empty maps and lists."""
    if not resource.custom:
        schemas.prune(resource.schema, obj)
        for name in [name for name, value in obj.items() if value in ({}, []) and name not in _SHOWN_EMPTY]:
            del obj[name]
    metadata: Json = obj["metadata"]
    for name in [name for name, value in metadata.items() if value in ({}, [], None) and name != "managedFields"]:
        del metadata[name]


_SHOWN_EMPTY = frozenset({"metadata", "spec", "status", "rules", "endpoints", "roleRef", "involvedObject"})


def complete(call: Call, obj: Json) -> Json:
    """Set the defaults of an object that is known to hold only known fields, and check its types."""
    drop_empty(call.resource, obj)
    schemas.set_defaults(call.resource.schema, obj)
    _check_types(call, obj)
    return obj


def _check_types(call: Call, obj: Json) -> None:
    """Refuse values of a wrong type where the original decodes into typed structures."""
    resource = call.resource
    target: Any = obj["metadata"] if resource.custom else obj
    if resource.has_types is None or resource.has_types(target):
        return
    node = object_meta() if resource.custom else resource.schema
    for cause in find_causes(node, target, "metadata" if resource.custom else ""):
        if cause.reason == "FieldValueTypeInvalid" and resource.custom and call.patch:
            mistake = cause.message.removeprefix("Invalid value: ")
            raise st.invalid("", "", "", [st.invalid_value("patch", call.patch, mistake)])
        if cause.reason == "FieldValueTypeInvalid":
            raise st.bad_request(
                f'{call.resource.kind} in version "{call.resource.version}" cannot be handled as a '
                f"{call.resource.kind}: {cause.message.removeprefix('Invalid value: ')}"
            )


def validate(call: Call, obj: Json, old: Json | None) -> None:
    """Refuse an object that breaks its schema, its rules or those of its kind. Raises a 422 Status."""
    resource = call.resource
    causes = check_metadata(resource, obj["metadata"], old["metadata"] if old is not None else None)
    if resource.check is not None:
        wrong = special_causes if resource.check(obj) else find_causes
        mistakes = wrong(resource.schema, obj)
        causes.extend(mistakes)
        if resource.schema.ruled:
            blocked = any(cause.reason in _BLOCK_RULES for cause in mistakes)
            rules = [UNCHECKED] if blocked else broken_rules(resource.schema, obj, old if old is not None else UNSET)
            causes.extend(rules)
    if not call.subresource:
        causes.extend(resource.strategy.validate(obj, old))
    if resource.scale is not None and resource.custom:
        causes[:0] = _scale_causes(obj, resource.scale.spec_replicas)
    if causes:
        raise st.invalid(resource.group, resource.kind, call.name, causes)
    if resource.custom:
        call.warnings.extend(finalizer_warnings(obj["metadata"], old["metadata"] if old is not None else {}))


def _scale_causes(obj: Json, path: tuple[str, ...]) -> list[Cause]:
    replicas = lookup(obj, path)
    if isinstance(replicas, int) and replicas < 0:
        return [st.invalid_value("." + ".".join(path), replicas, "should be a non-negative integer")]
    return []
