"""Rules for disks: what a guest sees of a volume."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from anyvisor.admission.names import LABEL_RULE, is_label, is_pci_address
from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, integer, items, mapping, shown, text

BUSES = ("virtio", "scsi", "sata", "usb")
CACHES = ("none", "writethrough", "writeback")
IO_MODES = ("native", "threads")
ERROR_POLICIES = ("stop", "ignore", "report", "enospace")

_KINDS = ("disk", "lun", "cdrom")
_SERIAL = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_SERIAL_MAX = 256
_BLOCK_MIN, _BLOCK_MAX = 512, 2 << 20


def kind(disk: Obj) -> str:
    """As what the guest sees the disk; empty when it is not said."""
    for name in _KINDS:
        if disk.get(name) is not None:
            return name
    return ""


def bus(disk: Obj) -> str:
    """The bus as written; empty when it is not said."""
    return text(mapping(disk.get(kind(disk))).get("bus"))


def check(at: str, written: Any, out: Causes) -> None:
    """All rules for a list of disks at the path `at`."""
    seen: dict[str, int] = {}
    for index, disk in enumerate(items(written)):
        where = f"{at}[{index}]"
        _name(at, where, index, disk, seen, out)
        kinds = [name for name in _KINDS if disk.get(name) is not None]
        if len(kinds) > 1:
            out.invalid(where, f"{where} is several of disk, lun and cdrom; keep one")
        if kinds:
            _target(at, index, kinds[0], disk, out)
        order = disk.get("bootOrder")
        if order is not None and integer(order) < 1:
            out.invalid(f"{where}.bootOrder", f"{where}.bootOrder is {shown(order)}; boot orders begin at 1")
        if "serial" in disk:
            _serial(where, disk, out)
        _choices(at, index, disk, out)
        if "blockSize" in disk:
            _block_size(where, disk, out)


def _name(at: str, where: str, index: int, disk: Obj, seen: dict[str, int], out: Causes) -> None:
    name = text(disk.get("name"))
    if name in seen:
        out.invalid(f"{where}.name", f"{where} and {at}[{seen[name]}] have the same name {name!r}; rename one")
    else:
        seen[name] = index
    if not is_label(name):
        out.invalid(
            f"{at}.domain.devices.disks[{index}].name",
            f"{where}.name is {name!r}; a disk's name becomes part of other names and must be {LABEL_RULE}",
            f"{where}.name",
        )


def _pci_address(at: str, index: int, disk: Obj, out: Causes) -> None:
    address = text(mapping(disk.get("disk")).get("pciAddress"))
    if not address:
        return
    wire, path = f"{at}.domain.devices.disks.disk[{index}].pciAddress", f"{at}[{index}].disk.pciAddress"
    if mapping(disk["disk"]).get("bus") != "virtio":
        out.invalid(wire, f"{path}: only a disk on the virtio bus can have a PCI address", path)
    if not is_pci_address(address):
        out.invalid(wire, f"{path} is {address!r}; write it as 0000:81:01.0 (domain:bus:slot.function)", path)


def _target(at: str, index: int, target: str, disk: Obj, out: Causes) -> None:
    if target == "disk":
        _pci_address(at, index, disk, out)
    named = text(mapping(disk[target]).get("bus"))
    if named == "virtio" and target != "cdrom":
        return
    if named:
        _bus(at, index, named, target, disk, out)


def _bus(at: str, index: int, named: str, target: str, disk: Obj, out: Causes) -> None:
    where = f"{at}[{index}].{target}.bus"
    if named == "ide":
        out.invalid(where, f"{where}: the ide bus does not exist on these machine types; use sata")
    elif named == "virtio" and target == "cdrom":
        out.invalid(where, f"{where}: a CD-ROM cannot be on the virtio bus; use sata, scsi or usb")
    elif named == "sata" and mapping(disk.get("disk")).get("readonly") is True:
        out.invalid(where, f"{where}: sata disks cannot be read-only; use virtio or scsi, or a cdrom")
    elif named not in BUSES:
        out.invalid(where, f"{where} is {named!r}; use one of {', '.join(BUSES)}")
    if disk.get("dedicatedIOThread") is True and named != "virtio":
        out.unsupported(
            f"{at}.domain.devices.disks[{index}]",
            f"{at}[{index}].dedicatedIOThread works on the virtio bus only, not on {named}; change one of them",
            f"{at}[{index}].dedicatedIOThread",
        )


def _serial(where: str, disk: Obj, out: Causes) -> None:
    serial = text(disk.get("serial"))
    if serial and not _SERIAL.match(serial):
        out.invalid(f"{where}.serial", f"{where}.serial may contain letters, digits and _ . + - only")
    if len(serial) > _SERIAL_MAX:
        out.invalid(
            f"{where}.serial", f"{where}.serial has {len(serial)} characters; at most {_SERIAL_MAX} are possible"
        )


def _choices(at: str, index: int, disk: Obj, out: Causes) -> None:
    cache, io_mode, policy = text(disk.get("cache")), text(disk.get("io")), disk.get("errorPolicy")
    if not (cache or io_mode or policy is not None):
        return
    where = f"{at}[{index}]"
    if cache and cache not in CACHES:
        out.invalid(f"{where}.cache", f"{where}.cache is {cache!r}; use one of {', '.join(CACHES)}")
    if io_mode and io_mode not in IO_MODES:
        out.unsupported(
            f"{at}.domain.devices.disks[{index}].io",
            f"{where}.io is {io_mode!r}; use one of {', '.join(IO_MODES)}",
            f"{where}.io",
        )
    if policy is not None and policy not in ERROR_POLICIES:
        out.invalid(
            f"{where}.errorPolicy", f"{where}.errorPolicy is {shown(policy)}; use one of {', '.join(ERROR_POLICIES)}"
        )


def _block_size(where: str, disk: Obj, out: Causes) -> None:
    sizes = mapping(disk.get("blockSize"))
    if sizes.get("custom") is None:
        return
    custom, matched = mapping(sizes["custom"]), sizes.get("matchVolume")
    if matched is not None and mapping(matched).get("enabled") is not False:
        out.invalid(f"{where}.blockSize", f"{where}.blockSize has both custom sizes and matchVolume; keep one of them")
        return
    logical, physical = integer(custom.get("logical")), integer(custom.get("physical"))
    discard, at = custom.get("discardGranularity"), f"{where}.blockSize.custom"
    if logical > physical:
        out.invalid(f"{at}.logical", f"{at}.logical ({logical}) must not be more than physical ({physical})")
    elif bus(disk) == "sata" and logical != _BLOCK_MIN:
        out.invalid(f"{at}.logical", f"{at}.logical is {logical}; on the sata bus it must be {_BLOCK_MIN}")
    elif discard is not None and logical and integer(discard) % logical:
        out.invalid(
            f"{at}.discardGranularity",
            f"{at}.discardGranularity ({shown(discard)}) must be a multiple of logical ({logical})",
        )
    else:
        for name, problem in _size_problems(logical, physical):
            out.invalid(f"{at}.{name}", f"{at}.{name}: {problem}")


def _size_problems(logical: int, physical: int) -> Iterator[tuple[str, str]]:
    for name, size in (("logical", logical), ("physical", physical)):
        if size < _BLOCK_MIN:
            yield name, f"{size} is too small; the least is {_BLOCK_MIN}"
        elif size > _BLOCK_MAX:
            yield name, f"{size} is too large; the most is {_BLOCK_MAX}"
        elif size & (size - 1):
            yield name, f"{size} is not a power of two"


def check_path(at: str, path: str, out: Causes) -> None:
    """The path of a file in an image: absolute, to a file, without detours."""
    if path == "/":
        out.invalid(at, f"{at} is the root directory; name a file")
        return
    clean = posixpath.normpath("/" + path.lstrip("/"))
    if clean != path.removesuffix("/"):
        out.invalid(at, f"{at} is {path!r}; give an absolute path to a file without '.', '..' or repeated '/'")
