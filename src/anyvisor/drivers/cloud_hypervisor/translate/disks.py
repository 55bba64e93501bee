"""Disks: virtio-blk on raw and qcow2 images, their format always stated, alone or as an overlay on one other image.

Cloud Hypervisor opens a disk by path only. At the start that is the VMM's own descriptor; while it runs, a name below
its working directory at which the agent has placed the file.
"""

from collections.abc import Callable
from typing import Final

from anyvisor.drivers.cloud_hypervisor.translate.overlays import Overlay
from anyvisor.hri.kit.drafts import Draft, Json
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
        "backing_files": len(disk.volume.layers) > 1,
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
    elif not 1 <= len(layers) <= 2:
        draft.refuse(
            "LIMIT_EXCEEDED",
            f"{path}.volume.layers",
            "an overlay lies on one image that names no other",
            have="2",
            want=str(len(layers)),
        )
    elif len(layers) == 2 and not _is_overlay(layers[0], layers[1]):
        draft.refuse(
            "VALUE_INVALID",
            f"{path}.volume.layers",
            "an overlay is a writable qcow2 file on a read-only image whose format is recorded",
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


def _is_overlay(top: VolumeHandle.Layer, base: VolumeHandle.Layer) -> bool:
    writable = not top.read_only and not top.block_device
    return top.format == VolumeHandle.Layer.FORMAT_QCOW2 and writable and base.read_only and base.format in FORMATS


def overlay_of(disk: Disk, opened: Callable[[str], str]) -> Overlay | None:
    """What the header of the disk's overlay must name; None for a disk of one layer."""
    layers = disk.volume.layers
    if len(layers) != 2:
        return None
    top, base = layers
    return Overlay(disk.id, top.handle, base.handle, opened(base.handle), FORMATS[base.format].lower())
