"""What deletion means for one object: finalizers, grace, and when it is really gone."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.params import DeleteOptions
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.values import as_list

Json = dict[str, Any]

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


def mark_deleted(resource: Resource, obj: Json, options: DeleteOptions) -> bool:
    """Mark an object for deletion, in place; returns whether that changed anything."""
    metadata: Json = obj["metadata"]
    before = copy.deepcopy(metadata)
    present: list[str] = as_list(metadata.get("finalizers"))
    finalizers = [name for name in present if name not in (FOREGROUND, ORPHAN)]
    if options.propagation == "Foreground" or (not options.propagation and FOREGROUND in present):
        finalizers.append(FOREGROUND)
    elif options.propagation == "Orphan" or (not options.propagation and ORPHAN in present):
        finalizers.append(ORPHAN)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace(resource, obj, options)
    if "deletionTimestamp" not in metadata:
        stamp = datetime.now(UTC) + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            metadata["generation"] += 1
    elif grace < int(metadata.get("deletionGracePeriodSeconds") or 0):
        stamp = datetime.now(UTC) + timedelta(seconds=grace)
        metadata["deletionTimestamp"] = stamp.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace
    if resource.plural == "namespaces" and not resource.group:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return metadata != before


def _grace(resource: Resource, obj: Json, options: DeleteOptions) -> int:
    if not resource.strategy.graceful:
        return 0
    spec: Json = obj.get("spec") or {}
    if not spec.get("nodeName") or object_at(obj, "status").get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace is not None:
        return options.grace
    stated = spec.get("terminationGracePeriodSeconds")
    return int(stated) if isinstance(stated, int) and stated >= 0 else 30


def is_finished(obj: Json) -> bool:
    """Say whether nothing holds a deleted object any more."""
    metadata: Json = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if int(metadata.get("deletionGracePeriodSeconds") or 0) > 0:
        return False
    is_namespace = obj.get("kind") == "Namespace" and obj.get("apiVersion") == "v1"
    return not (is_namespace and object_at(obj, "spec").get("finalizers"))
