"""Disks: virtio-blk on raw and qcow2 images, each of one layer, its format always stated.

Cloud Hypervisor opens a disk by path only. At the start that is the VMM's own descriptor; while it runs, a name below
its working directory at which the agent has placed the file.
"""

from collections.abc import Callable
from typing import Final

from anyvisor.drivers.cloud_hypervisor.translate.draft import Draft, Json
from anyvisor.hri.v1.machine_spec_pb2 import Disk, VolumeHandle

FORMATS: Final = {VolumeHandle.Layer.FORMAT_RAW: "Raw", VolumeHandle.Layer.FORMAT_QCOW2: "Qcow2"}
SERIAL_BYTES: Final = 20
"""What virtio-blk has room for."""


def disk_config(
    draft: Draft, disk: Disk, path: str, slot: int, vcpus: int, opened: Callable[[str], str]
) -> dict[str, Json] | None:
    """The DiskConfig, or None when the draft has refusals for it. `opened`: the path for a handle."""
    if not _check(draft, disk, path, vcpus):
        return None
    layer = disk.volume.layers[0]
    return {
        "id": disk.id,
        "path": opened(layer.handle),
        "image_type": FORMATS[layer.format],
        "readonly": disk.read_only or layer.read_only,
        "direct": layer.direct and disk.cache in (Disk.CACHE_UNSPECIFIED, Disk.CACHE_NONE),
        "num_queues": disk.queues or 1,
        "backing_files": False,
        "pci_segment": 0,
        "pci_device_id": slot,
        **({"serial": disk.serial} if disk.serial else {}),
    }


def _check(draft: Draft, disk: Disk, path: str, vcpus: int) -> bool:
    before = len(draft.refusals)
    if disk.kind == Disk.KIND_CDROM:
        draft.refuse("CAP_NO", f"{path}.kind", "there are no CD-ROM drives; use a read-only disk", have="disk")
    if disk.kind == Disk.KIND_LUN:
        draft.refuse("CAP_NO", f"{path}.kind", "passing a LUN through is not supported; use a disk", have="disk")
    if disk.bus not in (Disk.BUS_UNSPECIFIED, Disk.BUS_VIRTIO):
        bus = Disk.Bus.Name(disk.bus).removeprefix("BUS_").lower()
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.bus", f"there is no {bus} bus; use virtio", have="virtio", want=bus)
    if disk.cache == Disk.CACHE_WRITETHROUGH:
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.cache", "writethrough is not supported; use none or writeback")
    if disk.on_error not in (Disk.ON_ERROR_UNSPECIFIED, Disk.ON_ERROR_REPORT):
        draft.refuse(
            "VALUE_NOT_IN_SET", f"{path}.on_error", "I/O errors can only be reported to the guest", have="report"
        )
    if disk.queues > vcpus:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.queues", "a disk has at most one queue per vCPU", have=str(vcpus))
    if len(disk.serial.encode()) > SERIAL_BYTES:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.serial", f"a serial number has at most {SERIAL_BYTES} bytes")
    _check_volume(draft, disk, path)
    return len(draft.refusals) == before


def _check_volume(draft: Draft, disk: Disk, path: str) -> None:
    layers = disk.volume.layers
    if not disk.HasField("volume"):
        draft.refuse("FIELD_MISSING", f"{path}.volume", "only a CD-ROM drive can be empty; name a volume")
    elif len(layers) != 1:
        draft.refuse(
            "LIMIT_EXCEEDED",
            f"{path}.volume.layers",
            "an image with others below it cannot be given by descriptors; use a volume of one layer (a claim)",
            have="1",
            want=str(len(layers)),
        )
    elif layers[0].format not in FORMATS:
        draft.refuse("FIELD_MISSING", f"{path}.volume.layers[0].format", "the format must be recorded")
    elif disk.cache == Disk.CACHE_NONE and not layers[0].direct:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            f"{path}.cache",
            "the volume's file system cannot bypass the page cache (O_DIRECT); use writeback",
            have="page cache",
            want="none",
        )
