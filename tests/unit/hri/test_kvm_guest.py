"""The probe guest in the kit is the one whose source is in guests/kvmprobe."""

import shutil
import subprocess
from pathlib import Path

import pytest

from anyvisor.hri.kit import kvm_guest

ROOT = Path(__file__).parents[3]


def test_it_is_assembled_from_its_source(tmp_path: Path) -> None:
    if shutil.which("as") is None or shutil.which("ld") is None:
        pytest.skip("binutils are not installed (Debian: apt-get install binutils)")
    objects, built = tmp_path / "probe.o", tmp_path / "probe.elf"
    subprocess.run(["as", "--64", ROOT / "guests/kvmprobe/probe.S", "-o", objects], check=True, timeout=60)
    link = ["-n", "-s", "-m", "elf_x86_64", "--build-id=none", "-z", "noexecstack", "--no-warn-rwx-segments"]
    script = ["-e", "entry", "-T", ROOT / "guests/tiny/tiny.ld"]
    subprocess.run(["ld", *link, *script, objects, "-o", built], check=True, timeout=60)
    assert kvm_guest.kernel() == built.read_bytes()
