"""Copying images of the components to a registry by skopeo, as they are: the digest stays that of the build."""

import json
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NAME: Final = "io.containerd.image.name"
_MAX_INDEX: Final = 1024**2
_SECONDS: Final = 3600.0


class PushError(Exception):
    """An image was not copied; the message says why."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An image in a file of the OCI layout, as `make images` makes them."""

    path: Path
    name: str
    """The last part of its name, and its tag: `launcher-NAME:0.1.0`."""
    digest: str


def read_archive(path: Path) -> Archive:
    """What image a file holds.

    Raises:
        PushError: it is no archive of one image with a name.
    """
    try:
        with tarfile.open(path) as tar:
            file = tar.extractfile("index.json")
            index: dict[str, Any] = json.loads(file.read(_MAX_INDEX)) if file is not None else {}
        (entry,) = index["manifests"]
        name = str(entry["annotations"][_NAME]).rpartition("/")[2]
        return Archive(path, name, str(entry["digest"]))
    except OSError as error:
        raise PushError(f"{path} cannot be read: {error.strerror or error}; `make images` makes them") from error
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise PushError(f"{path} is no OCI archive of one named image ({error!r}); `make images` makes them") from error


def push(archive: Archive, registry: str, authfile: Path | None = None, *, plain_http: bool = False) -> str:
    """Copy an image to `registry` (`HOST/PATH`); the name by which it is pulled from there.

    Raises:
        PushError: there is no skopeo, or the registry refuses.
    """
    if shutil.which("skopeo") is None:
        raise PushError("skopeo is not installed: apt-get install skopeo")
    target = f"{registry.rstrip('/')}/{archive.name}"
    words = ["skopeo", "--insecure-policy", "copy", "--quiet", "--preserve-digests"]
    words += ["--dest-tls-verify=false"] if plain_http else []
    words += ["--dest-authfile", str(authfile)] if authfile is not None else []
    words += [f"oci-archive:{archive.path}", f"docker://{target}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise PushError(f"{target}: the registry did not take it within {_SECONDS:.0f} s") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"skopeo ended with {done.returncode}"]
        raise PushError(f"{target}: {lines[-1][-600:]}")
    return target
