"""Build a Debian disk: mmdebstrap fills a directory, mke2fs makes the file system, GRUB's parts go before it.

Nothing is mounted, and no loop device is needed. GRUB for BIOS is two files: its first sector, and its core that
fits between the partition table and the first partition; the core names its own place by default.
https://www.gnu.org/software/grub/manual/grub/html_node/Images.html
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from anyvisor.embedded.images.debian import recipe as recipes
from anyvisor.embedded.images.debian.recipe import Recipe

_START: Final = 2048
_SECTOR: Final = 512
_TABLE: Final = 446
_STEP: Final = re.compile(r"^I: (.*)$")
_LINES: Final = 12
_APART: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Mounts and processes of its own: however a build ends, the kernel takes both away with it."""

Report = Callable[[str], None]
"""Told of each step."""


class BuildError(Exception):
    """The disk was not built; the message says what is missing or what failed."""


@dataclass(frozen=True, slots=True)
class Built:
    """A disk, and the kernel and initramfs that lie in it, too, for a direct boot."""

    disk: Path
    kernel: Path
    initrd: Path


def build(recipe: Recipe, place: Path, report: Report) -> Built:
    """Build into the directory `place`; what is in between is removed.

    Raises:
        BuildError: with the cause.
        RecipeError: the recipe cannot be built.
    """
    recipe.check()
    _check_host()
    with tempfile.TemporaryDirectory(dir=place, prefix=".root-") as temporary:
        root = Path(temporary) / "root"
        _bootstrap(recipe, root, report)
        report("making the disk")
        return _make_disk(recipe, root, place)


def _check_host() -> None:
    if os.geteuid() != 0:
        raise BuildError("only root can unpack Debian packages with their owners: run it as root")
    for program, package in (("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs"), ("unshare", "util-linux")):
        if shutil.which(program, path=_path()) is None:
            raise BuildError(f"{program} is not installed: apt-get install {package}")


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _bootstrap(recipe: Recipe, root: Path, report: Report) -> None:
    with tempfile.TemporaryDirectory(dir=root.parent) as scripts:
        hook = Path(scripts) / "finish"
        files = Path(scripts) / "files"
        _lay_out(files)
        hook.write_text(f'#!/bin/sh\nset -e\ncp -a {files}/. "$1"\nchroot "$1" sh -c "$(cat {hook}.inside)"\n')
        hook.with_name("finish.inside").write_text(recipes.finish_script())
        hook.chmod(0o700)
        _run([*_APART, *recipes.command(recipe, str(root), str(hook))], report)


def _lay_out(target: Path) -> None:
    for name, content in {**recipes.FILES, "boot/grub/early.cfg": recipes.EARLY_GRUB}.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for directory in (target, *(path for path in target.rglob("*") if path.is_dir())):
        directory.chmod(0o755)


def _make_disk(recipe: Recipe, root: Path, place: Path) -> Built:
    kernel, initrd = (_inside(root, name) for name in ("vmlinuz", "initrd.img"))
    core, boot = root / "boot/grub/core.img", root / "boot/grub/boot.img"
    if core.stat().st_size > (_START - 1) * _SECTOR:
        raise BuildError("the boot loader does not fit before the first partition")
    disk = place / "disk.raw"
    with disk.open("wb") as file:
        file.truncate(recipe.size_bytes)
    blocks = recipe.size_bytes // 1024 - _START * _SECTOR // 1024
    _run(
        [
            *("mke2fs", "-q", "-F", "-t", "ext4", "-L", recipes.LABEL, "-O", "^metadata_csum_seed", "-m", "1"),
            *("-E", f"offset={_START * _SECTOR}", "-d", str(root), str(disk), f"{blocks}k"),
        ],
        lambda _step: None,
    )
    with disk.open("r+b") as file:
        file.write(boot.read_bytes()[:_TABLE] + recipes.partition_table(recipe.size_bytes, _START))
        file.write(core.read_bytes())
    built = Built(disk, place / "vmlinuz", place / "initrd.img")
    shutil.copyfile(kernel, built.kernel)
    shutil.copyfile(initrd, built.initrd)
    return built


def _inside(root: Path, name: str) -> Path:
    """What Debian's link at the top of the root names."""
    target = root / os.readlink(root / name)
    if not target.resolve().is_relative_to(root.resolve()) or not target.is_file():
        raise BuildError(f"the packages brought no /{name}")
    return target


def _run(command: list[str], report: Report) -> None:
    environment = {"PATH": _path(), "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/var/tmp"}
    environment |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    lines: list[str] = []
    reader = threading.Thread(target=_follow, args=(process.stderr, lines, report))
    reader.start()
    try:
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        reader.join()
    if code:
        said = "\n".join(line for line in lines if not _STEP.match(line))[-2000:]
        raise BuildError(f"{command[0]} failed:\n{said}")


def _follow(stream: IO[str], lines: list[str], report: Report) -> None:
    for line in stream:
        lines.append(line.rstrip())
        del lines[:-_LINES]
        if found := _STEP.match(lines[-1]):
            report(found[1])
