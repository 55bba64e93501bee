"""Names in the headers of overlays: ours are written, others are never followed or written to."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from anyvisor.drivers.cloud_hypervisor import overlays
from anyvisor.drivers.cloud_hypervisor.translate.overlays import READ, Overlay, OverlayError, check_base, named
from anyvisor.hri.errors import Refused

CLUSTER = 65536


def header(*, version: int = 3, backing: bytes = b"", extensions: bytes = b"", features: int = 0) -> bytes:
    """An overlay as the agent makes it, 1 GiB large."""
    size = 104
    offset = size + len(extensions) + 8 if backing else 0
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", version, offset, len(backing), 16, 1 << 30, 0, 2, 3 * CLUSTER, CLUSTER, 1, 0, 0
    )
    head += struct.pack(">QQQII", features, 0, 0, 4, size)
    return (head + extensions + bytes(8) + backing).ljust(READ, b"\0")


def test_name_is_written_again_and_again() -> None:
    first = named(header(), "/proc/self/fd/9", "raw")
    second = named(first.ljust(READ, b"\0"), "/proc/self/fd/10", "qcow2")
    for made, path, word in ((first, b"/proc/self/fd/9", b"raw"), (second, b"/proc/self/fd/10", b"qcow2")):
        _, _, offset, length, _ = struct.unpack_from(">4sIQII", made)
        assert made[offset : offset + length] == path
        kind, size = struct.unpack_from(">II", made, 104)
        assert (kind, made[112 : 112 + size]) == (0xE2792ACA, word)
        assert made.count(struct.pack(">I", 0xE2792ACA)) == 1
        assert made[24:104] == header()[24:104]


def test_other_extensions_are_kept() -> None:
    extension = struct.pack(">II", 0x6803F857, 5) + b"12345\0\0\0"
    assert extension in named(header(extensions=extension), "/proc/self/fd/9", "raw")


@pytest.mark.parametrize(
    "image",
    [
        b"",
        b"raw disk".ljust(READ, b"\0"),
        header(version=2),
        header(backing=b"/etc/shadow"),
        header(backing=b"proc/self/fd/9"),
        header(extensions=struct.pack(">II", 7, 1 << 31)),
        header(extensions=struct.pack(">II", 7, 3952) + bytes(3952)),
        header()[:100] + struct.pack(">I", 4000) + header()[104:],
    ],
)
def test_what_is_no_overlay_of_ours_is_left_alone(image: bytes) -> None:
    with pytest.raises(OverlayError):
        named(image, "/proc/self/fd/9", "raw")


def test_base_names_nothing() -> None:
    check_base(header())
    for image in (header(backing=b"/proc/self/fd/9"), header(features=4), b"raw".ljust(READ, b"\0")):
        with pytest.raises(OverlayError):
            check_base(image)


async def test_files(tmp_path: Path) -> None:
    top, base = tmp_path / "top", tmp_path / "base"
    top.write_bytes(header())
    base.write_bytes(header(backing=b"/etc/shadow"))
    opened = {"top": os.open(top, os.O_RDWR), "base": os.open(base, os.O_RDONLY)}
    try:
        overlay = Overlay("root", "top", "base", "/proc/self/fd/9", "qcow2")
        with pytest.raises(Refused, match="disk 'root': the image below names another file"):
            await overlays.prepare([overlay], opened.__getitem__)
        assert top.read_bytes() == header()
        base.write_bytes(header())
        await overlays.prepare([overlay], opened.__getitem__)
        assert b"/proc/self/fd/9" in top.read_bytes()[:READ]
        assert base.read_bytes() == header()
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def test_another_implementation_reads_it(tmp_path: Path) -> None:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed (Debian: apt-get install qemu-utils)")
    top, base = tmp_path / "top", tmp_path / "base"
    base.write_bytes(b"content".ljust(1 << 20, b"."))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", top, "1M"], check=True)
    with top.open("r+b") as file:
        made = named(file.read(READ), str(base), "raw")
        file.seek(0)
        file.write(made)
    shown = tmp_path / "shown"
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", top, shown], check=True)
    assert shown.read_bytes() == base.read_bytes()
