"""Reading container image archives: OCI image layouts and `docker save` files, as tar, plain or gzipped.

Only regular files are taken. Names are data, never paths on this machine.
Formats: https://github.com/opencontainers/image-spec (layout, layer), `docker save` manifest.json.
"""

import gzip
import json
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from anyvisor.agent.volumes.qcow2 import ImageError

_MAX_LAYERS = 128
_MAX_FILES = 100_000
_MAX_METADATA_BYTES = 4 * 1024**2
_MAX_NAME_BYTES = 1024
# What a damaged archive, or metadata of another shape than the formats say, makes the readers raise.
_DAMAGE = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, LookupError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A regular file of the image's root: its absolute name and what it stands for in its layer."""

    path: str
    layer: int
    member: str


Sink = Callable[[str, IO[bytes]], None]


def is_archive(path: Path) -> bool:
    """Whether the file is a tar archive, plain or gzipped."""
    try:
        with tarfile.open(path, "r:*") as tar:
            return tar.next() is not None
    except (tarfile.TarError, EOFError, OSError):
        return False


def extract(path: Path, wanted: Callable[[str], bool], sink: Sink) -> None:
    """Give each wanted regular file of the image's final root to `sink(path, content)`.

    Raises:
        ImageError: the archive is damaged, or no container image.
    """
    try:
        with tarfile.open(path, "r:*") as tar:
            layers = _layers(tar)
            if layers is None:
                _extract_plain(tar, wanted, sink)
                return
            winners = _winners(tar, layers, wanted)
            for number, name in enumerate(layers):
                chosen = {file.member: file.path for file in winners.values() if file.layer == number}
                if chosen:
                    _extract_layer(tar, name, chosen, sink)
    except _DAMAGE as error:
        raise ImageError(f"the archive is damaged: {error}") from error


def _json(tar: tarfile.TarFile, name: str) -> Any:
    member = tar.getmember(name)
    if member.size > _MAX_METADATA_BYTES:
        raise ImageError(f"the archive's {name} is larger than {_MAX_METADATA_BYTES} bytes")
    file = tar.extractfile(member)
    if file is None:
        raise ImageError(f"the archive's {name} is no regular file")
    return json.loads(file.read())


def _names(tar: tarfile.TarFile) -> set[str]:
    names = tar.getnames()
    if len(names) > _MAX_FILES:
        raise ImageError(f"the archive holds more than {_MAX_FILES} files")
    return set(names)


def _layers(tar: tarfile.TarFile) -> list[str] | None:
    """Member names of the image's layers, lowest first; None for an archive of plain files."""
    names = _names(tar)
    if "manifest.json" in names:
        manifests = _json(tar, "manifest.json")
        if not isinstance(manifests, list) or len(cast("list[Any]", manifests)) != 1:
            raise ImageError("the archive holds several images: save one alone")
        layers = [str(name) for name in cast("list[Any]", manifests[0]["Layers"])]
    elif "index.json" in names:
        layers = _oci_layers(tar)
    else:
        return None
    if len(layers) > _MAX_LAYERS:
        raise ImageError(f"the image has more than {_MAX_LAYERS} layers")
    return layers


def _oci_layers(tar: tarfile.TarFile) -> list[str]:
    document = _json(tar, "index.json")
    for _ in range(4):
        if "layers" in document:
            return [_blob(layer["digest"]) for layer in document["layers"]]
        manifests = document["manifests"]
        if len(manifests) != 1:
            raise ImageError("the archive holds images for several platforms: save one alone")
        document = _json(tar, _blob(manifests[0]["digest"]))
    raise ImageError("the archive's index is nested too deeply")


def _blob(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    if algorithm not in ("sha256", "sha512") or not value.isalnum():
        raise ImageError(f"the archive names a blob by an unknown digest {digest[:80]!r}")
    return f"blobs/{algorithm}/{value}"


def _open_layer(tar: tarfile.TarFile, name: str) -> tarfile.TarFile:
    file = tar.extractfile(name)
    if file is None:
        raise ImageError(f"the archive's layer {name} is no regular file")
    magic = file.read(4)
    file.seek(0)
    if magic == b"(\xb5/\xfd":
        raise ImageError("the image's layers are compressed with zstd: save it with gzip or uncompressed layers")
    return tarfile.open(fileobj=file, mode="r:*")


def _clean(name: str) -> str | None:
    if len(name) > _MAX_NAME_BYTES:
        return None
    return posixpath.normpath("/" + name).replace("//", "/")


def _members(layer: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for count, member in enumerate(layer):
        if count >= _MAX_FILES:
            raise ImageError(f"a layer holds more than {_MAX_FILES} files")
        path = _clean(member.name)
        if path is not None:
            yield path, member


def _winners(tar: tarfile.TarFile, layers: list[str], wanted: Callable[[str], bool]) -> dict[str, ArchiveFile]:
    """The file that is visible at each wanted path when all layers lie upon each other."""
    visible: dict[str, ArchiveFile] = {}
    for number, name in enumerate(layers):
        added: dict[str, ArchiveFile] = {}
        with _open_layer(tar, name) as layer:
            for path, member in _members(layer):
                folder, base = posixpath.split(path)
                if base == ".wh..wh..opq":
                    _hide(visible, folder)
                elif base.startswith(".wh."):
                    hidden = posixpath.join(folder, base[4:])
                    visible.pop(hidden, None)
                    _hide(visible, hidden)
                elif member.isreg() and wanted(path):
                    added[path] = ArchiveFile(path, number, member.name)
                else:
                    visible.pop(path, None)
        visible.update(added)
    return visible


def _hide(visible: dict[str, ArchiveFile], folder: str) -> None:
    for path in [path for path in visible if path.startswith(folder.rstrip("/") + "/")]:
        del visible[path]


def _extract_layer(tar: tarfile.TarFile, name: str, chosen: dict[str, str], sink: Sink) -> None:
    with _open_layer(tar, name) as layer:
        for _, member in _members(layer):
            if member.isreg() and member.name in chosen:
                content = layer.extractfile(member)
                assert content is not None
                sink(chosen[member.name], content)


def _extract_plain(tar: tarfile.TarFile, wanted: Callable[[str], bool], sink: Sink) -> None:
    for path, member in _members(tar):
        if member.isreg() and wanted(path):
            content = tar.extractfile(member)
            assert content is not None
            sink(path, content)
