"""Reading container images: OCI layouts and `docker save` files, as tar (plain or gzipped) or as a directory.

Only regular files are taken. Names are data, never paths on this machine.
Formats: https://github.com/opencontainers/image-spec (layout, layer), `docker save` manifest.json.
"""

import gzip
import json
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.bundle import Bundle, DirectoryBundle, TarBundle

_MAX_LAYERS = 128
_MAX_FILES = 100_000
_MAX_METADATA_BYTES = 4 * 1024**2
MAX_LAYER_BYTES = 1024**4
"""What a layer may unpack to: an honest disk is smaller, a few megabytes that unpack without end are not."""
_MAX_NAME_BYTES = 1024
_BUFFER = 1024**2
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


def extract(path: Path, wanted: Callable[[str], bool], sink: Sink, layer_bytes: int = MAX_LAYER_BYTES) -> None:
    """Give each wanted regular file of the image's final root to `sink(path, content)`.

    `path` is an archive, or a directory in the OCI layout.

    Raises:
        ImageError: it is damaged, no container image, or has a layer of more than `layer_bytes` when unpacked.
    """
    try:
        if path.is_dir():
            _extract_layers(DirectoryBundle(path), wanted, sink, layer_bytes)
            return
        with tarfile.open(path, "r:*") as tar:
            if not _extract_layers(TarBundle(tar), wanted, sink, layer_bytes):
                _extract_plain(tar, wanted, sink)
    except _DAMAGE as error:
        raise ImageError(f"the archive is damaged: {error}") from error


def _extract_layers(bundle: Bundle, wanted: Callable[[str], bool], sink: Sink, limit: int) -> bool:
    """False when it holds no image, but plain files."""
    layers = _layers(bundle)
    if layers is None:
        return False
    winners = _winners(bundle, layers, wanted, limit)
    for number, name in enumerate(layers):
        chosen = {file.member: file.path for file in winners.values() if file.layer == number}
        if chosen:
            _extract_layer(bundle, name, chosen, sink, limit)
    return True


def _json(bundle: Bundle, name: str) -> Any:
    if bundle.size(name) > _MAX_METADATA_BYTES:
        raise ImageError(f"the archive's {name} is larger than {_MAX_METADATA_BYTES} bytes")
    with bundle.open(name) as file:
        return json.loads(file.read(_MAX_METADATA_BYTES))


def _layers(bundle: Bundle) -> list[str] | None:
    """Names of the image's layers, lowest first; None for an archive of plain files."""
    names = bundle.names()
    if "manifest.json" in names:
        manifests = _json(bundle, "manifest.json")
        if not isinstance(manifests, list) or len(cast("list[Any]", manifests)) != 1:
            raise ImageError("the archive holds several images: save one alone")
        layers = [str(name) for name in cast("list[Any]", manifests[0]["Layers"])]
    elif "index.json" in names:
        layers = _oci_layers(bundle)
    else:
        return None
    if len(layers) > _MAX_LAYERS:
        raise ImageError(f"the image has more than {_MAX_LAYERS} layers")
    return layers


def _oci_layers(bundle: Bundle) -> list[str]:
    document = _json(bundle, "index.json")
    for _ in range(4):
        if "layers" in document:
            return [_blob(layer["digest"]) for layer in document["layers"]]
        manifests = document["manifests"]
        if len(manifests) != 1:
            raise ImageError("the archive holds images for several platforms: save one alone")
        document = _json(bundle, _blob(manifests[0]["digest"]))
    raise ImageError("the archive's index is nested too deeply")


def _blob(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    if algorithm not in ("sha256", "sha512") or not value.isalnum():
        raise ImageError(f"the archive names a blob by an unknown digest {digest[:80]!r}")
    return f"blobs/{algorithm}/{value}"


class _Limited:
    """A stream that ends with an error where it becomes longer than it may."""

    def __init__(self, stream: IO[bytes], name: str, limit: int) -> None:
        self._stream, self._name, self._limit, self._left = stream, name, limit, limit

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        self._left -= len(data)
        if self._left < 0:
            raise ImageError(f"the image's layer {self._name} unpacks to more than {self._limit} bytes")
        return data


@contextmanager
def _open_layer(bundle: Bundle, name: str, limit: int) -> Generator[tarfile.TarFile]:
    with bundle.open(name) as file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"(\xb5/\xfd":
            raise ImageError("the image's layers are compressed with zstd: save it with gzip or uncompressed layers")
        plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if magic[:2] == b"\x1f\x8b" else file
        stream = cast("IO[bytes]", _Limited(plain, name, limit))
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER) as layer:
            yield layer


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


def _winners(bundle: Bundle, layers: list[str], wanted: Callable[[str], bool], limit: int) -> dict[str, ArchiveFile]:
    """The file that is visible at each wanted path when all layers lie upon each other."""
    visible: dict[str, ArchiveFile] = {}
    for number, name in enumerate(layers):
        added: dict[str, ArchiveFile] = {}
        with _open_layer(bundle, name, limit) as layer:
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


def _extract_layer(bundle: Bundle, name: str, chosen: dict[str, str], sink: Sink, limit: int) -> None:
    with _open_layer(bundle, name, limit) as layer:
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
