"""The Linux guest's initramfs: busybox, a few kernel modules and our scripts, as a gzipped cpio archive.

The archive is written here and not by cpio(1): device nodes need no root, and the result does not depend on
the order of a directory or on the clock.
"""

import gzip
import lzma
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "sd_mod",
    "sr_mod",
    "virtio_net",
    "virtio_balloon",
    "virtio-rng",
    "virtio_console",
    "button",
    "evdev",
    "isofs",
    "pvpanic-pci",
    "virtio_scsi",
    "sd_mod",
    "sr_mod",
    "efivarfs",
    "virtiofs",
    "virtio_mem",
)
REPORTING_MODULES = (*MODULES, "virtio_scsi", "sd_mod", "sr_mod")
SCRIPTS = {
    "rc": "etc/rc",
    "counter": "etc/counter",
    "dhcp": "etc/dhcp",
    "farewell": "etc/farewell",
    "os-release": "etc/os-release",
    "fill": "bin/fill",
    "power": "etc/acpi/PWRF/00000080",
    "report": "bin/report",
    "shutdown": "bin/shutdown",
    "write": "bin/write",
}
DIRECTORIES = (
    "bin",
    "dev",
    "etc",
    "etc/acpi",
    "etc/acpi/PWRF",
    "modules",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of the archive; `device` is (major, minor) for a character device."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def pack(entries: Iterable[Entry]) -> bytes:
    """Write a cpio archive in the "newc" form (kernel documentation: buffer-format)."""
    parts: list[bytes] = []
    for number, entry in enumerate((*entries, Entry("TRAILER!!!", 0)), start=1):
        name = entry.name.encode() + b"\0"
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % field for field in fields)
        parts.append(_padded(header + name))
        parts.append(_padded(entry.data))
    return b"".join(parts)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def module_order(tree: Path, wanted: Iterable[str] = MODULES) -> list[str]:
    """Paths of the wanted modules and all that they need, each after its needs; built-in ones left out."""
    needs: dict[str, list[str]] = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {Path(path).name.split(".")[0]: path for path in needs}
    order: list[str] = []
    for name in wanted:
        path = by_name.get(name)
        if path is None:
            continue
        for each in (*reversed(needs[path]), path):  # modules.dep lists the nearest need first
            if each not in order:
                order.append(each)
    return order


def build(
    busybox: Path,
    modules: Path,
    scripts: Path,
    programs: Mapping[str, Path] | None = None,
    wanted: Iterable[str] = MODULES,
) -> bytes:
    """The compressed initramfs; `modules` is a /lib/modules/VERSION tree, `scripts` the guest's sources.

    `programs` are further files by their place in the guest; the first script starts those that it knows. `wanted`
    are the modules that it loads.
    """
    entries = (*_entries(busybox, modules, scripts, wanted), *_programs(programs or {}))
    return gzip.compress(pack(entries), compresslevel=6, mtime=0)


def _programs(programs: Mapping[str, Path]) -> Iterator[Entry]:
    made: set[str] = set(DIRECTORIES)
    for place, source in programs.items():
        for parent in reversed(PurePosixPath(place).parents[:-1]):
            if str(parent) not in made:
                made.add(str(parent))
                yield Entry(str(parent), stat.S_IFDIR | 0o755)
        yield Entry(place, stat.S_IFREG | 0o755, source.read_bytes())


def _entries(busybox: Path, modules: Path, scripts: Path, wanted: Iterable[str]) -> Iterator[Entry]:
    for name in DIRECTORIES:
        yield Entry(name, stat.S_IFDIR | 0o755)
    yield Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    yield Entry("dev/null", stat.S_IFCHR | 0o666, device=(1, 3))
    yield Entry("bin/busybox", stat.S_IFREG | 0o755, busybox.read_bytes())
    for applet in _applets(busybox):
        yield Entry(f"bin/{applet}", stat.S_IFLNK | 0o777, b"busybox")
    yield Entry("sbin", stat.S_IFLNK | 0o777, b"bin")
    yield Entry("init", stat.S_IFLNK | 0o777, b"bin/busybox")
    yield Entry("etc/inittab", stat.S_IFREG | 0o644, (scripts / "inittab").read_bytes())
    for source, target in SCRIPTS.items():
        yield Entry(target, stat.S_IFREG | 0o755, (scripts / source).read_bytes())
    order = module_order(modules, wanted)
    for path in order:
        yield Entry(f"modules/{_plain_name(path)}", stat.S_IFREG | 0o644, _module(modules / path))
    listing = "".join(f"{_plain_name(path)}\n" for path in order)
    yield Entry("modules/order", stat.S_IFREG | 0o644, listing.encode())


def _applets(busybox: Path) -> list[str]:
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if name not in ("busybox", "init")] + ["init"]


def _plain_name(path: str) -> str:
    return Path(path).name.removesuffix(".xz")


def _module(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
