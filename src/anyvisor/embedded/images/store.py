"""The store on disk: `blobs/sha256/<hex>` holds content, `refs/<hash of the reference>.json` what an image is.

A blob is written once, synced, and never changed; a reference is replaced whole. So readers need no lock, and a crash
leaves at most unreferenced files, which the next import or removal sweeps.
"""

import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images import archive, formats
from anyvisor.embedded.instance import write_file

_CHUNK = 1024 * 1024
_MAX_BLOB_BYTES = 16 * 1024**4
# https://github.com/distribution/reference: [host[:port]/]path[:tag][@digest]
_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)

Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of an image. `format` is empty for files that are no disks."""

    path: str
    sha256: str
    bytes: int
    format: str
    virtual_bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    """An imported image. `created` is in seconds since the epoch."""

    reference: str
    digest: str
    created: int
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """What the image occupies, blobs shared with other images included."""
        return sum(file.bytes for file in self.files)

    def disk(self, path: str = "") -> StoredFile:
        """The image's disk: at `path`, or the only one below `/disk`.

        Raises:
            ImageError: there is none, or more than one.
        """
        disks = [file for file in self.files if file.format]
        if path:
            chosen = [file for file in disks if file.path == path]
            if not chosen:
                raise ImageError(f"image {self.reference} has no disk at {path} (it has: {_listed(disks)})")
            return chosen[0]
        if len(disks) != 1:
            raise ImageError(f"image {self.reference} must hold one file below /disk (it has: {_listed(disks)})")
        return disks[0]

    def file(self, path: str) -> StoredFile:
        """The file at `path`.

        Raises:
            ImageError: there is none.
        """
        for file in self.files:
            if file.path == path:
                return file
        raise ImageError(f"image {self.reference} has no file {path} (it has: {_listed(self.files)})")


def _listed(files: "tuple[StoredFile, ...] | list[StoredFile]") -> str:
    names = [file.path for file in files[:8]]
    return ", ".join(names) + (", ..." if len(files) > 8 else "") if names else "none"


def normalize(reference: str) -> str:
    """The reference with the tag `latest` where it names neither tag nor digest.

    Raises:
        ImageError: it is no image reference.
    """
    if len(reference) > 512 or not _REFERENCE.fullmatch(reference):
        raise ImageError(f"{reference[:80]!r} is no image name: use NAME[:TAG] or HOST/NAME[:TAG]")
    if "@" in reference or ":" in reference.rsplit("/", 1)[-1]:
        return reference
    return f"{reference}:latest"


class ImageStore:
    """Images in one directory."""

    def __init__(self, directory: Path) -> None:
        self._blobs = directory / "blobs" / "sha256"
        self._refs = directory / "refs"
        self._lock = directory / "lock"
        for path in (self._blobs, self._refs):
            path.mkdir(mode=0o711, parents=True, exist_ok=True)

    def import_file(self, source: Path, reference: str, progress: Progress | None = None) -> Image:
        """Take in a raw or qcow2 disk, or an archive of a container image, under `reference`.

        Raises:
            ImageError: the file cannot be used; nothing was kept.
            OSError: it cannot be read, or the store's disk is full.
        """
        reference = normalize(reference)
        with self._locked():
            if archive.is_archive(source):
                files = self._take_archive(source, progress)
            else:
                with source.open("rb") as content:
                    files = [self._take(f"/disk/{source.name}", content, progress)]
            if not files:
                raise ImageError(f"{source} holds no files below /disk or /boot")
            identity = json.dumps([(file.path, file.sha256) for file in files])
            digest = "sha256:" + hashlib.sha256(identity.encode()).hexdigest()
            image = Image(reference, digest, int(time.time()), tuple(files))
            write_file(self._ref(reference), json.dumps(asdict(image)).encode(), 0o644)
            self._sweep()
        return image

    def get(self, reference: str) -> Image:
        """The image of that name.

        Raises:
            ImageError: there is none.
        """
        try:
            return _decode(json.loads(self._ref(normalize(reference)).read_bytes()))
        except FileNotFoundError as error:
            raise ImageError(
                f"image {reference} is not here: `anyvisor image import FILE --name {reference}`"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise ImageError(f"the store's entry of {reference} is damaged: import the image again") from error

    def images(self) -> list[Image]:
        """All images, by name."""
        return sorted(self._images(), key=lambda image: image.reference)

    def remove(self, reference: str) -> Image:
        """Forget an image and drop what no other image uses. Machines that run keep their open files.

        Raises:
            ImageError: there is none.
        """
        with self._locked():
            image = self.get(reference)
            self._ref(image.reference).unlink()
            self._sweep()
        return image

    def open(self, file: StoredFile) -> int:
        """A read-only descriptor of a file's content."""
        return os.open(self._blobs / file.sha256, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _ref(self, reference: str) -> Path:
        return self._refs / f"{hashlib.sha256(reference.encode()).hexdigest()}.json"

    def _images(self) -> Iterator[Image]:
        for path in self._refs.glob("*.json"):
            try:
                yield _decode(json.loads(path.read_bytes()))
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue

    @contextmanager
    def _locked(self) -> Generator[None]:
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _take_archive(self, source: Path, progress: Progress | None) -> list[StoredFile]:
        files: list[StoredFile] = []
        archive.extract(source, _wanted, lambda path, content: files.append(self._take(path, content, progress)))
        return sorted(files, key=lambda file: file.path)

    def _take(self, path: str, content: IO[bytes], progress: Progress | None) -> StoredFile:
        handle, name = tempfile.mkstemp(dir=self._blobs, prefix=".incoming-")
        try:
            hashed, size = hashlib.sha256(), 0
            while chunk := content.read(_CHUNK):
                size += len(chunk)
                if size > _MAX_BLOB_BYTES:
                    raise ImageError(f"{path} is larger than {_MAX_BLOB_BYTES} bytes")
                hashed.update(chunk)
                _write_sparsely(handle, chunk)
                if progress is not None:
                    progress(path, size)
            os.ftruncate(handle, size)
            try:
                disk = formats.detect(handle) if path.startswith("/disk/") else None
            except ImageError as error:
                raise ImageError(f"{path} {error}") from error
            os.fchmod(handle, 0o444)
            os.fsync(handle)
            Path(name).replace(self._blobs / hashed.hexdigest())
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        return StoredFile(path, hashed.hexdigest(), size, disk.name if disk else "", disk.virtual_bytes if disk else 0)

    def _sweep(self) -> None:
        used = {file.sha256 for image in self._images() for file in image.files}
        for blob in self._blobs.iterdir():
            if blob.name not in used:
                blob.unlink()


def _wanted(path: str) -> bool:
    return path.startswith(("/disk/", "/boot/"))


def _write_sparsely(handle: int, chunk: bytes) -> None:
    if chunk.count(0) == len(chunk):
        os.lseek(handle, len(chunk), os.SEEK_CUR)
        return
    view = memoryview(chunk)
    while view:
        view = view[os.write(handle, view) :]


def _decode(document: dict[str, Any]) -> Image:
    files = tuple(
        StoredFile(
            str(file["path"]),
            str(file["sha256"]),
            int(file["bytes"]),
            str(file["format"]),
            int(file["virtual_bytes"]),
        )
        for file in document["files"]
    )
    for file in files:
        if not re.fullmatch(r"[0-9a-f]{64}", file.sha256):
            raise ValueError("a blob's name is no SHA-256 sum")
    return Image(str(document["reference"]), str(document["digest"]), int(document["created"]), files)
