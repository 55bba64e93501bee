"""Names that the parts of an import share."""

from typing import Final

from anyvisor.kube.resources import Resource

GROUP: Final = "cdi.kubevirt.io"
DATA_VOLUMES: Final = Resource(GROUP, "v1beta1", "datavolumes", namespaced=True, kind="DataVolume")
IMPORT_SOURCES: Final = Resource(GROUP, "v1beta1", "volumeimportsources", namespaced=True, kind="VolumeImportSource")
CLONE_SOURCES: Final = Resource(GROUP, "v1beta1", "volumeclonesources", namespaced=True, kind="VolumeCloneSource")

CLAIM_KIND: Final = "PersistentVolumeClaim"
PREALLOCATION: Final = "cdi.kubevirt.io/storage.preallocation"
PROGRESS: Final = "cdi.kubevirt.io/storage.populator.progress"
"""Annotation of a claim that is filled without a DataVolume."""
EXPLICIT_BIND: Final = "cdi.kubevirt.io/storage.bind.immediate.requested"
