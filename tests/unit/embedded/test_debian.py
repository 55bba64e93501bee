"""What a Debian disk is built by, without building one."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.images.debian import recipe as recipes
from anyvisor.embedded.images.debian.build import BuildError, build
from anyvisor.embedded.images.debian.recipe import Recipe, RecipeError
from anyvisor.embedded.images.store import ImageStore


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"packages": ("vim;reboot",)}, "no name of a Debian package"),
        ({"packages": ("--include=x",)}, "no name of a Debian package"),
        ({"suite": "../x"}, "no name of a Debian release"),
        ({"mirror": "file:///etc"}, "no address of a mirror"),
        ({"mirror": "http://a b"}, "no address of a mirror"),
        ({"size_bytes": 512 << 20}, "at least 1Gi"),
        ({"size_bytes": (2 << 30) + 1}, "whole mebibytes"),
    ],
)
def test_what_cannot_be_built_is_said_before(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=words):
        build(replace(Recipe(), **change), tmp_path, lambda _step: None)
    assert list(tmp_path.iterdir()) == []


def test_a_build_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(BuildError, match="run it as root"):
        build(Recipe(), tmp_path, lambda _step: None)


def test_the_key_follows_every_input() -> None:
    variants = [
        Recipe(),
        Recipe(packages=("vim",)),
        Recipe(suite="trixie"),
        Recipe(mirror="http://m/debian"),
        Recipe(size_bytes=4 << 30),
    ]
    assert len({one.key for one in variants}) == len(variants)
    assert Recipe().key == Recipe().key


def test_further_packages_come_beside_the_base() -> None:
    words = recipes.command(Recipe(packages=("nginx",), mirror="http://m/debian"), "/root-of-it", "/hook")
    (include,) = [word for word in words if word.startswith("--include=")]
    assert {"nginx", "cloud-init", "openssh-server"} <= set(include.removeprefix("--include=").split(","))
    assert words[-3:] == ["bookworm", "/root-of-it", "http://m/debian"]


def test_the_partition_takes_the_disk_and_boots() -> None:
    table = recipes.partition_table(2 << 30, 2048)
    assert len(table) == 512 - 446
    status, kind = table[0], table[4]
    start, sectors = struct.unpack_from("<II", table, 8)
    assert (status, kind, start, start + sectors, table[-2:]) == (0x80, 0x83, 2048, (2 << 30) // 512, b"\x55\xaa")


def test_the_same_recipe_is_built_once(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    disk = tmp_path / "disk.raw"
    disk.write_bytes(b"x" * 4096)
    assert store.name_built("key", "debian") is None
    built = store.import_built({"/disk/debian.raw": disk}, "debian", "key")
    again = store.name_built("key", "other")
    assert again is not None
    assert (again.reference, again.digest, again.files) == ("other:latest", built.digest, built.files)
    store.remove("debian")
    assert store.get("other").disk().sha256 == built.disk().sha256
