"""The claim of a DataVolume. Pure."""

from typing import Any, Final

from anyvisor.api.meta import Json, annotations, controller_reference, labels, name, namespace, object_at
from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.embedded.imports.kinds import PREALLOCATION
from anyvisor.embedded.imports.sources import FromClaim, Source, SourceError

_KINDS: Final = ("pvc", "storage")
_APP: Final = {"app": "containerized-data-importer", "app.kubernetes.io/managed-by": "anyvisor"}


def asked(spec: Json) -> tuple[str, Json]:
    """The field that describes the claim, and what it says. Raises SourceError."""
    given = [kind for kind in _KINDS if spec.get(kind) is not None]
    if len(given) != 1:
        told = "has both pvc and storage; keep one" if given else "says nothing about its claim; add storage"
        raise SourceError("spec", told)
    return given[0], object_at(spec, given[0])


def check(spec: Json, source: Source | None) -> None:
    """Whether a claim can be made of it. Raises SourceError."""
    kind, claim = asked(spec)
    sourced = any(claim.get(field) is not None for field in ("dataSource", "dataSourceRef"))
    if sourced and source is not None:
        raise SourceError("spec.source", f"is given, and a data source in {kind}, too; keep one")
    if not sourced and source is None:
        raise SourceError("spec.source", "is missing; name one, such as registry, http, pvc or blank")
    at = f"spec.{kind}.resources.requests.storage"
    size = object_at(claim, "resources", "requests").get("storage")
    if size is None:
        if isinstance(source, FromClaim) and kind == "storage":
            return
        raise SourceError(at, "is missing; say how large the disk is to be, such as 10Gi")
    try:
        value = parse_quantity(size).value
    except QuantityError as error:
        raise SourceError(at, f"is no size: {error}") from error
    if value <= 0:
        raise SourceError(at, f"is {size}; a disk has a size above 0")


def claim_of(volume: Json, default_size: Any) -> Json:
    """The claim to make; `default_size` counts where the DataVolume says none."""
    spec = object_at(volume, "spec")
    _, wanted = asked(spec)
    claim: Json = {key: value for key, value in wanted.items() if value is not None}
    claim.setdefault("accessModes", ["ReadWriteOnce"])
    if object_at(claim, "resources", "requests").get("storage") is None:
        resources = object_at(claim, "resources")
        claim["resources"] = {**resources, "requests": {**object_at(resources, "requests"), "storage": default_size}}
    noted = dict(annotations(volume))
    noted.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    if spec.get("preallocation") is True:
        noted[PREALLOCATION] = "true"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name(volume),
            "namespace": namespace(volume),
            "labels": {**labels(volume), **_APP},
            "annotations": noted,
            "ownerReferences": [controller_reference(volume)],
        },
        "spec": claim,
    }
