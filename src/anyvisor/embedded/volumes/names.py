"""Names that provisioner and claim source share."""

from typing import Any

PROVISIONER = "anyvisor.io/local"
STORAGE_CLASS = "local"
IN_USE = "kubernetes.io/pvc-protection"
DISK = "disk.img"


def storage_class() -> dict[str, Any]:
    """The class that claims get which name none."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": False,
    }


def volume_name(claim_uid: str) -> str:
    """The volume of a claim: the same name in every attempt, so that none is made twice."""
    return f"pvc-{claim_uid}"
