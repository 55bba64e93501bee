"""The audit log of an instance: who did what, at metadata level, one JSON object a line (audit.k8s.io/v1)."""

import logging
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""Of one file; the one before it is kept beside it as `.1`, so twice this is on the disk at most."""


class AuditLog:
    """Appends to one file and starts a new one when it is full. Requests go on when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._file: FileIO | None = None
        self._failed = False

    def write(self, event: dict[str, Any]) -> None:
        """Append one event."""
        line = msgspec.json.encode(event) + b"\n"
        try:
            file = self._file
            if file is None or self._size + len(line) > MAX_BYTES:
                file = self._open()
            self._size += file.write(line)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.error("cannot write the audit log %s: %s; requests are not recorded", self._path, error)
            self._failed = True

    def _open(self) -> FileIO:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._path.touch(mode=0o600)
        self._file = self._path.open("ab", buffering=0)
        self._size = self._file.tell()
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
