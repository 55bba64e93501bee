"""What an update or deletion may do to an object that exists: its preconditions, and what it must leave alone."""

from typing import Any

from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.calls import Call
from anyvisor.embedded.apiserver.entries import Entry
from anyvisor.embedded.apiserver.incoming import check_identity
from anyvisor.embedded.apiserver.objectmeta import restore_metadata
from anyvisor.embedded.apiserver.params import DeleteOptions
from anyvisor.embedded.apiserver.status import invalid_value
from anyvisor.embedded.apiserver.values import same

Json = dict[str, Any]


def check_version(call: Call, entry: Entry, new: Json, *, replace: bool) -> bool:
    """Check the optimistic lock; returns whether this is a PUT that states a version, which is not tried again."""
    resource = call.resource
    check_identity(call, new)
    metadata: Json = new["metadata"]
    stated = metadata.get("resourceVersion")
    if not stated and replace and (resource.custom or resource.strategy.needs_version):
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise st.invalid(resource.group, resource.plural, call.name, [cause])
    uid = metadata.get("uid")
    if uid and uid != entry.uid and not replace:
        cause = invalid_value("metadata.uid", uid, "field is immutable")
        raise st.invalid(resource.group, resource.kind, call.name, [cause])
    if uid and uid != entry.uid:
        raise st.conflict(
            resource.group,
            resource.plural,
            call.name,
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {entry.uid}",
        )
    if stated and stated != str(entry.rv):
        raise st.modified(resource.group, resource.plural, call.name)
    return bool(stated) and replace


def check_preconditions(call: Call, entry: Entry, options: DeleteOptions) -> None:
    """Refuse a deletion of another version, or another object of that name, than its options say."""
    resource = call.resource
    for what, wanted, have, guess in (
        ("UID", options.uid, entry.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(entry.rv), "modified"),
    ):
        if wanted and wanted != have:
            why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({have})"
            raise st.conflict(resource.group, resource.kind, call.name, f"{why}. The object might have been {guess}")


def keep_untouchable(call: Call, old: Json, new: Json) -> Json:
    """Keep what this kind of write must not touch: status or all but status, and the server's metadata."""
    resource = call.resource
    if call.subresource == "status":
        kept: Json = dict(old)
        if "status" in new:
            kept["status"] = new["status"]
        else:
            kept.pop("status", None)
        metadata = dict(old["metadata"]) if resource.custom else new["metadata"]
        if "managedFields" in new["metadata"]:
            metadata["managedFields"] = new["metadata"]["managedFields"]
        kept["metadata"] = metadata
        new = kept
    elif resource.has_status and not call.subresource:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
    restore_metadata(old["metadata"], new["metadata"])
    return new


def count_generation(call: Call, old: Json, new: Json) -> None:
    """Count a change of what the kind counts as its desired state."""
    resource = call.resource
    if not resource.keeps_generation or call.subresource == "status":
        return
    apart = {"metadata", "status"} if resource.has_status else {"metadata"}
    before = {key: value for key, value in old.items() if key not in apart}
    after = {key: value for key, value in new.items() if key not in apart}
    if not same(before, after):
        new["metadata"]["generation"] = int(old["metadata"].get("generation") or 0) + 1
