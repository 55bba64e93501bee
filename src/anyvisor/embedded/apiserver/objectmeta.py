"""The rules of `metadata`: names, labels, what belongs to the server."""

import os
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.status import Cause, forbidden_field, invalid_value, required
from anyvisor.embedded.apiserver.values import as_object

Json = dict[str, Any]

UID_BYTES = 16
MAX_ANNOTATIONS = 256 << 10
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def now_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_entropy = bytearray()


def new_uid() -> str:
    """Return a random UUID; randomness is fetched for many at once, since the system call is slow on some hosts."""
    if len(_entropy) < UID_BYTES:
        _entropy.extend(os.urandom(UID_BYTES * 256))
    raw = bytes(_entropy[-UID_BYTES:])
    del _entropy[-UID_BYTES:]
    return str(uuid.UUID(bytes=raw, version=4))


SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                 "resourceVersion", "name", "namespace", "generateName")  # fmt: skip


def restore_metadata(old: Json, new: Json) -> None:
    """Put back, in place, what a writer cannot change."""
    new.pop("selfLink", None)
    for name in SERVER_OWNED:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


_FREE_FINALIZERS = ("apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io",
                    "coordination.k8s.io")  # fmt: skip
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_PLAIN_FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"


def finalizer_warnings(metadata: Json, old: Json) -> list[str]:
    """Return what is said, of custom resources, about new finalizers that belong to no domain."""
    why = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    known = {*_STANDARD_FINALIZERS, *(old.get("finalizers") or ())}
    plain = [name for name in metadata.get("finalizers") or () if "/" not in name and name not in known]
    return [f'metadata.finalizers: "{name}": {why}' for name in plain]


def check_metadata(resource: Resource, metadata: Json, old: Json | None) -> list[Cause]:
    """Check names, labels, finalizers and owners."""
    causes: list[Cause] = []
    name = str(metadata.get("name", ""))
    if old is None:
        causes.extend(_check_name(resource, name))
    causes.extend(_check_labels(metadata.get("labels") or {}))
    for key in as_object(metadata.get("annotations")):
        causes.extend(_check_key("metadata.annotations", key.lower()))
    total = sum(len(key) + len(value) for key, value in as_object(metadata.get("annotations")).items())
    if total > MAX_ANNOTATIONS:
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes"))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        causes.extend(
            required(f"metadata.ownerReferences[{index}].{part}", "must not be empty")
            for part in ("apiVersion", "kind", "name", "uid")
            if not owner.get(part)
        )
    if not resource.custom and resource.group not in _FREE_FINALIZERS:
        causes.extend(
            invalid_value(f"metadata.finalizers[{index}]", name, _PLAIN_FINALIZER)
            for index, name in enumerate(metadata.get("finalizers") or ())
            if "/" not in name and name not in _STANDARD_FINALIZERS
        )
    if old is not None and "deletionTimestamp" in old:
        added = set(metadata.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if added:
            causes.append(
                forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers {sorted(added)}",
                )
            )
    return causes


def _check_name(resource: Resource, name: str) -> list[Cause]:
    if resource.strategy.path_segment_names:
        if name in (".", "..") or "/" in name or "%" in name:
            return [invalid_value("metadata.name", name, "may not be '.' or '..' and may not contain '/' or '%'")]
        return []
    if len(name) > 253 and resource.plural != "services":
        return [invalid_value("metadata.name", name, "must be no more than 253 characters")]
    if resource.plural == "services" and not resource.group:
        return []  # its own rules say more
    if resource.plural == "namespaces" and not resource.group and (len(name) > 63 or "." in name):
        return [invalid_value("metadata.name", name, "must be no more than 63 characters and must not contain dots")]
    if not _SUBDOMAIN.fullmatch(name):
        return [invalid_value("metadata.name", name, _SUBDOMAIN_TEXT)]
    return []


_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
MAX_NAME_PART = 63
MAX_PREFIX = 253


def _check_key(path: str, key: str) -> list[Cause]:
    """Check a qualified name: an optional DNS prefix and a name."""
    prefix, slash, name = key.rpartition("/")
    texts: list[str] = []
    if "/" in prefix:
        texts.append(f"a valid label key {_NAME_TEXT} with an optional DNS subdomain prefix and '/'")
        return [invalid_value(path, key, text) for text in texts]
    if slash and not prefix:
        texts.append("prefix part must be non-empty")
    elif slash and len(prefix) > MAX_PREFIX:
        texts.append("prefix part must be no more than 253 bytes")
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        texts.append(f"prefix part {_SUBDOMAIN_TEXT}")
    if not name:
        texts.append("name part must be non-empty")
    elif len(name) > MAX_NAME_PART:
        texts.append("name part must be no more than 63 bytes")
    if not _NAME_PART.fullmatch(name):
        texts.append(f"name part {_NAME_TEXT}")
    return [invalid_value(path, key, text) for text in texts]


def _check_labels(labels: Json) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        causes.extend(_check_key("metadata.labels", key))
        if len(value) > MAX_NAME_PART:
            causes.append(invalid_value("metadata.labels", value, "must be no more than 63 bytes"))
        if not _LABEL_VALUE.fullmatch(value):
            causes.append(invalid_value("metadata.labels", value, _LABEL_VALUE_TEXT))
    return causes
