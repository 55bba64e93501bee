"""What SQLite does not tell: that the end of its write-ahead log cannot be read.

SQLite takes the log up to the first page whose sum is wrong and forgets the rest, without a word. That is right for
a commit that was in progress when the machine lost power, which nobody was told of; but the same is seen where a disk
damaged what had been acknowledged. So it is told, and a copy is kept. The format: https://sqlite.org/fileformat2.html
"""

import contextlib
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

_HEADER, _FRAME_HEADER = 32, 24
_BIG_ENDIAN_SUMS = 1


def keep_unreadable_end(database: Path) -> str:
    """Copy a write-ahead log whose end cannot be read; returns a sentence, empty where nothing is wrong.

    Call it before anything is written, as that overwrites what cannot be read. Raises OSError and sqlite3.Error.
    """
    wal = database.with_name(database.name + "-wal")
    if not wal.exists() or wal.stat().st_size <= _HEADER:
        return ""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        page: int = db.execute("PRAGMA page_size").fetchone()[0]
        readable: int = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        lost = _frames_after(wal, readable, page)
        if not lost:
            return ""
        kept = wal.with_name(wal.name + ".unreadable")
        shutil.copyfile(wal, kept)
        kept.chmod(0o600)
    return (
        f"the last {lost} pages of {wal} cannot be read: either a write that nobody was told of when the machine lost "
        f"power, or a damaged disk. Everything before them is there. The log was copied to {kept}; if objects are "
        "missing, restore a backup"
    )


def _frames_after(wal: Path, readable: int, page: int) -> int:
    """How many frames of the present log follow those that can be read; older ones have another salt."""
    with wal.open("rb") as file:
        header = file.read(_HEADER)
        if not _is_whole(header):
            return max(1, (wal.stat().st_size - _HEADER) // (page + _FRAME_HEADER))
        file.seek(_HEADER + max(0, readable) * (page + _FRAME_HEADER))
        return sum(1 for _ in _same_salt(file.read, page + _FRAME_HEADER, header[16:24]))


def _same_salt(read: Callable[[int], bytes], size: int, salt: bytes) -> Iterator[None]:
    while len(frame := read(size)) >= _FRAME_HEADER and frame[8:16] == salt:
        yield


def _is_whole(header: bytes) -> bool:
    """Whether the header has the sum that it states."""
    order = ">" if header[3] & _BIG_ENDIAN_SUMS else "<"
    first = second = 0
    for one, two in struct.iter_unpack(f"{order}II", header[:24]):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return struct.unpack(">II", header[24:32]) == (first, second)
