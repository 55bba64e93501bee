"""The image store and its archives."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.reference import normalize
from anyvisor.embedded.images.store import ImageStore

DISK = b"\0" * 4096 + b"data".ljust(4096, b"\1")


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def docker_archive(*layers: dict[str, bytes], compress: bool = False) -> bytes:
    files: dict[str, bytes] = {}
    names: list[str] = []
    for number, layer in enumerate(layers):
        content = tar_of(layer)
        names.append(f"{number}/layer.tar")
        files[names[-1]] = gzip.compress(content) if compress else content
    files["manifest.json"] = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": names}]).encode()
    return tar_of(files)


def oci_archive(*layers: dict[str, bytes]) -> bytes:
    files: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, str | int]:
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = {"schemaVersion": 2, "layers": [blob(gzip.compress(tar_of(layer))) for layer in layers]}
    files["index.json"] = json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}).encode()
    return tar_of(files)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def take(store: ImageStore, tmp_path: Path, content: bytes, name: str = "demo") -> None:
    file = tmp_path / "incoming.img"
    file.write_bytes(content)
    store.import_file(file, name)


def content(store: ImageStore, name: str) -> bytes:
    with open(store.open(store.get(name).disk()), "rb") as file:
        return file.read()


def test_a_raw_disk_comes_back_as_it_was(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, DISK)
    disk = store.get("demo").disk()
    assert (disk.format, disk.virtual_bytes, disk.path) == ("raw", len(DISK), "/disk/incoming.img")
    assert content(store, "demo:latest") == DISK


def test_a_qcow2_disk_is_recorded_as_such(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, qcow2.empty(1 << 30))
    assert (store.get("demo").disk().format, store.get("demo").disk().virtual_bytes) == ("qcow2", 1 << 30)


def gzipped_docker_archive(*layers: dict[str, bytes]) -> bytes:
    return docker_archive(*layers, compress=True)


@pytest.mark.parametrize("make", [docker_archive, gzipped_docker_archive, oci_archive])
def test_layers_lie_upon_each_other(store: ImageStore, tmp_path: Path, make: Callable[..., bytes]) -> None:
    lower = {"disk/a.img": b"old".ljust(512), "disk/gone.img": b"g".ljust(512), "etc/passwd": b"root"}
    upper = {"disk/a.img": DISK, "disk/.wh.gone.img": b"", "boot/vmlinuz": b"kernel"}
    take(store, tmp_path, make(lower, upper))
    image = store.get("demo")
    assert [file.path for file in image.files] == ["/boot/vmlinuz", "/disk/a.img"]
    assert content(store, "demo") == DISK


BAD = [
    ("an empty file", b"", "no disk"),
    ("a foreign format", b"KDMV".ljust(4096, b"\0"), "VMDK"),
    ("a compressed disk", gzip.compress(b"x" * 9999), "gzip"),
    ("a damaged qcow2", qcow2.empty(1 << 30)[:70], "damaged"),
    ("an archive without files for a VM", tar_of({"etc/passwd": b"x"}), "below /disk"),
    ("an archive that ends early", docker_archive({"disk/a.img": DISK})[:3000], "damaged"),
    ("several images", tar_of({"manifest.json": b'[{"Layers": []}, {"Layers": []}]'}), "several"),
    ("a manifest of another shape", tar_of({"manifest.json": b'[{"Layers": 5}]'}), "damaged"),
]


@pytest.mark.parametrize(("data", "words"), [(d, w) for _, d, w in BAD], ids=[name for name, _, _ in BAD])
def test_what_cannot_be_used_is_refused_and_leaves_nothing(
    store: ImageStore, tmp_path: Path, data: bytes, words: str
) -> None:
    with pytest.raises(ImageError, match=words):
        take(store, tmp_path, data)
    assert store.images() == []
    assert list((tmp_path / "store" / "blobs" / "sha256").iterdir()) == []


def test_names_that_climb_out_stay_in(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, docker_archive({"../../disk/a.img": DISK}))
    assert [file.path for file in store.get("demo").files] == ["/disk/a.img"]


def test_removal_keeps_what_others_use(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, DISK, "one")
    take(store, tmp_path, DISK, "two")
    store.remove("one")
    assert content(store, "two") == DISK
    store.remove("two")
    assert list((tmp_path / "store" / "blobs" / "sha256").iterdir()) == []
    with pytest.raises(ImageError, match="anyvisor image import FILE --name two"):
        store.get("two")


def test_a_damaged_entry_is_told_and_hides_no_other(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, DISK, "one")
    for ref in (tmp_path / "store" / "refs").iterdir():
        ref.write_bytes(b'{"files": [{"sha256": "../../etc/passwd"}]}')
    with pytest.raises(ImageError, match="import the image again"):
        store.get("one")
    assert store.images() == []


@pytest.mark.parametrize(
    ("given", "full"),
    [("demo", "demo:latest"), ("host:5000/a/b", "host:5000/a/b:latest"), ("a:1", "a:1"), ("a@sha256:" + "0" * 64,) * 2],
)
def test_references_are_completed(given: str, full: str) -> None:
    assert normalize(given) == full


@pytest.mark.parametrize("given", ["", "../a", "a b", "a\n", "x" * 600])
def test_what_is_no_reference_is_refused(given: str) -> None:
    with pytest.raises(ImageError, match="no image name"):
        normalize(given)
