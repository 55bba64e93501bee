"""Owner references and finalizers: pure functions on objects, giving patches."""

from anyvisor.api.meta import Json
from anyvisor.kube.objects import CachedObject, Metadata, OwnerReference


def controller_of(meta: Metadata) -> OwnerReference | None:
    """Return the one owner that manages the object, if any."""
    return next((owner for owner in meta.owner_references if owner.controller), None)


def controller_uid(obj: CachedObject) -> tuple[str, ...]:
    """An index function: objects by the uid of their managing owner."""
    owner = controller_of(obj.meta)
    return (owner.uid,) if owner is not None else ()


def add_finalizer(obj: CachedObject, finalizer: str) -> Json | None:
    """Return the merge patch that adds `finalizer`, or None where it is not needed or too late."""
    if finalizer in obj.meta.finalizers or obj.meta.deletion_timestamp is not None:
        return None
    return _finalizers(obj, [*obj.meta.finalizers, finalizer])


def remove_finalizer(obj: CachedObject, finalizer: str) -> Json | None:
    """Return the merge patch that takes `finalizer` away, or None if it is not there."""
    if finalizer not in obj.meta.finalizers:
        return None
    return _finalizers(obj, [name for name in obj.meta.finalizers if name != finalizer])


def _finalizers(obj: CachedObject, wanted: list[str]) -> Json:
    """Replace the whole list; with the resourceVersion in it, a patch of a changed object is a Conflict."""
    return {"metadata": {"resourceVersion": obj.meta.resource_version, "finalizers": wanted}}
