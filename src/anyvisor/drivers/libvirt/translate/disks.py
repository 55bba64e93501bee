"""Disks: a chain of layers, each a descriptor group, and the device in front of it."""

import string
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final

from anyvisor.drivers.libvirt.translate import addresses
from anyvisor.drivers.libvirt.translate.draft import Draft, element, pci
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.v1.machine_spec_pb2 import Disk, VolumeHandle

FORMATS: Final = {VolumeHandle.Layer.FORMAT_RAW: "raw", VolumeHandle.Layer.FORMAT_QCOW2: "qcow2"}
BUSES: Final = {
    Disk.BUS_UNSPECIFIED: "virtio",
    Disk.BUS_VIRTIO: "virtio",
    Disk.BUS_SATA: "sata",
    Disk.BUS_SCSI: "scsi",
}
ON_ERROR: Final = {
    Disk.ON_ERROR_UNSPECIFIED: ("stop", "stop"),
    Disk.ON_ERROR_STOP: ("stop", "stop"),
    Disk.ON_ERROR_REPORT: ("report", "report"),
    Disk.ON_ERROR_IGNORE: ("ignore", "ignore"),
    Disk.ON_ERROR_STOP_WHEN_FULL: ("enospace", "report"),
}
"""What a write and a read error do."""
CACHES: Final = {Disk.CACHE_NONE: "none", Disk.CACHE_WRITETHROUGH: "writethrough", Disk.CACHE_WRITEBACK: "writeback"}
ASYNC: Final = {Disk.IO_UNSPECIFIED: "", Disk.IO_THREADS: "threads", Disk.IO_NATIVE: "native"}
MAX_LAYERS: Final = 32
SATA_PORTS: Final = 6
SCSI_UNITS: Final = 255


def is_virtio(disk: Disk) -> bool:
    """Whether the disk is a PCI device of its own."""
    return BUSES.get(disk.bus) == "virtio"


def add_disks(draft: Draft, disks: Sequence[Disk], buses: Mapping[str, int], boot: Mapping[str, int]) -> None:
    """All disks of the machine. `buses`: bus of each virtio disk; `boot`: place in the boot order by device id."""
    if any(disk.bus == Disk.BUS_SCSI for disk in disks):
        controller = pci(0, addresses.SLOTS["scsi"])
        draft.device("controller", controller, type="scsi", index=0, model="virtio-non-transitional")
    taken = {"virtio": 0, "sata": 0, "scsi": 0}
    for index, disk in enumerate(disks):
        path = f"disks[{index}]"
        if not _check(draft, disk, path):
            continue
        bus = BUSES[disk.bus]
        position, taken[bus] = taken[bus], taken[bus] + 1
        if (bus == "sata" and position >= SATA_PORTS) or (bus == "scsi" and position >= SCSI_UNITS):
            draft.refuse("LIMIT_EXCEEDED", f"{path}.bus", f"no place is left on {bus}; use virtio for further disks")
            continue
        target = ("vd" if bus == "virtio" else "sd") + _letters(position + (SATA_PORTS if bus == "scsi" else 0))
        draft.hardware.append(_disk(draft, disk, bus, target, path, boot.get(disk.id), position, buses.get(disk.id, 0)))
        if bus == "virtio":
            draft.plug(disk.id, pci_ports.address(buses[disk.id]))


def _letters(number: int) -> str:
    """0 -> a, 25 -> z, 26 -> aa, as the kernel names disks."""
    tail = string.ascii_lowercase[number % 26]
    return tail if number < 26 else _letters(number // 26 - 1) + tail


def _check(draft: Draft, disk: Disk, path: str) -> bool:
    before = len(draft.refusals)
    if disk.kind == Disk.KIND_LUN:
        draft.refuse("CAP_NO", f"{path}.kind", "passing a LUN through is not supported; use a disk", have="lun")
    if disk.bus not in BUSES:
        draft.refuse("CAP_NO", f"{path}.bus", "disks on USB are not supported; use virtio, sata or scsi", have="usb")
    if disk.kind == Disk.KIND_CDROM and is_virtio(disk):
        draft.refuse("CAP_NO", f"{path}.bus", "there are no CD-ROM drives on virtio; use sata or scsi", have="virtio")
    if not disk.HasField("volume"):
        if disk.kind != Disk.KIND_CDROM:
            draft.refuse("FIELD_MISSING", f"{path}.volume", "only a CD-ROM drive can be empty; name a volume")
    elif not 1 <= len(disk.volume.layers) <= MAX_LAYERS:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.volume.layers", f"a volume has 1 to {MAX_LAYERS} layers")
    for number, layer in enumerate(disk.volume.layers):
        _check_layer(draft, layer, f"{path}.volume.layers[{number}]", last=number == len(disk.volume.layers) - 1)
    return len(draft.refusals) == before


def _check_layer(draft: Draft, layer: VolumeHandle.Layer, path: str, *, last: bool) -> None:
    if layer.format not in FORMATS:
        draft.refuse("FIELD_MISSING", f"{path}.format", "the format must be recorded")
    if layer.format == VolumeHandle.Layer.FORMAT_RAW and not last:
        draft.refuse("VALUE_INVALID", f"{path}.format", "a raw layer has none below it")
    if layer.block_device:
        draft.refuse("CAP_NO", f"{path}.block_device", "libvirt takes no block device as a descriptor; use a file")


def _disk(
    draft: Draft, disk: Disk, bus: str, target: str, path: str, boot: int | None, position: int, pci_bus: int
) -> ET.Element:
    cdrom = disk.kind == Disk.KIND_CDROM
    children = [_driver(draft, disk, path), *(_source(draft, disk.volume.layers) if disk.HasField("volume") else ())]
    children.append(element("target", dev=target, bus=bus))
    if disk.serial:
        children.append(element("serial", text=disk.serial))
    if disk.read_only or cdrom:
        children.append(element("readonly"))
    if disk.shareable:
        children.append(element("shareable"))
    if disk.block_size.logical or disk.block_size.physical:
        size = disk.block_size
        children.append(
            element("blockio", logical_block_size=size.logical or "", physical_block_size=size.physical or size.logical)
        )
    if boot is not None:
        children.append(element("boot", order=boot))
    if bus == "virtio":
        children.append(pci(pci_bus))
    else:
        children.append(element("address", type="drive", controller=0, bus=0, target=0, unit=position))
    model = "virtio-non-transitional" if bus == "virtio" else ""
    return element("disk", *children, type="file", device="cdrom" if cdrom else "disk", model=model)


def _driver(draft: Draft, disk: Disk, path: str) -> ET.Element:
    write_error, read_error = ON_ERROR[disk.on_error]
    layers = disk.volume.layers
    direct = bool(layers) and layers[0].direct
    if (disk.cache == Disk.CACHE_NONE or disk.io == Disk.IO_NATIVE) and not direct:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            f"{path}.cache",
            "the volume's file system cannot bypass the page cache (O_DIRECT); use writethrough or writeback, "
            "and threads",
            have="page cache",
            want="none",
        )
    writable = bool(layers) and not (disk.read_only or layers[0].read_only or disk.kind == Disk.KIND_CDROM)
    return element(
        "driver",
        name="qemu",
        type=FORMATS[layers[0].format] if layers else "raw",
        cache=CACHES.get(disk.cache, "none" if direct else "writethrough"),
        io=ASYNC[disk.io],
        error_policy=write_error if layers else "",
        rerror_policy=read_error if layers else "",
        discard="unmap" if writable else "",
        queues=disk.queues or "",
    )


def _source(draft: Draft, layers: Sequence[VolumeHandle.Layer]) -> list[ET.Element]:
    """The top layer and all below it. The end is stated as well, so that no name inside an image is followed."""
    top, *below = layers
    group = draft.group(top.handle)
    # libvirt wants a file's name in any case, and shows it; the descriptor is what it opens.
    source = element("source", file=f"/anyvisor/{group}", fdgroup=group)
    if not below:
        return [source, element("backingStore")]
    deeper = element("format", type=FORMATS[below[0].format])
    return [source, element("backingStore", deeper, *_source(draft, below), type="file")]
