"""Where the parts of a container image are read from: one tar file, or a directory in the OCI layout."""

import os
import re
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from anyvisor.agent.volumes.qcow2 import ImageError

_MAX_FILES = 100_000
_PART = re.compile(r"index\.json|oci-layout|blobs/sha(?:256|512)/[0-9a-f]{64,128}")


class Bundle(Protocol):
    """Parts by name. What is missing raises LookupError."""

    def names(self) -> set[str]:
        """All names."""
        ...

    def size(self, name: str) -> int:
        """A part's bytes."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """A part's content; the caller closes it."""
        ...


@dataclass(frozen=True, slots=True)
class TarBundle:
    """The members of a tar file."""

    tar: tarfile.TarFile

    def names(self) -> set[str]:
        """All members' names."""
        found = self.tar.getnames()
        if len(found) > _MAX_FILES:
            raise ImageError(f"the archive holds more than {_MAX_FILES} files")
        return set(found)

    def size(self, name: str) -> int:
        """A member's bytes."""
        return self.tar.getmember(name).size

    def open(self, name: str) -> IO[bytes]:
        """A member that is a regular file."""
        file = self.tar.extractfile(self.tar.getmember(name))
        if file is None:
            raise ImageError(f"the archive's {name} is no regular file")
        return file


@dataclass(frozen=True, slots=True)
class DirectoryBundle:
    """A directory in the OCI layout. Whoever wrote it is not trusted: no link is followed, no other name is taken."""

    root: Path

    def names(self) -> set[str]:
        """What of the layout's own files is at the top."""
        return {name for name in ("index.json", "oci-layout") if (self.root / name).exists()}

    def size(self, name: str) -> int:
        """A file's bytes."""
        with self.open(name) as file:
            return os.fstat(file.fileno()).st_size

    def open(self, name: str) -> IO[bytes]:
        """A regular file."""
        if not _PART.fullmatch(name):
            raise ImageError(f"{name[:80]!r} is no part of an image layout")
        try:
            handle = os.open(self.root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise LookupError(name) from error
        file = os.fdopen(handle, "rb")
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            file.close()
            raise ImageError(f"the image's {name} is no regular file")
        return file
