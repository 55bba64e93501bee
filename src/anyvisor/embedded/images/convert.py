"""Turning disk files of foreign formats into raw ones, by a driver's tool that runs confined.

The tool parses hostile files, so it runs as a user without rights in a directory of its own, with a copy of the file,
and with limits on memory, on the size of what it writes, and on the time in which nothing comes.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.api.meta import list_at, text_at
from anyvisor.embedded.images import formats
from anyvisor.embedded.images.tool import Confinement, Progress, run
from anyvisor.hri import packages

MAX_DISK_BYTES: Final = 1024**4
"""What a file may become: an honest disk is smaller, a few kilobytes that claim to be exabytes are not."""
INPUT: Final = "input"
OUTPUT: Final = "output"
_VMDK_CAPACITY: Final = slice(12, 20)


@dataclass(frozen=True, slots=True)
class Tool:
    """A converter: its command by the format's word for it, and how to get it."""

    command: tuple[str, ...]
    word: str
    install: str


def foreign_format(source: Path) -> str:
    """The format of a file that only a tool can read; empty for all others."""
    if not source.is_file():
        return ""
    with source.open("rb") as file:
        head = file.read(512)
    name = formats.foreign(head)
    if name == "vmdk":
        _check_vmdk(head)
    return name


def _check_vmdk(head: bytes) -> None:
    """Only files that hold their disk themselves: a descriptor is a text that names other files of this machine."""
    if head[:4] != b"KDMV" or not int.from_bytes(head[_VMDK_CAPACITY], "little"):
        raise ImageError("is a VMDK descriptor, which names other files: export the disk as one (monolithic) file")


def find_tool(format_name: str, manifests: Sequence[dict[str, Any]] | None = None) -> Tool:
    """The first tool of an installed driver that reads the format.

    Raises:
        ImageError: there is none; the message says how to get one.
    """
    hints: list[str] = []
    for manifest in manifests if manifests is not None else _manifests():
        for described in list_at(manifest, "imageTools"):
            word = text_at(described, "formats", format_name)
            if not word:
                continue
            tool = Tool(tuple(described["command"]), word, text_at(described, "install"))
            if shutil.which(tool.command[0]) is not None:
                return tool
            hints.append(tool.install or f"install {tool.command[0]}")
    hint = f": {hints[0]}" if hints else ", and no installed driver has a tool for it: convert it to a raw disk first"
    raise ImageError(f"is a {format_name.upper()} file{hint}")


def _manifests() -> list[dict[str, Any]]:
    return [packages.load(name).manifest for name in packages.present()]


@contextlib.contextmanager
def converted(source: Path, place: Path, user: int, progress: Progress) -> Generator[Path]:
    """A raw disk of the file's content, below `place` while the block runs; the file itself where it needs no tool.

    Raises:
        ImageError: it cannot be converted; the message says why, and nothing is kept.
        OSError: there is no room for it.
    """
    name = foreign_format(source)
    if not name:
        yield source
        return
    tool = find_tool(name)
    directory, held = own_directory(place)
    try:
        shutil.copyfile(source, directory / INPUT)
        if os.geteuid() != user:
            for path in (directory, directory / INPUT):
                os.chown(path, user, user)
        asyncio.run(convert(tool, Confinement(user, directory, MAX_DISK_BYTES, {}), progress))
        made = directory / f"{source.stem}.raw"
        (directory / OUTPUT).rename(made)
        yield made
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def own_directory(place: Path) -> tuple[Path, int]:
    """A new directory below `place`, and the descriptor that keeps others from removing it."""
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    lock = os.open(place, flags)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(place)
        directory = Path(tempfile.mkdtemp(prefix="convert-", dir=place))
        held = os.open(directory, flags)
        fcntl.flock(held, fcntl.LOCK_EX)
        return directory, held
    finally:
        os.close(lock)


def _sweep(place: Path) -> None:
    """Remove what conversions left here that were cut off: nobody holds their directories any more."""
    for left in place.glob("convert-*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


async def convert(tool: Tool, limits: Confinement, progress: Progress) -> None:
    """Make `OUTPUT` of `INPUT` in the directory of `limits`.

    Raises:
        ImageError: the tool failed; the message has its last words.
    """
    places = {"{format}": tool.word, "{input}": INPUT, "{output}": OUTPUT}
    try:
        await run([_filled(word, places) for word in tool.command], limits, progress)
    except ImageError as error:
        raise ImageError(f"cannot be converted: {error}") from error


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word
