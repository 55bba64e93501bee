"""Root file systems from Debian packages, by mmdebstrap, the same from the same packages."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
EPOCH: Final = "1700000000"
"""Files that an installation makes get this time, so that it does not show in the image."""
_LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*")
_SMALL: Final = (
    # dpkg does not run in these, so what it would have written down of the packages is made of the packages.
    'for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -f "$deb"; echo "Status: install ok unpacked"; echo; '
    'done >"$1"/var/lib/dpkg/status',
    'rm -rf "$1"/usr/share/man "$1"/usr/share/locale "$1"/usr/share/info "$1"/usr/lib/*/gconv; '
    'find "$1"/usr/share/doc -type f ! -name copyright -delete',
)
_REMOVED: Final = ("var/cache/ldconfig/aux-cache", "var/log/*", "var/lib/apt/lists/*", "var/cache/apt/*", "etc/shadow-")


class CannotBuildError(Exception):
    """The file system cannot be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package in the file system, for the bill of materials."""

    name: str
    version: str


def build(packages: Sequence[str], cache: Path, *, small: bool = False) -> Path:
    """The file system as a tar file, made once for a list of packages: on top of the essential ones, or `small`.

    Raises:
        CannotBuildError: mmdebstrap is missing, or says why it fails.
    """
    made_of = hashlib.sha256(
        f"{SUITE} {EPOCH} {' '.join(packages)} {_LEFT_OUT} {_REMOVED}{_SMALL if small else ''}".encode()
    )
    key = made_of.hexdigest()[:16]
    target = cache / f"rootfs-{key}.tar"
    if target.exists():
        return target
    if shutil.which("mmdebstrap") is None:
        raise CannotBuildError("mmdebstrap is not installed: `apt-get install mmdebstrap`")
    cache.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(".new.tar")
    command = ["mmdebstrap", "--quiet", f"--include={','.join(packages)}", *(_small() if small else _essential())]
    print(f"making a file system of {', '.join(packages)}", file=sys.stderr, flush=True)
    done = subprocess.run(
        ["nice", "-n", "10", *command, SUITE, str(fresh)],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        fresh.unlink(missing_ok=True)
        raise CannotBuildError(f"mmdebstrap failed:\n{done.stderr[-3000:]}")
    fresh.rename(target)
    return target


def _essential() -> list[str]:
    options = ["--variant=essential", *(f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT)]
    options += ["--dpkgopt=path-include=/usr/share/doc/*/copyright", "--dpkgopt=force-unsafe-io"]
    return [*options, *(f'--customize-hook=rm -rf "$1"/{path}' for path in _REMOVED)]


def _small() -> list[str]:
    return ["--variant=extract", *(f"--extract-hook={hook}" for hook in _SMALL)]


def contents(rootfs: Path) -> list[Package]:
    """The Debian packages in a file system."""
    with tarfile.open(rootfs) as tar:
        file = tar.extractfile("./var/lib/dpkg/status")
        assert file is not None
        text = file.read().decode()
    found: list[Package] = []
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").startswith("install ok"):
            found.append(Package(fields["Package"], fields["Version"]))
    return sorted(found, key=lambda package: package.name)
