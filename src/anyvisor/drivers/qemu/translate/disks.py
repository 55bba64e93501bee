"""Disks: an explicit chain of block nodes over descriptors, and the device in front of it."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from anyvisor.drivers.qemu.translate import addresses, usb
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_spec_pb2 import Disk, VolumeHandle

FORMATS: Final = {VolumeHandle.Layer.FORMAT_RAW: "raw", VolumeHandle.Layer.FORMAT_QCOW2: "qcow2"}
ON_ERROR: Final = {
    Disk.ON_ERROR_UNSPECIFIED: ("stop", "stop"),
    Disk.ON_ERROR_STOP: ("stop", "stop"),
    Disk.ON_ERROR_REPORT: ("report", "report"),
    Disk.ON_ERROR_IGNORE: ("ignore", "ignore"),
    Disk.ON_ERROR_STOP_WHEN_FULL: ("enospc", "report"),
}
"""What a write and a read error do (werror, rerror)."""
SATA_PORTS: Final = 6
SCSI_TARGETS: Final = 255
_ATTACHED: Final = {
    Disk.BUS_SATA: ("sata", SATA_PORTS),
    Disk.BUS_SCSI: ("scsi", SCSI_TARGETS),
    Disk.BUS_USB: ("usb", usb.MAX_DISKS),
}
"""Buses with a controller: name, and how many disks it takes."""
MAX_LAYERS: Final = 32
VIRTIO_SERIAL_BYTES: Final = 20
NODE_ID_CHARACTERS: Final = 20
LIVE: Final = "attach_disk"
_NODE: Final = re.compile(r"d\d+-(.+)-\d+(?:-f)?")


def add_disks(
    draft: Draft,
    disks: Sequence[Disk],
    buses: Mapping[str, int],
    boot: Mapping[str, int],
    *,
    more: bool = False,
) -> None:
    """All disks of the machine. `buses`: bus of each virtio disk; `boot`: boot index by device id.

    `more`: others may come while the guest runs, for which there has to be a controller.
    """
    if more or any(disk.bus == Disk.BUS_SCSI for disk in disks):
        draft.device("scsi0", "virtio-scsi-pci-non-transitional", addresses.fixed("scsi"))
    _add_io_threads(draft, disks)
    taken: dict[Disk.Bus, int] = dict.fromkeys(_ATTACHED, 0)
    for index, disk in enumerate(disks):
        path = f"disks[{index}]"
        if not _check(draft, disk, path):
            continue
        node = _chain(draft, disk, index, path) if disk.HasField("volume") else None
        if disk.bus in taken:
            position = taken[disk.bus]
            taken[disk.bus] += 1
            _add_attached(draft, disk, position, node, boot.get(disk.id), path)
        else:
            _add_virtio(draft, disk, buses[disk.id], node, boot.get(disk.id), path)


def add_live(draft: Draft, disk: Disk, index: int, position: int) -> None:
    """One disk more for a guest that runs: on root port `position`, or at this SCSI id."""
    if not _check(draft, disk, LIVE):
        return
    node = _chain(draft, disk, index, LIVE)
    if is_virtio(disk):
        _add_virtio(draft, disk, position, node, None, LIVE)
    elif disk.bus == Disk.BUS_SCSI:
        _add_attached(draft, disk, position, node, None, LIVE)
    else:
        draft.refuse("CAP_NO", f"{LIVE}.bus", "this bus takes no disks while the guest runs; use scsi or virtio")


def add_medium(draft: Draft, drive: str, volume: VolumeHandle, index: int) -> str:
    """The nodes of a medium for a drive; returns the name of the top one."""
    disk = Disk(id=drive, kind=Disk.KIND_CDROM, bus=Disk.BUS_SATA, volume=volume)
    return _chain(draft, disk, index, "change_media") if _check(draft, disk, "change_media") else ""


def is_virtio(disk: Disk) -> bool:
    """Whether the disk is a PCI device of its own."""
    return disk.bus in (Disk.BUS_UNSPECIFIED, Disk.BUS_VIRTIO)


def node_name(index: int, disk_id: str, layer: int) -> str:
    """Name of a block node, at most 31 characters in all; the disk's id is in it for the sake of error messages."""
    return f"d{index}-{disk_id[:NODE_ID_CHARACTERS]}-{layer}"


def disk_of(node: str) -> str:
    """The disk's id in a block node's name, for a message; the name itself where it is none of ours."""
    match = _NODE.fullmatch(node)
    return match[1] if match else node


def _check(draft: Draft, disk: Disk, path: str) -> bool:
    before = len(draft.refusals)
    if disk.kind == Disk.KIND_LUN:
        draft.refuse("CAP_NO", f"{path}.kind", "passing a LUN through is not supported; use a disk", have="lun")
    if disk.kind == Disk.KIND_CDROM and is_virtio(disk):
        draft.refuse("CAP_NO", f"{path}.bus", "there are no CD-ROM drives on virtio; use sata or scsi", have="virtio")
    if not disk.serial.isprintable():
        draft.refuse("VALUE_INVALID", f"{path}.serial", "a serial number is made of printable characters")
    if not disk.HasField("volume") and disk.kind != Disk.KIND_CDROM:
        draft.refuse("FIELD_MISSING", f"{path}.volume", "only a CD-ROM drive can be empty; name a volume")
    if disk.HasField("volume") and not 1 <= len(disk.volume.layers) <= MAX_LAYERS:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.volume.layers", f"a volume has 1 to {MAX_LAYERS} layers")
    for number, layer in enumerate(disk.volume.layers):
        if layer.format not in FORMATS:
            draft.refuse("FIELD_MISSING", f"{path}.volume.layers[{number}].format", "the format must be recorded")
    return len(draft.refusals) == before


def _chain(draft: Draft, disk: Disk, index: int, path: str) -> str:
    """The block nodes from the lowest layer up; returns the name of the top one.

    Each qcow2 layer's `backing` is stated, also where there is none (null), so that QEMU never follows a name that
    stands inside an image.
    """
    layers = disk.volume.layers
    below: str | None = None
    for number in range(len(layers) - 1, -1, -1):
        layer = layers[number]
        name = node_name(index, disk.id, number)
        top = number == 0
        read_only = layer.read_only or not top or disk.read_only or disk.kind == Disk.KIND_CDROM
        direct = _direct(draft, disk, path) if top else layer.direct
        common: dict[str, Json] = {
            "read-only": read_only,
            "discard": "ignore" if read_only else "unmap",
            "cache": {"direct": direct, "no-flush": False},
        }
        storage = f"{name}-f"
        # QEMU takes a descriptor only for what it was opened for; who may write is said by the node above.
        opened: dict[str, Json] = {**common, "read-only": layer.read_only}
        draft.json("blockdev", {"node-name": storage, **_storage(draft, disk, layer), **opened})
        node: dict[str, Json] = {"node-name": name, "driver": FORMATS[layer.format], "file": storage, **common}
        if layer.format == VolumeHandle.Layer.FORMAT_QCOW2:
            node["backing"] = below
        elif below is not None:
            draft.refuse("VALUE_INVALID", f"{path}.volume.layers[{number}].format", "a raw layer has none below it")
        draft.json("blockdev", node)
        below = name
    assert below is not None
    return below


def _storage(draft: Draft, disk: Disk, layer: VolumeHandle.Layer) -> dict[str, Json]:
    return {
        "driver": "host_device" if layer.block_device else "file",
        "filename": draft.fdset(layer.handle),
        "auto-read-only": False,
        "aio": "native" if disk.io == Disk.IO_NATIVE and layer.direct else "threads",
        "locking": "on",
    }


def _direct(draft: Draft, disk: Disk, path: str) -> bool:
    """Whether the top layer bypasses the host's page cache; it can only if the agent opened it so."""
    possible = disk.volume.layers[0].direct
    if disk.cache == Disk.CACHE_NONE and not possible:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            f"{path}.cache",
            "the volume's file system cannot bypass the page cache (O_DIRECT); use writethrough or writeback",
            have="page cache",
            want="none",
        )
    if disk.io == Disk.IO_NATIVE and not possible:
        draft.refuse("VALUE_UNAVAILABLE", f"{path}.io", "native I/O needs a volume that bypasses the page cache")
    return possible and disk.cache in (Disk.CACHE_UNSPECIFIED, Disk.CACHE_NONE)


def _common_properties(draft: Draft, disk: Disk, node: str | None, boot_index: int | None) -> dict[str, Json]:
    write_error, read_error = ON_ERROR[disk.on_error]
    writethrough = disk.cache == Disk.CACHE_WRITETHROUGH or (
        disk.cache == Disk.CACHE_UNSPECIFIED and not (node and disk.volume.layers[0].direct)
    )
    size = disk.block_size
    return {
        "drive": node,
        "bootindex": boot_index,
        "serial": disk.serial or None,
        "werror": write_error if node else None,
        "rerror": read_error if node else None,
        "write-cache": "off" if writethrough else "on",
        "share-rw": True if disk.shareable else None,
        "logical_block_size": size.logical or None,
        "physical_block_size": size.physical or None,
        "discard_granularity": size.discard_granularity or None,
    }


def _add_virtio(draft: Draft, disk: Disk, bus: int, node: str | None, boot_index: int | None, path: str) -> None:
    properties = _common_properties(draft, disk, node, boot_index)
    properties["num-queues"] = disk.queues or None
    if len(disk.serial.encode()) > VIRTIO_SERIAL_BYTES:
        draft.note(
            "VALUE_TRUNCATED",
            f"{path}.serial",
            f"the guest sees the first {VIRTIO_SERIAL_BYTES} bytes of the serial number on virtio",
            have=disk.serial[:VIRTIO_SERIAL_BYTES],
            want=disk.serial,
        )
    if disk.dedicated_io_thread:
        draft.json("object", {"qom-type": "iothread", "id": f"io-{disk.id}"})
        properties["iothread"] = f"io-{disk.id}"
    elif disk.io_thread:
        properties["iothread"] = f"io{disk.io_thread}"
    draft.device(f"disk-{disk.id}", "virtio-blk-pci-non-transitional", addresses.behind(bus), properties)
    draft.plug(disk.id, pci_ports.address(bus))


def _add_attached(draft: Draft, disk: Disk, position: int, node: str | None, boot_index: int | None, path: str) -> None:
    """A disk on a controller: SATA (built into the board), SCSI or USB."""
    bus, most = _ATTACHED[disk.bus]
    if position >= most:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.bus", f"at most {most} disks on {bus}")
        return
    if disk.pci_address or disk.queues or disk.dedicated_io_thread or disk.io_thread:
        draft.refuse("CAP_NO", path, "PCI address, queues and an I/O thread of its own are for virtio disks only")
        return
    kind = "cd" if disk.kind == Disk.KIND_CDROM else "hd"
    properties = _common_properties(draft, disk, node, boot_index)
    if kind == "cd":
        properties["write-cache"] = None
        properties["share-rw"] = None
    name, where = f"disk-{disk.id}", dict[str, Json]()
    match disk.bus:
        case Disk.BUS_SATA:
            where |= {"bus": f"ide.{position}", "unit": 0}
        case Disk.BUS_SCSI:
            where |= {"bus": "scsi0.0", "channel": 0, "scsi-id": position, "lun": 0}
        case _:
            # A bridge from USB to SCSI: of QEMU's two, the one that can carry a CD-ROM drive.
            draft.device(f"bridge-{disk.id}", "usb-bot", usb.disk_port(position))
            where |= {"bus": f"bridge-{disk.id}.0", "scsi-id": 0, "lun": 0}
    draft.device(name, f"{'ide' if disk.bus == Disk.BUS_SATA else 'scsi'}-{kind}", where, properties)
    draft.plug(disk.id, f"{bus}:{position}")


def _add_io_threads(draft: Draft, disks: Sequence[Disk]) -> None:
    """The threads that disks share."""
    for number in sorted({disk.io_thread for disk in disks if disk.io_thread and not disk.dedicated_io_thread}):
        draft.json("object", {"qom-type": "iothread", "id": f"io{number}"})
