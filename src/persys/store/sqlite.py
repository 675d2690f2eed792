"""The embedded store: one SQLite file, used by this process only.

SQLite runs on a dedicated thread; a commit is one transaction with one fsync. The watch history is in memory,
because no other process writes: a watch from before the opening gets CompactedError. A full or failing disk
is StoreUnavailableError: the transaction is rolled back, and writes work again when the disk does.
"""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar

from persys.errors import NotFoundError, SettingsError, StoreUnavailableError
from persys.store.conflicts import check_guards, keys_relied_on
from persys.store.leases import Leases
from persys.store.limits import check
from persys.store.port import (
    LeaseId,
    Outcome,
    PackedRecords,
    Record,
    RecordBlock,
    Snapshot,
    Unit,
    WatchEvent,
)
from persys.store.watch_history import WatchHistory

T = TypeVar("T")

# The delay before the records of an ended lease are removed again after a disk error.
_REMOVAL_RETRY_SECONDS = 1.0
# After each call into SQLite its thread must reacquire the GIL. At the default of 5 ms a busy event loop,
# which releases it for moments more often than that, starves the thread: commits took up to 17 s.
_SWITCH_SECONDS = 0.0001
_ROWS_PER_INSERT_MAX = 1000
_ROWS_PER_BLOCK = 512
# UTF-8 never contains 0xFF, so this bound is just above all keys with the prefix.
_READ = (
    "SELECT key, value, version FROM records"
    " WHERE key >= ?1 AND key < ?1 || CAST(x'ff' AS TEXT) ORDER BY key"
)
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
    sqlite3.SQLITE_IOERR: "disk input/output error",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_PERM: "the file cannot be accessed",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
    sqlite3.SQLITE_BUSY: "already in use by another process",
    sqlite3.SQLITE_LOCKED: "already in use by another process",
    sqlite3.SQLITE_NOMEM: "out of memory",
}
# When the store is opened, waiting does not resolve these: an operator must act.
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


def holds_key(path: Path, key: str) -> bool:
    """Whether the file is a store with the key. Read only. SettingsError: the file cannot be read."""
    if not path.exists():
        return False
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM records WHERE key = ?", (key,)).fetchone()
        finally:
            connection.close()
    except sqlite3.Error as err:
        raise SettingsError(f"{path}: {err}; it may hold a cluster") from err
    return found is not None


@dataclass(frozen=True, slots=True)
class _Written:
    outcomes: list[Outcome]
    changes: tuple[WatchEvent, ...]


class _Database:
    """The file: statements and transactions. All methods run on the thread of the store.

    A commit uses a few large statements, never one per record: see _SWITCH_SECONDS.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = _open_database(path)
        self._identity = _identity(path)
        with self._translated():
            row = self._connection.execute("SELECT revision FROM counter").fetchone()
        self.revision: int = row[0]

    def get(self, key: str) -> Record | None:
        with self._translated():
            row = self._connection.execute(
                "SELECT key, value, version FROM records WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else Record(*row)

    def read(self, prefix: str) -> Snapshot:
        blocks: list[RecordBlock] = []
        with self._translated():
            found = self._connection.execute(_READ, (prefix,))
            while rows := found.fetchmany(_ROWS_PER_BLOCK):
                blocks.append(RecordBlock(rows))
            if len(blocks) > 1:
                # A read of all records leaves them in the page cache a second time.
                self._connection.execute("PRAGMA shrink_memory")
        return Snapshot(self.revision, PackedRecords(blocks))

    def commit(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> _Written:
        with self._translated():
            found = self._versions(keys_relied_on(units, fence))
            checked = check_guards(units, fence, found, revision=self.revision)
            if checked.changes:
                with self._transaction():
                    self._put(checked.accepted)
                    self._delete([one.key for one in checked.changes if one.value is None])
        return _Written(checked.outcomes, checked.changes)

    def leases(self) -> list[tuple[LeaseId, int]]:
        with self._translated():
            rows = self._connection.execute("SELECT id, ttl_seconds FROM leases").fetchall()
        return [(LeaseId(lease), ttl_seconds) for lease, ttl_seconds in rows]

    def add_lease(self, ttl_seconds: int) -> LeaseId:
        with self._translated():
            row = self._connection.execute(
                "INSERT INTO leases (ttl_seconds) VALUES (?)", (ttl_seconds,)
            )
        assert row.lastrowid is not None
        return LeaseId(row.lastrowid)

    def remove_lease(self, lease: LeaseId) -> _Written:
        """Remove the lease and its records, in one revision if there are any."""
        with self._translated():
            keys = self._connection.execute(
                "SELECT key FROM records WHERE lease = ? ORDER BY key", (lease,)
            ).fetchall()
            changes = tuple(WatchEvent(key, None, self.revision + 1) for (key,) in keys)
            with self._transaction(raises_revision=bool(changes)):
                self._connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
                self._delete([change.key for change in changes])
        return _Written([], changes)

    def close(self) -> None:
        try:
            self._connection.close()
        except sqlite3.Error as err:
            raise StoreUnavailableError(f"store {self._path}: {_reason(err)}") from err

    def _versions(self, keys: Iterable[str]) -> Mapping[str, int]:
        wanted = json.dumps(list(keys))
        (found,) = self._connection.execute(
            "SELECT json_group_object(key, version) FROM records"
            " WHERE key IN (SELECT value FROM json_each(?))",
            (wanted,),
        ).fetchone()
        versions: dict[str, int] = json.loads(found)
        return versions

    def _put(self, units: Sequence[Unit]) -> None:
        revision = self.revision + 1
        rows = [
            (key, value, revision, unit.lease) for unit in units for key, value in unit.puts.items()
        ]
        for begin in range(0, len(rows), _ROWS_PER_INSERT_MAX):
            chunk = rows[begin : begin + _ROWS_PER_INSERT_MAX]
            self._connection.execute(_insert(len(chunk)), list(chain.from_iterable(chunk)))

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._connection.execute(
                "DELETE FROM records WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(keys),),
            )

    @contextmanager
    def _transaction(self, *, raises_revision: bool = True) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            if raises_revision:
                self._connection.execute("UPDATE counter SET revision = ?", (self.revision + 1,))
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            # Some errors have already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self.revision += raises_revision

    @contextmanager
    def _translated(self) -> Iterator[None]:
        # SQLite would keep writing to the unlinked file.
        if _identity(self._path) != self._identity:
            raise StoreUnavailableError(
                f"store {self._path}: the file was moved, removed or replaced; put it back, "
                "or restart the scheduler to use the new one"
            )
        try:
            yield
        except sqlite3.Error as err:
            raise StoreUnavailableError(f"store {self._path}: {_reason(err)}") from err


class SqliteStore:
    def __init__(self, database: _Database, thread: ThreadPoolExecutor, leases: Leases) -> None:
        self._database = database
        self._thread = thread
        self._leases = leases
        self._leases_leaving: set[LeaseId] = set()
        self._history = WatchHistory(revision=database.revision)
        self._timer: asyncio.TimerHandle | None = None
        self._transactions = 0
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, monotonic: Callable[[], float]) -> Self:
        """Raises SettingsError when the file cannot be used, for example if another process uses it."""
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        loop = asyncio.get_running_loop()
        try:
            database = await loop.run_in_executor(thread, _Database, path)
            kept = await loop.run_in_executor(thread, database.leases)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        leases = Leases(monotonic)
        for lease, ttl_seconds in kept:
            # No lease could be renewed while the store was closed: each starts with its full time.
            leases.start(lease, ttl_seconds)
        store = cls(database, thread, leases)
        store._arm()
        return store

    @property
    def transactions(self) -> int:
        return self._transactions

    async def get(self, key: str) -> Record | None:
        return await self._run(lambda: self._database.get(key))

    async def read(self, prefix: str) -> Snapshot:
        return await self._run(lambda: self._database.read(prefix))

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        check(units)
        for unit in units:
            if unit.lease is not None and not self._leases.holds(unit.lease):
                raise NotFoundError("lease", str(unit.lease))
        written = await self._write(lambda: self._database.commit(units, fence))
        return written.outcomes

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        return self._history.watch(prefix, after=after)

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        lease = await self._run(lambda: self._database.add_lease(ttl_seconds))
        self._leases.start(lease, ttl_seconds)
        self._arm()
        return lease

    async def keep_lease(self, lease: LeaseId) -> bool:
        self._check_open()
        return self._leases.keep(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._leases.end(lease)
        await self._write(lambda: self._database.remove_lease(lease))
        self._leases.forget(lease)

    async def compact(self, revision: int) -> None:
        self._check_open()
        self._history.forget_before(revision)

    async def close(self) -> None:
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        closing = self._submit(self._database.close)
        self._closed = True
        try:
            await asyncio.shield(closing)
        finally:
            self._history.close()
            self._thread.shutdown(wait=False)

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.shield(self._submit(job))

    async def _write(self, job: Callable[[], _Written]) -> _Written:
        """A cancelled caller stops neither the commit nor its publication to watchers."""
        return await asyncio.shield(self._submit_write(job))

    def _submit_write(self, job: Callable[[], _Written]) -> asyncio.Future[_Written]:
        written = self._submit(job)
        written.add_done_callback(self._publish)
        return written

    def _submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        self._check_open()
        return asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _publish(self, written: asyncio.Future[_Written]) -> None:
        if written.exception() is None and written.result().changes:
            self._transactions += 1
            self._history.append(written.result().changes)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    def _arm(self, at_least: float = 0.0) -> None:
        """One timer, for the lease that ends first. A renewal only makes it fire early."""
        if self._timer is not None:
            self._timer.cancel()
        delay = self._leases.next_end_in()
        if delay is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(delay, at_least), self._on_timer)

    def _on_timer(self) -> None:
        ended = self._leases.ended()
        for lease in ended:
            if lease not in self._leases_leaving:
                self._leases_leaving.add(lease)
                self._remove_ended(lease)
        if not ended:
            self._arm()

    def _remove_ended(self, lease: LeaseId) -> None:
        def settle(written: asyncio.Future[_Written]) -> None:
            self._leases_leaving.discard(lease)
            if written.exception() is None:
                self._leases.forget(lease)
                self._arm()
            else:
                self._arm(at_least=_REMOVAL_RETRY_SECONDS)

        self._submit_write(lambda: self._database.remove_lease(lease)).add_done_callback(settle)


@cache
def _insert(rows: int) -> str:
    values = ",".join(["(?,?,?,?)"] * rows)
    return (
        f"INSERT INTO records (key, value, version, lease) VALUES {values}"  # noqa: S608 only marks
        " ON CONFLICT (key) DO UPDATE"
        " SET value = excluded.value, version = excluded.version, lease = excluded.lease"
    )


def _open_database(path: Path) -> sqlite3.Connection:
    """Open the file, create it if absent, and lock it against other processes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Specs may contain secrets: only the owner may read the file. An existing file is not opened here:
        # closing it would release the locks that this process may hold on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    except OSError as err:
        raise SettingsError(f"store {path}: {err.strerror}") from err
    try:
        return _connect(path)
    except sqlite3.Error as err:
        if _primary_code(err) in _WRONG_FILE:
            raise SettingsError(f"store {path}: {_reason(err)}") from err
        raise StoreUnavailableError(f"store {path}: {_reason(err)}") from err


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        # Exclusive before WAL: no shared-memory file is created and no other process can open the store.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        connection.execute("PRAGMA journal_size_limit = 16777216")
        connection.execute("PRAGMA cache_size = -32768")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > _SCHEMA:
            raise SettingsError(
                f"store {path}: written by a newer version (schema {schema}): expected at most {_SCHEMA}"
            )
        if schema < _SCHEMA:
            connection.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_SCHEMA}; COMMIT;"
            )
    except (sqlite3.Error, SettingsError):
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file with this name."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _primary_code(err: sqlite3.Error) -> int:
    # Extended codes have the primary code in the low byte. Errors of the module itself have none.
    return getattr(err, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _reason(err: sqlite3.Error) -> str:
    return _REASONS.get(_primary_code(err), str(err))
