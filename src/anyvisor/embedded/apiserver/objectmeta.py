"""The rules of `metadata`: names, labels, what belongs to the server."""

import os
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.status import Cause, forbidden_field, invalid_value
from anyvisor.embedded.apiserver.values import as_object

Json = dict[str, Any]

UID_BYTES = 16
MAX_ANNOTATIONS = 256 << 10
MAX_LABEL_KEY = 253 + 1 + 63
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


def check_metadata(resource: Resource, metadata: Json, old: Json | None) -> list[Cause]:
    """Check names, labels, finalizers and owners."""
    causes: list[Cause] = []
    name = str(metadata.get("name", ""))
    if old is None:
        causes.extend(_check_name(resource, name))
    causes.extend(_check_labels(metadata.get("labels") or {}))
    total = sum(len(key) + len(value) for key, value in as_object(metadata.get("annotations")).items())
    if total > MAX_ANNOTATIONS:
        causes.append(Cause("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes"))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        causes.extend(
            invalid_value(f"metadata.ownerReferences[{index}].{part}", "", f"{part} must not be empty")
            for part in ("apiVersion", "kind", "name", "uid")
            if not owner.get(part)
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
    if len(name) > 253:
        return [invalid_value("metadata.name", name, "must be no more than 253 characters")]
    if resource.plural in ("namespaces", "services") and not resource.group and (len(name) > 63 or "." in name):
        return [invalid_value("metadata.name", name, "must be no more than 63 characters and must not contain dots")]
    if not _SUBDOMAIN.fullmatch(name):
        return [invalid_value("metadata.name", name, _SUBDOMAIN_TEXT)]
    return []


_QUALIFIED = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _check_labels(labels: Json) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        if len(key) > MAX_LABEL_KEY or not _QUALIFIED.fullmatch(key):
            causes.append(
                invalid_value(
                    "metadata.labels", key, "a label key is an optional DNS prefix and a name of at most 63 characters"
                )
            )
        if not _LABEL_VALUE.fullmatch(value):
            causes.append(
                invalid_value(
                    "metadata.labels",
                    value,
                    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
                    "and must start and end with an alphanumeric character, and have at most 63 characters",
                )
            )
    return causes
