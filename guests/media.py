"""Boot media of the Linux guest: a disk for UEFI with the signed chain of Debian, and a CD for BIOS."""

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pycdlib

DISK_BYTES = 80 << 20
CLUSTER = "32"
"""Sectors of an allocation unit: a boot loader reads these one by one."""
GRUB = """\
linux /vmlinuz {command_line}
initrd /initrd.img
boot
"""
ISOLINUX = """\
serial 0 115200
default linux
prompt 0
label linux
kernel /vmlinuz
append initrd=/initrd.img {command_line}
"""


def write_uefi(
    target: Path, files: Mapping[str, Path], command_line: str, mtools: Path, run: Callable[..., str]
) -> None:
    """A disk that is one FAT file system, as firmware takes removable media. `files`: place -> source.

    Debian's shim is signed by the key that firmware has enrolled; it checks the boot loader, which checks the kernel.
    """
    config = target.with_suffix(".cfg")
    config.write_text(GRUB.format(command_line=command_line))
    with target.open("wb") as disk:
        disk.truncate(DISK_BYTES)
    try:
        run(mtools, "-c", "mformat", "-i", target, "-c", CLUSTER, "-v", "ANYVISOR", "::")
        for directory in ("EFI", "EFI/BOOT", "EFI/debian"):
            run(mtools, "-c", "mmd", "-i", target, f"::{directory}")
        for place, source in {**files, "EFI/debian/grub.cfg": config}.items():
            run(mtools, "-c", "mcopy", "-i", target, source, f"::{place}")
    finally:
        config.unlink()


def write_cd(target: Path, files: Mapping[str, Path], command_line: str) -> None:
    """An ISO 9660 image with El Torito. `files`: upper-case name -> source; one is ISOLINUX.BIN."""
    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, vol_ident="INSTALLER")
    config = ISOLINUX.format(command_line=command_line).encode()
    contents = {name: source.read_bytes() for name, source in files.items()} | {"ISOLINUX.CFG": config}
    for name, data in sorted(contents.items()):
        path = name if "." in name else f"{name}."
        image.add_fp(io.BytesIO(data), len(data), f"/{path};1")
    image.add_eltorito("/ISOLINUX.BIN;1", "/BOOT.CAT;1", boot_load_size=4, boot_info_table=True)
    image.write(os.fspath(target))
    image.close()
