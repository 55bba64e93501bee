"""Images are hostile: whatever is in them, `inspect` answers or raises `ImageError`."""

import contextlib
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.qcow2 import ImageError, Qcow2Info

CLUSTER = 65_536


def inspect(data: bytes) -> Qcow2Info:
    return qcow2.inspect(lambda offset, size: data[offset : offset + size], len(data))


def patched(data: bytes, offset: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, offset, value)
    return bytes(changed)


@pytest.mark.parametrize("size", [512, 1 << 20, 3 * 1024**3 + 512, 8 * 1024**4])
def test_an_empty_image_is_understood_by_us(size: int) -> None:
    assert inspect(qcow2.empty(size)) == Qcow2Info(size, CLUSTER)


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed")
@pytest.mark.parametrize("size", [512, 1 << 30, 3 * 1024**4])
def test_an_empty_image_is_understood_by_the_formats_own_tool(tmp_path: Path, size: int) -> None:
    image = tmp_path / "empty.qcow2"
    image.write_bytes(qcow2.empty(size))
    subprocess.run(["qemu-img", "check", str(image)], check=True, capture_output=True)
    info = subprocess.run(["qemu-img", "info", str(image)], check=True, capture_output=True, text=True).stdout
    assert f"({size} bytes)" in info


EMPTY = qcow2.empty(1 << 30)
DAMAGE = [
    ("cut off in the header", EMPTY[:60], "cut off"),
    ("impossible cluster size", patched(EMPTY, 20, ">I", 40), "impossible"),
    ("impossible disk size", patched(EMPTY, 24, ">Q", 0), "impossible"),
    ("cluster table outside the file", patched(EMPTY, 40, ">Q", 1 << 40), "outside the file"),
    ("cluster table too short", patched(EMPTY, 36, ">I", 1), "shorter than the disk"),
    ("cluster table absurdly long", patched(EMPTY, 36, ">I", 1 << 31), "outside the file"),
    ("second-level table outside the file", patched(EMPTY, 3 * CLUSTER, ">Q", 1 << 40), "outside the file"),
    ("reference table outside the file", patched(EMPTY, 48, ">Q", 1 << 40), "reference table"),
    ("marked corrupt", patched(EMPTY, 72, ">Q", 2), "marked as corrupt"),
    ("external data file", patched(EMPTY, 72, ">Q", 4), "data in another file"),
    ("unknown feature", patched(EMPTY, 72, ">Q", 1 << 20), "not supported"),
    ("encrypted", patched(EMPTY, 32, ">I", 2), "encrypted"),
    ("version of the future", patched(EMPTY, 4, ">I", 4), "version 4"),
]


@pytest.mark.parametrize(("data", "words"), [(d, w) for _, d, w in DAMAGE], ids=[name for name, _, _ in DAMAGE])
def test_damage_is_told(data: bytes, words: str) -> None:
    with pytest.raises(ImageError, match=words):
        inspect(data)


def test_a_backing_file_is_refused_by_name() -> None:
    image = bytearray(patched(EMPTY, 8, ">Q", 120))
    image[120:131] = b"/etc/shadow"
    with pytest.raises(ImageError, match="/etc/shadow"):
        inspect(bytes(image))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, len(EMPTY) - 1), st.integers(0, 255)), max_size=12))
def test_no_bytes_make_it_fail_otherwise(changes: list[tuple[int, int]]) -> None:
    image = bytearray(EMPTY)
    for offset, value in changes:
        image[offset] = value
    with contextlib.suppress(ImageError):
        assert inspect(bytes(image)).virtual_bytes > 0
