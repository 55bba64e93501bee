"""The probe guest in the driver is the one whose source is in guests/kvmprobe."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from anyvisor.drivers.qemu import probe_guest

ROOT = Path(__file__).parents[3]
PT_LOAD = 1


def segment(elf: bytes) -> tuple[int, bytes]:
    """Entry point and content of the only loaded segment."""
    entry, table = struct.unpack_from("<QQ", elf, 24)
    size, count = struct.unpack_from("<HH", elf, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", elf, table + number * size)
        if kind == PT_LOAD:
            return entry, elf[offset : offset + length]
    raise AssertionError("nothing is loaded")


def test_it_is_assembled_from_its_source(tmp_path: Path) -> None:
    if shutil.which("as") is None or shutil.which("ld") is None:
        pytest.skip("binutils are not installed")
    objects, built = tmp_path / "probe.o", tmp_path / "probe.elf"
    subprocess.run(["as", "--64", ROOT / "guests/kvmprobe/probe.S", "-o", objects], check=True, timeout=60)
    link = ["-n", "-m", "elf_x86_64", "--build-id=none", "-z", "noexecstack", "--no-warn-rwx-segments", "-e", "entry"]
    subprocess.run(["ld", *link, "-T", ROOT / "guests/tiny/tiny.ld", objects, "-o", built], check=True, timeout=60)
    assert segment(probe_guest.kernel()) == segment(built.read_bytes())
