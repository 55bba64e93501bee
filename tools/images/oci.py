"""OCI image archives with any number of layers, byte for byte the same from the same layers.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """An uncompressed tar file: in memory, or a file that must not change."""

    content: bytes | Path

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @property
    def digest(self) -> str:
        """Its digest."""
        if isinstance(self.content, bytes):
            return _digest(self.content)
        found = hashlib.sha256()
        with self.content.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
        return f"sha256:{found.hexdigest()}"


@dataclass(frozen=True, slots=True)
class Config:
    """How a container of the image is run."""

    entrypoint: tuple[str, ...] = ()
    user: str = ""
    env: tuple[str, ...] = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    stop_signal: str = ""

    def json(self) -> dict[str, Any]:
        """The `config` object of the image's configuration."""
        found: dict[str, Any] = {"Env": list(self.env), "WorkingDir": "/"}
        optional = {
            "Entrypoint": list(self.entrypoint),
            "User": self.user,
            "Labels": dict(sorted(self.labels.items())),
            "StopSignal": self.stop_signal,
        }
        return found | {key: value for key, value in optional.items() if value}


def write(target: Path, name: str, layers: Sequence[Layer], config: Config) -> str:
    """Write an archive of one image; its manifest's digest."""
    digests = [layer.digest for layer in layers]
    image = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config.json(),
            "rootfs": {"type": "layers", "diff_ids": digests},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": _digest(image), "size": len(image)},
            "layers": [
                {"mediaType": LAYER, "digest": digest, "size": layer.size}
                for layer, digest in zip(layers, digests, strict=True)
            ],
        }
    )
    entry: dict[str, Any] = {
        "mediaType": MANIFEST,
        "digest": _digest(manifest),
        "size": len(manifest),
        "annotations": {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        },
    }
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        add(tar, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        for blob in (manifest, image):
            add(tar, _blob(_digest(blob)), blob)
        for layer, digest in zip(layers, digests, strict=True):
            _add_layer(tar, layer, digest)
    return _digest(manifest)


def files_layer(files: Mapping[str, Path | bytes], *, executable: bool = False) -> Layer:
    """A layer of files (path in the image -> content), owned by root, without times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted({parent for name in files for parent in _parents(name)}):
            directory = tarfile.TarInfo(path)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        for name, source in sorted(files.items()):
            content = source if isinstance(source, bytes) else source.read_bytes()
            add(tar, name.lstrip("/"), content, mode=0o555 if executable else 0o444)
    return Layer(buffer.getvalue())


def add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o444) -> None:
    """Add a file that belongs to root and has no time."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _add_layer(tar: tarfile.TarFile, layer: Layer, digest: str) -> None:
    if isinstance(layer.content, bytes):
        add(tar, _blob(digest), layer.content)
        return
    info = tarfile.TarInfo(_blob(digest))
    info.size, info.mode = layer.size, 0o444
    with layer.content.open("rb") as file:
        tar.addfile(info, file)


def _parents(name: str) -> list[str]:
    parts = name.strip("/").split("/")[:-1]
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]


def _blob(digest: str) -> str:
    return "blobs/sha256/" + digest.removeprefix("sha256:")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
