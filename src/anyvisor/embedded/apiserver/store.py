"""Durable storage: an append-only log of object versions in SQLite, written by one thread in group commits.

Every write is one row whose rowid is the resourceVersion. Superseded rows are kept as long as the watch history
needs them and are deleted by row number, so the cost of a write does not grow with the number of objects.
All rows that wait while a commit is in progress share the next one (WAL, synchronous=FULL).
"""

import contextlib
import fcntl
import logging
import os
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from anyvisor.embedded.apiserver.wal import keep_unreadable_end

log = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    rv INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    deleted INTEGER NOT NULL, value BLOB NOT NULL, sum INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS floor (resource TEXT PRIMARY KEY, rv INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
FORMAT = "2"
"""1 had no sums of the rows; it is brought to this form when it is opened."""
MAX_BATCH = 512
"""Rows of one commit: bounds the latency of the last one."""
CHECKPOINT_BYTES = 8 << 20
"""Size of the write-ahead log at which a second thread copies it into the database file."""


class StoreError(Exception):
    """The database cannot be opened, read or written; the message says which file and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One version of one object; `deleted` rows carry the last state of an object that is gone."""

    rv: int
    resource: str
    namespace: str
    name: str
    deleted: bool
    value: bytes

    @property
    def sum(self) -> int:
        """What tells a damaged row from a good one: SQLite has no sums of its own outside the write-ahead log."""
        return zlib.crc32(self.value, self.rv & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Compaction:
    """Row numbers that no reader needs any more, and the new start of a resource's history."""

    resource: str
    floor: int
    rows: Sequence[int]


OnCommit = Callable[[Sequence[Row], BaseException | None], None]
"""Called on the writer's thread with the rows of one commit, or with those of a failed one and the error."""


@dataclass(frozen=True, slots=True)
class _Write:
    epoch: int
    row: Row


def _ignore(_rows: Sequence[Row], _failure: BaseException | None) -> None:
    return


def hold(path: Path) -> IO[bytes]:
    """Hold a database against other processes until the result is closed. Raises StoreError when it is in use."""
    lock = path.with_name(path.name + ".lock").open("ab")
    try:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise StoreError(f"the database {path} is in use by another process; stop that one first") from error
    return lock


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection with the settings that durability rests on."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute(f"PRAGMA journal_size_limit={CHECKPOINT_BYTES * 2}")
    db.execute("PRAGMA cache_size=-2048")
    db.execute("PRAGMA busy_timeout=10000")
    return db


def check(path: Path) -> None:
    """Make the tables where they are missing; look for damage where the last process did not end cleanly.

    Raises StoreError when the file is damaged or of another format.
    """
    wal = path.with_name(path.name + "-wal")
    try:
        unclean = wal.exists() and wal.stat().st_size > 0
        with contextlib.closing(connect(path)) as db:
            db.executescript(SCHEMA)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT,))
            found = _upgraded(db)
            damage = db.execute("PRAGMA quick_check(1)").fetchone()[0] if unclean else "ok"
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"cannot open the database {path}: {error}; restore it from a backup or move it away"
        ) from error
    if found != FORMAT:
        raise StoreError(f"the database {path} has format {found}; this version reads format {FORMAT}")
    if damage != "ok":
        raise StoreError(f"the database {path} is damaged: {damage}; restore it from a backup")


def _upgraded(db: sqlite3.Connection) -> str:
    """Bring format 1 to the present one; the format that the database has then."""
    found: str = db.execute("SELECT value FROM meta WHERE key='format'").fetchone()[0]
    if found != "1":
        return found
    db.execute("BEGIN IMMEDIATE")
    db.execute("ALTER TABLE log ADD COLUMN sum INTEGER")
    db.execute("UPDATE meta SET value=? WHERE key='format'", (FORMAT,))
    db.execute("COMMIT")
    return FORMAT


class Store:
    """One SQLite file; `start` loads nothing and starts the threads, `rows` reads the whole log first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[_Write | Compaction | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._checkpointer: threading.Thread | None = None
        self._wal_full = threading.Event()
        self._closing = False
        self._on_commit: OnCommit = _ignore
        self._failed_epoch = -1
        self._lock: IO[bytes] | None = None
        self.note = ""
        """What was found wrong when it was opened, though it can be used; a sentence for whoever runs the server."""

    def open(self) -> None:
        """Create or check the file, and hold it against other processes.

        Raises StoreError when it is damaged, of another format or in use.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = hold(self._path)
            if not self._path.exists():
                self._path.touch(mode=0o600)
            self.note = keep_unreadable_end(self._path)
            check(self._path)
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise StoreError(
                f"cannot open the database {self._path}: {error}; check its folder, or restore it from a backup"
            ) from error
        except StoreError:
            self._release()
            raise
        if self.note:
            log.error("%s", self.note)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def rows(self) -> Iterator[Row]:
        """Read every row in order of its resourceVersion. Raises StoreError when one cannot be read."""
        with contextlib.closing(self._connect()) as db:
            try:
                for rv, resource, namespace, name, deleted, value, total in db.execute(
                    "SELECT rv, resource, namespace, name, deleted, value, sum FROM log ORDER BY rv"
                ):
                    row = Row(rv, resource, namespace, name, bool(deleted), value)
                    if total is not None and total != row.sum:
                        what = f"{resource} {namespace + '/' if namespace else ''}{name}, version {rv}"
                        raise StoreError(
                            f"the database {self._path} is damaged: {what} is not what was written; "
                            "restore it from a backup"
                        )
                    yield row
            except sqlite3.Error as error:
                raise StoreError(
                    f"the database {self._path} cannot be read: {error}; restore it from a backup"
                ) from error

    def floors(self) -> dict[str, int]:
        """Return, for each resource, the version up to which its history is gone."""
        with contextlib.closing(self._connect()) as db:
            return dict(db.execute("SELECT resource, rv FROM floor").fetchall())

    def start(self, on_commit: OnCommit) -> None:
        """Start the writer and the checkpointer."""
        self._on_commit = on_commit
        self._writer = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
        self._checkpointer = threading.Thread(target=self._checkpoint_loop, name="store-checkpoint", daemon=True)
        self._writer.start()
        self._checkpointer.start()

    def submit(self, row: Row, epoch: int) -> None:
        """Queue a row; rows reach the disk in the order of submission.

        When a commit fails, every row of its epoch that is still queued fails with it, since it may build on
        a row that is lost. The caller starts the next epoch once it has taken back what failed.
        """
        self._queue.put(_Write(epoch, row))

    def compact(self, compaction: Compaction) -> None:
        """Queue rows for deletion; they go with the next commit."""
        self._queue.put(compaction)

    def close(self) -> None:
        """Write what is queued, then stop the threads and leave an empty write-ahead log."""
        self._queue.put(None)
        if self._writer is not None:
            self._writer.join()
        self._closing = True
        self._wal_full.set()
        if self._checkpointer is not None:
            self._checkpointer.join()
        self._release()

    def backup(self, target: Path) -> None:
        """Copy a consistent state to `target` while writes go on. Blocks; call it in a thread."""
        with contextlib.closing(self._connect()) as source, contextlib.closing(sqlite3.connect(target)) as copy:
            target.chmod(0o600)
            source.backup(copy, pages=256, sleep=0)

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    def _write_loop(self) -> None:
        wal = self._path.with_name(self._path.name + "-wal")
        with contextlib.closing(self._connect()) as db:
            running = True
            while running:
                writes, compactions, running = self._next_batch()
                self._commit(db, writes, compactions)
                with contextlib.suppress(OSError):
                    if wal.stat().st_size > CHECKPOINT_BYTES:
                        self._wal_full.set()

    def _next_batch(self) -> tuple[list[_Write], list[Compaction], bool]:
        writes: list[_Write] = []
        compactions: list[Compaction] = []
        item = self._queue.get()
        while True:
            if item is None:
                return writes, compactions, False
            if isinstance(item, _Write):
                if item.epoch > self._failed_epoch:
                    writes.append(item)
            else:
                compactions.append(item)
            if len(writes) >= MAX_BATCH:
                return writes, compactions, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return writes, compactions, True

    def _commit(self, db: sqlite3.Connection, writes: Sequence[_Write], compactions: Sequence[Compaction]) -> None:
        failure: BaseException | None = None
        try:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (w.row.rv, w.row.resource, w.row.namespace, w.row.name, int(w.row.deleted), w.row.value, w.row.sum)
                    for w in writes
                ],
            )
            for compaction in compactions:
                db.executemany("DELETE FROM log WHERE rv=?", [(rv,) for rv in compaction.rows])
                db.execute(
                    "INSERT INTO floor VALUES (?, ?) ON CONFLICT DO UPDATE SET rv=max(rv, excluded.rv)",
                    (compaction.resource, compaction.floor),
                )
            db.execute("COMMIT")
        except sqlite3.Error as error:
            log.error("cannot write to the database %s: %s", self._path, error)
            failure = error
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            if writes:
                self._failed_epoch = writes[-1].epoch
        if writes:
            self._on_commit([write.row for write in writes], failure)

    def _checkpoint_loop(self) -> None:
        with contextlib.closing(self._connect()) as db:
            while True:
                self._wal_full.wait()
                self._wal_full.clear()
                with contextlib.suppress(sqlite3.Error):
                    mode = "TRUNCATE" if self._closing else "PASSIVE"
                    db.execute(f"PRAGMA wal_checkpoint({mode})")
                if self._closing:
                    return
