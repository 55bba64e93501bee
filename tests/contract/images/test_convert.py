"""Disk files of foreign formats, turned into raw disks by the tool of an installed driver."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.convert import converted, find_tool, foreign_format

TOOL = "qemu-img"
SIZE = 1 << 20
CONTENT = (b"first sector".ljust(512, b"\0") + b"second".ljust(SIZE - 512, b"\0"))[:SIZE]
NOBODY = 65534 if os.geteuid() == 0 else os.geteuid()

pytestmark = pytest.mark.skipif(shutil.which(TOOL) is None, reason=f"{TOOL} is not installed (qemu-utils)")


def made(directory: Path, kind: str, *options: str) -> Path:
    """A file of the format with CONTENT."""
    (directory / "disk.raw").write_bytes(CONTENT)
    target = directory / f"disk.{kind}"
    words = [TOOL, "convert", "-f", "raw", "-O", kind, *options, directory / "disk.raw", target]
    subprocess.run(words, check=True, capture_output=True)
    return target


def convert(source: Path, place: Path) -> tuple[bytes, str, list[int]]:
    """Content and name of the raw disk, and the progress that was told."""
    told: list[int] = []
    with converted(source, place, NOBODY, lambda done, _total: told.append(done)) as disk:
        found = disk.read_bytes(), disk.name, told
    assert list(place.iterdir()) == []
    return found


@pytest.mark.parametrize(("kind", "name"), [("vmdk", "vmdk"), ("vpc", "vhd"), ("vhdx", "vhdx"), ("vdi", "vdi")])
def test_a_foreign_disk_becomes_a_raw_one(tmp_path: Path, kind: str, name: str) -> None:
    source = made(tmp_path, kind)
    before = source.read_bytes()
    assert foreign_format(source) == name
    content, called, told = convert(source, tmp_path / "place")
    assert content[:SIZE] == CONTENT
    assert called == "disk.raw"
    assert told[-1] == 100
    assert source.read_bytes() == before


def test_a_file_that_needs_no_tool_is_taken_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "disk.raw"
    source.write_bytes(CONTENT)
    with converted(source, tmp_path / "place", NOBODY, lambda _done, _total: None) as disk:
        assert disk == source


def test_a_descriptor_that_names_other_files_is_refused(tmp_path: Path) -> None:
    text = made(tmp_path, "vmdk", "-o", "subformat=monolithicFlat")
    assert text.read_bytes().startswith(b"# Disk")
    with pytest.raises(ImageError, match="names other files"):
        convert(text, tmp_path / "place")
    hidden = bytearray(made(tmp_path, "vmdk").read_bytes())
    hidden[12:20] = bytes(8)  # a capacity of zero makes readers look at the descriptor inside
    (tmp_path / "hidden.vmdk").write_bytes(hidden)
    with pytest.raises(ImageError, match="names other files"):
        convert(tmp_path / "hidden.vmdk", tmp_path / "place")


def test_a_parent_that_the_file_names_is_not_opened(tmp_path: Path) -> None:
    parent = made(tmp_path, "vmdk").rename(tmp_path / "parent.vmdk")
    child = tmp_path / "child.vmdk"
    words = [TOOL, "create", "-f", "vmdk", "-F", "vmdk", "-b", str(parent), str(child)]
    subprocess.run(words, check=True, capture_output=True)
    assert str(parent).encode() in child.read_bytes()
    content, _, _ = convert(child, tmp_path / "place")
    assert b"first sector" not in content


def test_what_a_conversion_left_that_was_cut_off_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "convert-old").mkdir(parents=True)
    (place / "convert-old" / "output").write_bytes(CONTENT)
    with converted(made(tmp_path, "vdi"), place, NOBODY, lambda _done, _total: None) as first:
        content, _, _ = convert_beside(tmp_path, place)
        assert first.read_bytes()[:SIZE] == content[:SIZE] == CONTENT
    assert list(place.iterdir()) == []


def convert_beside(directory: Path, place: Path) -> tuple[bytes, str, list[int]]:
    """A second conversion while the first is held."""
    with converted(made(directory, "vmdk"), place, NOBODY, lambda _done, _total: None) as disk:
        return disk.read_bytes(), disk.name, []


@pytest.mark.parametrize("kind", ["vmdk", "vhdx"])
def test_a_damaged_file_is_told_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    source = made(tmp_path, kind)
    os.truncate(source, 600)
    place = tmp_path / "place"
    with pytest.raises(ImageError, match="cannot be converted"):
        convert(source, place)
    assert list(place.iterdir()) == []


def test_a_disk_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    source = made(tmp_path, "vdi")
    image = bytearray(source.read_bytes())
    image[0x170:0x178] = struct.pack("<Q", 1 << 61)
    source.write_bytes(image)
    with pytest.raises(ImageError, match="cannot be converted"):
        convert(source, tmp_path / "place")


def test_without_a_tool_the_sentence_says_how_to_get_one() -> None:
    described = {"formats": {"vmdk": "vmdk"}, "command": ["no-such-tool"], "install": "apt-get install it"}
    with pytest.raises(ImageError, match="is a VMDK file: apt-get install it"):
        find_tool("vmdk", [{"imageTools": [described]}])
    with pytest.raises(ImageError, match="convert it to a raw disk first"):
        find_tool("vmdk", [{}])


def test_the_command_line_takes_it_in(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "anyvisor", "--data-dir", str(tmp_path / "data"), "image"]
    source = made(tmp_path, "vmdk")
    subprocess.run([*program, "import", source, "--name", "foreign"], check=True, capture_output=True)
    listed = subprocess.run([*program, "list", "-o", "json"], check=True, capture_output=True, text=True).stdout
    assert '"path": "/disk/disk.raw"' in listed
    assert f'"virtual_bytes": {SIZE}' in listed
