"""Opening a SQLite file as a store, and what SQLite's errors mean."""

import os
import sqlite3
from pathlib import Path

from persys.errors import SettingsError, StoreUnavailableError

_SCHEMA = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS records (
    key TEXT NOT NULL UNIQUE, value BLOB NOT NULL, version INTEGER NOT NULL, lease INTEGER
);
CREATE INDEX IF NOT EXISTS records_by_lease ON records (lease) WHERE lease IS NOT NULL;
CREATE TABLE IF NOT EXISTS leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_seconds INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counter (revision INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
"""
_REASONS = {
    sqlite3.SQLITE_FULL: "disk is full",
    sqlite3.SQLITE_IOERR: "the disk fails to read or write",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_PERM: "the file cannot be accessed",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database",
    sqlite3.SQLITE_BUSY: "already in use by another process",
    sqlite3.SQLITE_LOCKED: "already in use by another process",
    sqlite3.SQLITE_NOMEM: "out of memory",
}
# At opening these will not heal by waiting: a person must change something.
_WRONG_FILE = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
    }
)


def open_database(path: Path) -> sqlite3.Connection:
    """The file, made if absent, and locked against every other process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Specs may hold secrets: only the owner reads the file.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as err:
        raise SettingsError(f"store {path}: {err.strerror}") from err
    try:
        return _connect(path)
    except sqlite3.Error as err:
        if _primary_code(err) in _WRONG_FILE:
            raise SettingsError(f"store {path}: {reason(err)}") from err
        raise StoreUnavailableError(f"store {path}: {reason(err)}") from err


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # Exclusive before WAL: then no shared-memory file is made and nobody else can open the store.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute("PRAGMA cache_size = -32768")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > _SCHEMA:
            raise SettingsError(
                f"store {path}: written by a newer version (schema {schema}, this one knows {_SCHEMA})"
            )
        if schema < _SCHEMA:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_SCHEMA}; COMMIT;"
            )
    except (sqlite3.Error, SettingsError):
        connection.close()
        raise
    return connection


def _primary_code(err: sqlite3.Error) -> int:
    # Extended codes keep the primary one in the low byte. Errors of the module itself have none.
    return getattr(err, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def reason(err: sqlite3.Error) -> str:
    return _REASONS.get(_primary_code(err), str(err))
