"""The launcher of a VMM that no package brings: small, and everything in it that a machine's start needs."""

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.images import __main__ as images
from tools.images import oci, rootfs

NAME = "launcher-cloud-hypervisor"
VARIABLE = images.IMAGES[NAME].program
LIMIT_BYTES = 60_000_000


def test_without_the_program_the_sentence_says_how_to_name_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert NAME not in images.offered()
    with pytest.raises(rootfs.CannotBuildError, match=f"name it in {VARIABLE}"):
        images.programs(NAME)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(rootfs.CannotBuildError, match="which is no file"):
        images.programs(NAME)


def test_what_is_named_is_put_where_the_driver_looks_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, firmware = tmp_path / "built", tmp_path / "CLOUDHV.fd"
    program.write_bytes(b"program")
    firmware.write_bytes(b"firmware")
    monkeypatch.setenv(VARIABLE, str(program))
    monkeypatch.setenv(f"{VARIABLE}_FIRMWARE", str(firmware))
    assert NAME in images.offered()
    assert images.programs(NAME) == [
        oci.files_layer({"/usr/local/bin/cloud-hypervisor": program}, executable=True),
        oci.files_layer({"/usr/share/cloud-hypervisor/CLOUDHV.fd": firmware}),
    ]


def test_the_image_is_small_and_its_programs_run(tmp_path: Path) -> None:
    if NAME not in images.offered() or os.geteuid() != 0:
        pytest.skip(f"{VARIABLE} names no program, or the tests do not run as root")
    try:
        archive = images.build(NAME, tmp_path, "localhost")
    except rootfs.CannotBuildError as error:
        pytest.skip(str(error))
    assert archive.stat().st_size < LIMIT_BYTES
    place = tmp_path / "root"
    with tarfile.open(archive) as image:
        for blob in image.getmembers():
            content = image.extractfile(blob) if blob.name.startswith("blobs/") and blob.size > 4096 else None
            if content is not None:
                with tarfile.open(fileobj=content) as layer:
                    layer.extractall(place, filter="fully_trusted")

    def said(*command: str) -> str:
        done = subprocess.run(["chroot", place, *command], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout + done.stderr

    assert "cloud-hypervisor v" in said("cloud-hypervisor", "--version")
    assert "usage: shim.py" in said("python3", "-I", "-S", "/opt/shim.pyc")
    assert said("sh", "-c", "/bin/busybox echo copied").strip() == "copied"
    assert '"name": "cloud-hypervisor"' in (tmp_path / f"{NAME}.spdx.json").read_text()
