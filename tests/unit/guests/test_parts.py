"""How the guests are put together, without building any."""

import hashlib
import json
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from guests import archive
from guests.build import _is_static
from guests.initramfs import Entry, module_order, pack


def test_the_archive_is_one_that_cpio_reads() -> None:
    if shutil.which("cpio") is None:
        pytest.skip("cpio is not installed")
    entries = [
        Entry("dir", stat.S_IFDIR | 0o755),
        Entry("dir/file", stat.S_IFREG | 0o644, b"odd"),
        Entry("link", stat.S_IFLNK | 0o777, b"dir/file"),
    ]
    listed = subprocess.run(
        ["cpio", "-itv", "--quiet"], input=pack(entries), capture_output=True, check=True, timeout=30
    ).stdout.decode()
    lines = listed.splitlines()
    assert [line.split()[0] for line in lines] == ["drwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"]
    assert lines[2].endswith("link -> dir/file")


def test_the_archive_does_not_depend_on_the_clock() -> None:
    assert pack([Entry("a", stat.S_IFREG)]) == pack([Entry("a", stat.S_IFREG)])


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "k/virtio.ko: k/virtio_ring.ko\n"
        "k/virtio_ring.ko:\n"
        "k/virtio_blk.ko: k/virtio.ko k/virtio_ring.ko\n"
        "k/button.ko.xz:\n"
    )
    order = module_order(tmp_path, ["virtio_blk", "built_in", "button", "virtio"])
    assert order == ["k/virtio_ring.ko", "k/virtio.ko", "k/virtio_blk.ko", "k/button.ko.xz"]


def test_image_archives_name_their_parts_by_digest(tmp_path: Path) -> None:
    (tmp_path / "kernel").write_bytes(b"the kernel")
    archive.write(tmp_path / "image.tar", {"boot/vmlinuz": tmp_path / "kernel"}, name="tiny")
    with tarfile.open(tmp_path / "image.tar") as tar:
        contents = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        data = {name: file.read() for name, file in contents.items() if file is not None}
        index = json.loads(data["index.json"])
        manifest = json.loads(data["blobs/sha256/" + index["manifests"][0]["digest"].removeprefix("sha256:")])
        layer = data["blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:")]
        for name, blob in data.items():
            if name.startswith("blobs/"):
                assert name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"
    (tmp_path / "layer.tar").write_bytes(layer)
    with tarfile.open(tmp_path / "layer.tar") as tar:
        kernel = tar.extractfile("boot/vmlinuz")
        assert kernel is not None
        assert kernel.read() == b"the kernel"


def test_programs_with_a_loader_are_not_static(tmp_path: Path) -> None:
    assert not _is_static(Path("/bin/sh").resolve())
    assert not _is_static(tmp_path / "missing")
