"""Copies of the database: taken while the server runs, put back while it does not."""

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from anyvisor.embedded.apiserver.store import Store, StoreError, check, hold

VERSION_LEAP = 1_000_000
"""How far versions jump after a restore, so that no version is ever used for two states."""


def take(database: Path, target: Path) -> None:
    """Write a consistent copy of a database that may be in use. Blocks.

    Raises StoreError when the target exists or cannot be written.
    """
    if target.exists():
        raise StoreError(f"the backup {target} exists; name a new file")
    try:
        target.touch(mode=0o600)
        Store(database).backup(target)
    except (OSError, sqlite3.Error) as error:
        target.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot write the backup {target}: {why}; name another file") from error


def restore(source: Path, database: Path) -> None:
    """Put a backup in the place of a database that no server uses. Blocks.

    Clients that know versions of the lost time are told to list again: every history starts anew, far ahead.
    Raises StoreError when the backup is damaged; the database is untouched then.
    """
    if not source.is_file():
        raise StoreError(f"there is no backup {source}")
    fresh = database.with_name(database.name + ".restoring")
    with hold(database):
        _put_back(source, database, fresh)


def _put_back(source: Path, database: Path, fresh: Path) -> None:
    try:
        shutil.copyfile(source, fresh)
        fresh.chmod(0o600)
        check(fresh)
        _leap(fresh)
        for suffix in ("-wal", "-shm"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        os.replace(fresh, database)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"cannot restore {source}: {error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _leap(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        newest: int = db.execute("SELECT coalesce(max(rv), 1) FROM log").fetchone()[0]
        floor: int = db.execute("SELECT coalesce(max(rv), 1) FROM floor").fetchone()[0]
        start = max(newest, floor) + VERSION_LEAP
        db.execute("BEGIN IMMEDIATE")
        db.execute(
            "DELETE FROM log WHERE deleted OR rv NOT IN (SELECT max(rv) FROM log GROUP BY resource, namespace, name)"
        )
        db.execute(
            "INSERT INTO floor SELECT DISTINCT resource, ? FROM log WHERE true "
            "ON CONFLICT DO UPDATE SET rv = excluded.rv",
            (start,),
        )
        db.execute("UPDATE floor SET rv = ?", (start,))
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
