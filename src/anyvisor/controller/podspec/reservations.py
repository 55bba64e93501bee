"""SCSI persistent reservations: a disk that several machines reserve is attached once to each node.

Two machines of one node share its initiator, so a storage would take them for one holder of the reservation. Pods whose
machines reserve the same claim therefore name the claim in a label, by which they keep away from each other.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, uid
from anyvisor.controller.vm.data_volumes import claim_name

LABEL_PREFIX: Final = "pr.kubevirt.io/"
HOST: Final = "kubernetes.io/hostname"


def is_asked_for(vmi: Json) -> bool:
    """Whether a disk of the guest may be reserved by it."""
    return any(True for _ in _reserving(vmi))


def labels(vmi: Json, claims: Mapping[str, Json]) -> dict[str, str]:
    """A label for each claim that the guest may reserve."""
    volumes = {one.get("name"): one for one in list_at(vmi, "spec", "volumes")}
    named = [claim_name(volumes[disk]) for disk in _reserving(vmi) if disk in volumes]
    return {LABEL_PREFIX + uid(claims[claim]): "" for claim in named if claim in claims}


def keep_away(affinity: Json, own: Mapping[str, str]) -> None:
    """Add to an affinity that no pod with one of these labels may be on the same node."""
    terms = [
        {"labelSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]}, "topologyKey": HOST}
        for label in own
    ]
    if terms:
        anti = affinity.setdefault("podAntiAffinity", {})
        required = list_at(anti, "requiredDuringSchedulingIgnoredDuringExecution")
        anti["requiredDuringSchedulingIgnoredDuringExecution"] = [*required, *terms]


def _reserving(vmi: Json) -> Iterator[str]:
    for disk in list_at(vmi, "spec", "domain", "devices", "disks"):
        if object_at(disk, "lun").get("reservation") is True:
            yield disk.get("name", "")
