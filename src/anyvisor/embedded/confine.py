"""Dropping to an unprivileged user that can still reach what it needs.

Python itself, our code and the data directory may lie below a directory that only its owner may enter (`/root`). The
process gets a mount namespace of its own, in which such a directory holds nothing but what is needed.
"""

import logging
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from anyvisor.embedded import system

log = logging.getLogger(__name__)


def become(uid: int, paths: Sequence[Path] = (), groups: Sequence[int] = ()) -> None:
    """Be `uid` for good, with Python and `paths` within reach. Nothing changes when we are that user already."""
    if os.geteuid() == uid:
        return
    needed = [*_python_paths(), *paths]
    try:
        _reveal(needed)
    except OSError as error:
        log.warning("no mount namespace of our own (%s): these must be reachable for everybody: %s", error, needed)
    parent = os.getppid()
    system.become(uid, uid, groups)
    system.end_with_parent(parent)  # the kernel forgets it with the change of user
    system.forbid_new_privileges()


def _python_paths() -> Iterable[Path]:
    """Where modules and their data are loaded from."""
    places = [Path(sys.base_prefix), Path(sys.prefix), *(Path(entry) for entry in sys.path if entry)]
    found: list[Path] = []
    for place in places:
        if place.is_dir() and not any(place.is_relative_to(other) for other in found):
            found.append(place)
    return found


def closed_ancestor(path: Path) -> Path | None:
    """The topmost directory above `path` that others may not enter."""
    for ancestor in reversed(path.parents):
        if not ancestor.stat().st_mode & stat.S_IXOTH:
            return ancestor
    return None


def _reveal(paths: Sequence[Path]) -> None:
    hidden: dict[Path, list[Path]] = {}
    for path in paths:
        ancestor = closed_ancestor(path)
        if ancestor is not None:
            hidden.setdefault(ancestor, []).append(path)
    if not hidden:
        return
    system.own_mounts()
    for ancestor, below in hidden.items():
        handles = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in below]
        system.mount_empty(str(ancestor))
        before = os.umask(0o022)
        for path, handle in zip(below, handles, strict=True):
            path.mkdir(parents=True, exist_ok=True)
            system.bind(f"/proc/self/fd/{handle}", str(path))
            os.close(handle)
        os.umask(before)
