"""Builds the test and demonstration guests into `.cache/guests/`: `python -m guests.build`.

* `tiny.elf`, `tiny64.elf`: the tiny guest (guests/tiny), from source by gcc and binutils.
* `disk.raw`: the disk that boots (guests/bootsector), from source by binutils.
* `linux.kernel`, `linux.initrd`: Debian's cloud kernel and a busybox initramfs (guests/linux). What is not
  installed is downloaded as a Debian package and unpacked below `.cache/guests/`; nothing is installed.
* `tiny.oci.tar`, `disk.oci.tar`, `linux.oci.tar`: the same as OCI archives for `anyvisor image import`.

Each result is written whole or not at all, and only when a source is newer.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from guests import archive, initramfs, media

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / ".cache" / "guests"
DISK_BYTES = 1 << 20
SECTOR = 512
DISK_LABEL = "first boot"
PT_INTERP = 3
CFLAGS = (
    *("-m32", "-O2", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-pic", "-fno-stack-protector"),
    *("-fno-asynchronous-unwind-tables", "-mno-sse", "-mno-mmx"),
)


class CannotBuildError(Exception):
    """A guest cannot be built here; the message says what is missing and how to get it."""


@dataclass(frozen=True, slots=True)
class LinuxGuest:
    """Files for a direct kernel boot. Its console is ttyS0."""

    kernel: Path
    initrd: Path
    command_line: str = "console=ttyS0 quiet panic=-1"


def tiny(out: Path = OUT) -> Path:
    """The tiny guest's PVH kernel."""
    source = HERE / "tiny"
    return _once(out / "tiny.elf", sorted(source.iterdir()), lambda target: _build_tiny(source, target))


def tiny64(out: Path = OUT) -> Path:
    """The same kernel as ELF64, the only form that some VMMs load."""
    source = tiny(out)
    command = ("objcopy", "-I", "elf32-i386", "-O", "elf64-x86-64", source)
    return _once(out / "tiny64.elf", [source], lambda target: _run(*command, target))


def disk(out: Path = OUT) -> Path:
    """A raw disk image of 1 MiB that boots by BIOS; copy it before a guest writes to it."""
    source = HERE / "bootsector" / "boot.S"
    return _once(out / "disk.raw", [source], lambda target: _build_disk(source, target))


def linux(out: Path = OUT) -> LinuxGuest:
    """The Linux guest's kernel and initramfs."""
    return _linux(out, "linux.initrd", {})


def linux_reporting(out: Path = OUT) -> LinuxGuest:
    """The Linux guest with modules for all buses that its reports are about; for the conformance program."""
    return _linux(out, "linux-reporting.initrd", {}, initramfs.REPORTING_MODULES)


def linux_with_agent(out: Path = OUT) -> LinuxGuest:
    """The Linux guest with Debian's guest agent running in it."""
    program = out / "debian" / "agent" / "usr/sbin/qemu-ga"
    if not program.exists():
        _unpack("qemu-guest-agent", out / "debian" / "agent")
    return _linux(out, "linux-agent.initrd", {"usr/sbin/qemu-ga": program, **_libraries(program)})


def linux_measuring(out: Path = OUT) -> LinuxGuest:
    """The Linux guest with a program that measures its disk and its network; for benchmarks."""
    source = HERE / "measure" / "measure.c"
    program = _once(out / "measure", [source], lambda target: _build_static(source, target))
    return _linux(out, "linux-measuring.initrd", {"bin/measure": program})


def _build_static(source: Path, target: Path) -> None:
    _run("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", source, "-o", target)


def _libraries(program: Path) -> dict[str, Path]:
    """The libraries of a program and its loader, where it looks for them: this machine's."""
    listed = _run("ldd", program)
    if "not found" in listed:
        raise CannotBuildError(f"libraries of {program.name} are not installed here: {listed.strip()[:500]}")
    return {path.lstrip("/"): Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}


def _linux(
    out: Path, initramfs_name: str, programs: dict[str, Path], wanted: Sequence[str] = initramfs.MODULES
) -> LinuxGuest:
    root = _kernel_root(out)
    image = max((root / "boot").glob("vmlinuz-*-cloud-amd64"))
    version = image.name.removeprefix("vmlinuz-")
    modules = root / "lib/modules" / version
    busybox = _busybox(out)
    scripts = HERE / "linux"
    kernel = _once(out / "linux.kernel", [image], lambda target: target.write_bytes(image.read_bytes()))
    sources = [busybox, modules / "modules.dep", HERE / "initramfs.py", *scripts.iterdir(), *programs.values()]
    initrd = _once(
        out / initramfs_name,
        sources,
        lambda target: target.write_bytes(initramfs.build(busybox, modules, scripts, programs, wanted)),
    )
    return LinuxGuest(kernel, initrd)


def tiny_archive(out: Path = OUT) -> Path:
    """The tiny guest as an OCI archive with /boot/vmlinuz."""
    return _archive(out / "tiny.oci.tar", {"boot/vmlinuz": tiny(out)}, "tiny")


def disk_archive(out: Path = OUT) -> Path:
    """The disk that boots as an OCI archive with /disk/disk.raw."""
    return _archive(out / "disk.oci.tar", {"disk/disk.raw": disk(out)}, "disk")


def linux_archive(out: Path = OUT) -> Path:
    """The Linux guest as an OCI archive with /boot/vmlinuz and /boot/initrd.img."""
    guest = linux(out)
    files = {"boot/vmlinuz": guest.kernel, "boot/initrd.img": guest.initrd}
    return _archive(out / "linux.oci.tar", files, "linux")


def linux_with_agent_archive(out: Path = OUT) -> Path:
    """The Linux guest with an agent as an OCI archive with the same paths."""
    guest = linux_with_agent(out)
    files = {"boot/vmlinuz": guest.kernel, "boot/initrd.img": guest.initrd}
    return _archive(out / "linux-agent.oci.tar", files, "linux-agent")


def linux_measuring_archive(out: Path = OUT) -> Path:
    """The Linux guest that measures as an OCI archive with the same paths."""
    guest = linux_measuring(out)
    files = {"boot/vmlinuz": guest.kernel, "boot/initrd.img": guest.initrd}
    return _archive(out / "linux-measuring.oci.tar", files, "linux-measuring")


def debian(out: Path = OUT) -> Path:
    """A full Debian disk, as `anyvisor image build` makes it; copy it to write. Takes minutes at first."""
    if os.geteuid() != 0:
        raise CannotBuildError("only root can build the Debian disk")
    program = [sys.executable, "-m", "anyvisor", "--data-dir", out / "images"]
    _run(*program, "image", "build", "--name", "debian")
    listed = json.loads(_run(*program, "image", "list", "-o", "json"))
    (disk,) = [file for file in listed["items"][0]["files"] if file["format"]]
    return out / "images" / "images" / "blobs" / "sha256" / disk["sha256"]


def uefi_disk(out: Path = OUT) -> Path:
    """A raw disk that boots the Linux guest by UEFI, also with secure boot; copy it before a guest writes to it."""
    guest = linux(out)
    signed = {
        "shim-signed": ("usr/lib/shim/shimx64.efi.signed", "EFI/BOOT/BOOTX64.EFI"),
        "grub-efi-amd64-signed": ("usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed", "EFI/BOOT/grubx64.efi"),
    }
    files = {place: _from_package(out, package, path) for package, (path, place) in signed.items()}
    files |= {"vmlinuz": guest.kernel, "initrd.img": guest.initrd}
    mtools = _from_package(out, "mtools", "usr/bin/mtools")
    sources = [*files.values(), HERE / "media.py"]
    return _once(
        out / "uefi.raw", sources, lambda path: media.write_uefi(path, files, guest.command_line, mtools, _run)
    )


def uefi_archive(out: Path = OUT) -> Path:
    """The disk that boots by UEFI as an OCI archive with /disk/disk.raw."""
    return _archive(out / "uefi.oci.tar", {"disk/disk.raw": uefi_disk(out)}, "uefi")


def installer_cd(out: Path = OUT) -> Path:
    """A CD image that boots the Linux guest by BIOS, as an operating system's installer does."""
    guest = linux(out)
    loader = {
        "isolinux": ("usr/lib/ISOLINUX/isolinux.bin", "ISOLINUX.BIN"),
        "syslinux-common": ("usr/lib/syslinux/modules/bios/ldlinux.c32", "LDLINUX.C32"),
    }
    files = {place: _from_package(out, package, path) for package, (path, place) in loader.items()}
    files |= {"VMLINUZ": guest.kernel, "INITRD.IMG": guest.initrd}
    sources = [*files.values(), HERE / "media.py"]
    return _once(out / "installer.iso", sources, lambda path: media.write_cd(path, files, guest.command_line))


def installer_archive(out: Path = OUT) -> Path:
    """The installer's CD as an OCI archive with /disk/disk.raw."""
    return _archive(out / "installer.oci.tar", {"disk/disk.raw": installer_cd(out)}, "installer")


def _from_package(out: Path, package: str, path: str) -> Path:
    """A file of a Debian package that is not installed."""
    unpacked = out / "debian" / package
    if not (unpacked / path).exists():
        _unpack(package, unpacked)
    if not (unpacked / path).exists():
        raise CannotBuildError(f"Debian's package {package} has no {path}")
    return unpacked / path


def _archive(target: Path, files: dict[str, Path], name: str) -> Path:
    sources = [*files.values(), HERE / "archive.py"]
    return _once(target, sources, lambda path: archive.write(path, files, name=name))


def _build_tiny(source: Path, target: Path) -> None:
    parts = [target.with_suffix(f".{name}.o") for name in ("head", "main", "hotplug")]
    head, main, hotplug = parts
    _run("gcc", "-m32", "-c", source / "head.S", "-o", head)
    _run("gcc", *CFLAGS, "-c", source / "main.c", "-o", main)
    _run("gcc", *CFLAGS, "-c", source / "hotplug.c", "-o", hotplug)
    link = ("-m", "elf_i386", "--build-id=none", "-z", "noexecstack", "-z", "max-page-size=4096")
    _run("ld", *link, "--no-warn-rwx-segments", "-T", source / "tiny.ld", *parts, "-o", target)
    for part in parts:
        part.unlink()


def _build_disk(source: Path, target: Path) -> None:
    code = target.with_suffix(".o")
    _run("as", "--32", source, "-o", code)
    _run("ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", "-e", "boot", code, "-o", target)
    code.unlink()
    sector = target.read_bytes()
    if len(sector) != SECTOR:
        raise CannotBuildError(f"the boot sector has {len(sector)} bytes, and must have {SECTOR}")
    target.write_bytes((sector + DISK_LABEL.encode()).ljust(DISK_BYTES, b"\0"))


def _once(target: Path, sources: Sequence[Path], build: Callable[[Path], object]) -> Path:
    """Build `target` unless it is newer than all its sources; safe beside another builder."""
    if target.exists() and all(source.stat().st_mtime <= target.stat().st_mtime for source in sources):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        build(unfinished)
        unfinished.chmod(0o644)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    words = [str(part) for part in command]
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    if shutil.which(words[0], path=path) is None:
        raise CannotBuildError(f"{words[0]} is not installed (Debian: apt-get install gcc binutils kmod)")
    environment = {**os.environ, "PATH": path, "LC_ALL": "C"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    if done.returncode:
        raise CannotBuildError(f"{words[0]} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def _kernel_root(out: Path) -> Path:
    """The root below which Debian's cloud kernel lies: this machine's, or an unpacked package."""
    unpacked = out / "debian" / "kernel"
    for root in (Path("/"), unpacked):
        if any((root / "boot").glob("vmlinuz-*-cloud-amd64")):
            return root
    package = _kernel_package()
    _unpack(package, unpacked)
    if not (unpacked / "lib").exists():
        (unpacked / "lib").symlink_to("usr/lib")
    _run("depmod", "-b", unpacked, package.removeprefix("linux-image-"))
    return unpacked


def _kernel_package() -> str:
    """The package that the metapackage linux-image-cloud-amd64 stands for."""
    for word in _run("apt-cache", "depends", "linux-image-cloud-amd64").split():
        if re.fullmatch(r"linux-image-[0-9][^ ]*-cloud-amd64", word):
            return word
    raise CannotBuildError(
        "Debian's cloud kernel is not known here: run apt-get update, or install linux-image-cloud-amd64"
    )


def _busybox(out: Path) -> Path:
    unpacked = out / "debian" / "busybox"
    candidates = [root / name for root in (Path("/"), unpacked) for name in ("bin/busybox", "usr/bin/busybox")]
    found = next((path for path in candidates if _is_static(path)), None)
    if found is None:
        _unpack("busybox-static", unpacked)
        found = next(path for path in candidates if _is_static(path))
    return found


def _is_static(path: Path) -> bool:
    """Whether an ELF64 program names no loader (no PT_INTERP in its program headers)."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    return all(struct.unpack_from("<I", data, offset + i * size)[0] != PT_INTERP for i in range(count))


def _unpack(package: str, target: Path) -> None:
    """Download a Debian package and unpack it below `target`, without installing it."""
    target.mkdir(parents=True, exist_ok=True)
    _run("apt-get", "-q", "download", package, cwd=target)
    for file in target.glob("*.deb"):
        _run("dpkg-deb", "-x", file, target)
        file.unlink()


def main() -> int:
    """Build everything and print where it is."""
    try:
        for build in (tiny_archive, disk_archive, linux_archive):
            print(build())
    except CannotBuildError as error:
        print(f"guests: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
