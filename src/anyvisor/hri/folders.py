"""Drivers as folders: a manifest and a program in any language, from anybody.

my-driver/
  manifest.yaml (or .json)     what it says of itself; `process.command` says how it is started
  driver                       started as `./driver --hri PATH --fd PATH` unless the manifest says otherwise
  evidence.json                results of `anyvisor conform --json`, one or a list; optional
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyvisor.hri import evidence, manifests
from anyvisor.planning.manifest import Manifest, ManifestError, parse
from anyvisor.planning.registry import registry

MANIFESTS: Final = ("manifest.yaml", "manifest.yml", "manifest.json")


class FolderError(ValueError):
    """The folder holds no driver that can be used; the message says everything that is wrong, and where."""


@dataclass(frozen=True, slots=True)
class DriverFolder:
    """A driver that was read from a folder."""

    directory: Path
    raw: Mapping[str, Any]
    """The manifest as the file has it: its digest is made of this."""
    manifest: Manifest
    evidence: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The driver's name."""
        return self.manifest.driver

    @property
    def version(self) -> str:
        """The driver's version."""
        return self.manifest.version

    def command(self, hri: str, fd: str) -> list[str]:
        """How to start it, for its two sockets; the program as an absolute path."""
        words = [word.replace("{hri}", hri).replace("{fd}", fd) for word in self.manifest.process.command]
        return [os.path.normpath(self.directory / words[0]), *words[1:]]


def read(directory: Path) -> DriverFolder:
    """The driver in a folder. Raises FolderError."""
    file = next((directory / name for name in MANIFESTS if (directory / name).is_file()), None)
    if file is None:
        raise FolderError(f"{directory} holds no driver: there is no {' or '.join(MANIFESTS)} in it")
    try:
        raw = manifests.read(file.read_text(encoding="utf-8"))
        manifest = parse(raw, registry())
    except manifests.ManifestFileError as error:
        raise FolderError(f"{file}: {error}") from error
    except ManifestError as error:
        raise FolderError("\n  ".join((f"{file} cannot be used:", *error.problems))) from error
    except (OSError, UnicodeDecodeError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error
    found = DriverFolder(directory, raw, manifest, _evidence(directory / evidence.FILE))
    program = Path(found.command("", "")[0])
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise FolderError(
            f"{program}, which the driver is started by, is not there or not executable; "
            "name the program in the manifest: process.command"
        )
    return found


def _evidence(file: Path) -> tuple[Mapping[str, Any], ...]:
    try:
        with file.open(encoding="utf-8") as stream:
            return evidence.read(stream.read(evidence.MAX_BYTES + 1))
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError, evidence.EvidenceError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error
