"""Drivers that were added to an instance: `D/drivers/NAME/VERSION/` and a link to the current version.

A version that is not current stays for as long as a machine that it runs is on record; it then goes by itself.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from anyvisor.embedded.instance import Instance
from anyvisor.hri import folders
from anyvisor.hri.folders import DriverFolder, FolderError

CURRENT: Final = "current"


def root(instance: Instance) -> Path:
    """Where they are."""
    return instance.data_dir / "drivers"


def added(instance: Instance) -> list[DriverFolder]:
    """The current version of each; what cannot be read is left out (`damaged` tells)."""
    found: list[DriverFolder] = []
    for name in _names(instance):
        try:
            found.append(folders.read(root(instance) / name / CURRENT))
        except FolderError:
            continue
    return found


def damaged(instance: Instance) -> dict[str, str]:
    """Drivers that were added and cannot be used any more, and why."""
    found: dict[str, str] = {}
    for name in _names(instance):
        try:
            folders.read(root(instance) / name / CURRENT)
        except FolderError as error:
            found[name] = str(error)
    return found


def retired(instance: Instance) -> list[DriverFolder]:
    """Versions that are not current, and that run machines which the current one does not take over."""
    return [folder for folder in _others(instance) if _holds(instance, folder)]


def put(instance: Instance, folder: DriverFolder) -> DriverFolder:
    """Copy a driver in, whole or not at all, and make it the current version."""
    place = root(instance) / folder.name
    place.mkdir(mode=0o755, parents=True, exist_ok=True)
    root(instance).chmod(0o755)
    target = place / folder.version
    fresh = place / f".{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(folder.directory, fresh, symlinks=False)
    for path in (fresh, *fresh.rglob("*")):  # readable for the driver's own user, whatever the source said
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    link = place / f".{os.getpid()}.link"
    link.symlink_to(folder.version)
    link.replace(place / CURRENT)
    return folders.read(target)


def remove(instance: Instance, name: str) -> None:
    """Forget a driver, all versions."""
    shutil.rmtree(root(instance) / name, ignore_errors=True)


def clean(instance: Instance) -> None:
    """Remove the versions that nothing needs any more."""
    for folder in list(_others(instance)):
        if not _holds(instance, folder):
            shutil.rmtree(folder.directory, ignore_errors=True)


def _names(instance: Instance) -> list[str]:
    return sorted(path.parent.name for path in root(instance).glob(f"*/{CURRENT}"))


def _others(instance: Instance) -> Iterator[DriverFolder]:
    for name in _names(instance):
        place = root(instance) / name
        current = os.readlink(place / CURRENT)
        for version in sorted(place.iterdir()):
            if version.is_symlink() or version.name.startswith(".") or version.name == current:
                continue
            try:
                yield folders.read(version)
            except FolderError:
                continue


def _holds(instance: Instance, folder: DriverFolder) -> bool:
    """Whether a machine on record runs by this version, and the current one does not take it over."""
    try:
        current = folders.read(root(instance) / folder.name / CURRENT)
    except FolderError:
        return True
    if current.manifest.adopts(folder.version):
        return False
    return (folder.name, folder.version) in _recorded(instance)


def _recorded(instance: Instance) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for record in instance.data_dir.glob("nodes/*/machines/*/record.json"):
        try:
            data = json.loads(record.read_bytes())
            found.add((str(data["driver"]), str(data["driverVersion"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
