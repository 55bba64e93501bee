"""The store on disk: `blobs/sha256/<hex>` holds content, `refs/<hash of the reference>.json` what an image is.

A blob is written once, synced, and never changed; a reference is replaced whole. So readers need no lock, and a crash
leaves at most unreferenced files, which the next import or removal sweeps. Two locks part those who write: `lock` is
held for moments, while references and uses change; `incoming`, shared by those who bring content in, keeps its blobs
from being swept before a reference names them. When an image was used last is the time of its reference's file.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images import archive, formats
from anyvisor.embedded.images.reference import normalize
from anyvisor.embedded.images.uses import Use, Uses
from anyvisor.embedded.instance import write_file

_CHUNK = 1024 * 1024
_MAX_BLOB_BYTES = 16 * 1024**4
FROM_FILE, FROM_REGISTRY = "file", "registry"

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
    """An image that is here. `created` is in seconds since the epoch."""

    reference: str
    digest: str
    """The registry's, or that of the files when they were imported."""
    created: int
    files: tuple[StoredFile, ...]
    origin: str = FROM_FILE
    """An image from a registry can be had again; what a person brought in is only removed by one."""
    recipe: str = ""
    """What it was built by here, if it was: the same recipe is not built twice."""

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


@dataclass(frozen=True, slots=True)
class Usage:
    """An image, who uses it, when it was used last (seconds since the epoch), and what it occupies."""

    image: Image
    users: tuple[str, ...]
    used_at: float
    disk_bytes: int


class ImageStore:
    """Images in one directory; no layer that comes in may unpack to more than `layer_bytes`."""

    def __init__(self, directory: Path, layer_bytes: int = archive.MAX_LAYER_BYTES) -> None:
        self._layer_bytes = layer_bytes
        self._blobs = directory / "blobs" / "sha256"
        self._refs = directory / "refs"
        self._uses = Uses(directory / "uses")
        self._lock = directory / "lock"
        self._incoming = directory / "incoming"
        for path in (self._blobs, self._refs, self._uses.directory):
            path.mkdir(mode=0o711, parents=True, exist_ok=True)

    def import_file(
        self, source: Path, reference: str, progress: Progress | None = None, *, pulled_digest: str = ""
    ) -> Image:
        """Take in a raw or qcow2 disk, or a container image (archive or OCI layout), under `reference`.

        `pulled_digest` is that of the registry it came from.

        Raises:
            ImageError: the file cannot be used; nothing was kept.
            OSError: it cannot be read, or the store's disk is full.
        """
        reference = normalize(reference)
        with self._bringing_in():
            if source.is_dir() or archive.is_archive(source):
                files = self._take_archive(source, progress)
            else:
                files = [self._take_file(f"/disk/{source.name}", source, progress)]
            if not files:
                raise ImageError(f"{source} holds no files below /disk or /boot")
            origin = FROM_REGISTRY if pulled_digest else FROM_FILE
            image = Image(reference, pulled_digest or _digest(files), int(time.time()), tuple(files), origin)
            self._name(image)
        return image

    def import_built(self, sources: Mapping[str, Path], reference: str, recipe: str) -> Image:
        """Take in the files of an image (by their paths in it) that was built here by `recipe`.

        Raises:
            ImageError: one of them cannot be used; nothing was kept.
            OSError: it cannot be read, or the store's disk is full.
        """
        reference = normalize(reference)
        with self._bringing_in():
            files = [self._take_file(path, source, None) for path, source in sorted(sources.items())]
            image = Image(reference, _digest(files), int(time.time()), tuple(files), FROM_FILE, recipe)
            self._name(image)
        return image

    def name_built(self, recipe: str, reference: str) -> Image | None:
        """Give what a recipe made a further name; None when it is not here."""
        with self._locked():
            found = next((image for image in self.images() if image.recipe == recipe), None)
            if found is None:
                return None
            image = replace(found, reference=normalize(reference))
            write_file(self._ref(image.reference), json.dumps(asdict(image)).encode(), 0o644)
        return image

    @contextmanager
    def _bringing_in(self) -> Generator[None]:
        try:
            with _held(self._incoming, fcntl.LOCK_SH):
                yield
        finally:
            with self._locked():
                self._sweep()

    def _name(self, image: Image) -> None:
        with self._locked():
            write_file(self._ref(image.reference), json.dumps(asdict(image)).encode(), 0o644)

    def _take_file(self, path: str, source: Path, progress: Progress | None) -> StoredFile:
        with source.open("rb") as content:
            return self._take(path, content, progress)

    def find(self, reference: str) -> Image | None:
        """The image of that name, if it is here and whole.

        Raises:
            ImageError: it is no name of an image.
        """
        normalize(reference)
        try:
            return self.get(reference)
        except ImageError:
            return None

    def get(self, reference: str) -> Image:
        """The image of that name.

        Raises:
            ImageError: there is none.
        """
        try:
            return _decode(json.loads(self._ref(normalize(reference)).read_bytes()))
        except FileNotFoundError as error:
            raise ImageError(
                f"image {reference} is not here: `anyvisor image pull {reference}`, "
                f"or `anyvisor image import FILE --name {reference}`"
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

    def use(self, user: str, group: str, title: str, references: Iterable[str]) -> dict[str, Image]:
        """Keep images for a user until it is done; `group` and `title` are as in `Use`.

        Raises:
            ImageError: one of them is not here (any more).
        """
        with self._locked():
            found = {reference: self.get(reference) for reference in references}
            for reference in found:
                os.utime(self._ref(normalize(reference)))
            held = {image.reference: sorted({file.sha256 for file in image.files}) for image in found.values()}
            self._uses.write(user, Use(group, title, held))
        return found

    def done(self, user: str) -> None:
        """The user needs its images no longer."""
        self._uses.remove(user)

    def keep_only(self, group: str, users: Container[str]) -> None:
        """End the uses of a group's users that are no more."""
        for user, use in self._uses.all().items():
            if use.group == group and user not in users:
                self._uses.remove(user)

    def usage(self) -> list[Usage]:
        """All images, by name."""
        uses = self._uses.all()
        found: list[Usage] = []
        for image in self.images():
            users = tuple(sorted(use.title for use in uses.values() if image.reference in use.images))
            with contextlib.suppress(FileNotFoundError):
                used_at = self._ref(image.reference).stat().st_mtime
                disk = sum(_occupied(self._blobs / sha) for sha in {file.sha256 for file in image.files})
                found.append(Usage(image, users, used_at, disk))
        return found

    def disk_bytes(self) -> int:
        """What the whole store occupies; what images share counts once."""
        return sum(_occupied(path) for path in self._blobs.iterdir())

    def collect(self, cap: int, keep: str = "") -> list[Image]:
        """Remove images that came from a registry and that nobody uses, the longest unused first, down to `cap` bytes.

        `keep` stays in any case. Returns what was removed.
        """
        removed: list[Image] = []
        with self._locked():
            self._sweep()
            total = self.disk_bytes()
            for usage in sorted(self.usage(), key=lambda usage: usage.used_at):
                image = usage.image
                if total <= cap:
                    break
                if image.origin == FROM_REGISTRY and not usage.users and image.reference != keep:
                    self._ref(image.reference).unlink()
                    removed.append(image)
                    total -= self._freed(image)
            self._sweep()
        return removed

    def _freed(self, image: Image) -> int:
        kept = self._kept()
        return sum(_occupied(self._blobs / sha) for sha in {file.sha256 for file in image.files} - kept)

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
        with _held(self._lock, fcntl.LOCK_EX):
            yield

    def _take_archive(self, source: Path, progress: Progress | None) -> list[StoredFile]:
        files: list[StoredFile] = []

        def take(path: str, content: IO[bytes]) -> None:
            files.append(self._take(path, content, progress))

        archive.extract(source, _wanted, take, self._layer_bytes)
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

    def _kept(self) -> set[str]:
        """Blobs that an image or a user needs: a name may have moved on while a machine still has its old content."""
        images = {file.sha256 for image in self._images() for file in image.files}
        return images.union(*(blobs for use in self._uses.all().values() for blobs in use.images.values()))

    def _sweep(self) -> None:
        """Drop what nothing names, unless somebody brings content in: then the last of them does it."""
        try:
            with _held(self._incoming, fcntl.LOCK_EX | fcntl.LOCK_NB):
                kept = self._kept()
                for blob in self._blobs.iterdir():
                    if blob.name not in kept:
                        blob.unlink()
        except BlockingIOError:
            return


@contextmanager
def _held(path: Path, how: int) -> Generator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, how)
        yield


def _digest(files: Iterable[StoredFile]) -> str:
    identity = json.dumps([(file.path, file.sha256) for file in files])
    return "sha256:" + hashlib.sha256(identity.encode()).hexdigest()


def _occupied(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


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
    origin = str(document.get("origin", FROM_FILE))
    recipe = str(document.get("recipe", ""))
    return Image(str(document["reference"]), str(document["digest"]), int(document["created"]), files, origin, recipe)
