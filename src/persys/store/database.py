"""The SQLite file of SqliteStore: statements, transactions and what its errors mean.

Everything here runs on the store's own thread. Each call into SQLite gives up Python's lock and must win it
back from a busy event loop, so a commit is made of few large statements, never of one per record.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from persys.errors import StoreUnavailableError
from persys.store.judgement import judge, keys_relied_on
from persys.store.opening import open_database, reason
from persys.store.port import Change, LeaseId, Outcome, Record, Snapshot, Unit

_ROWS_PER_INSERT_MAX = 1000


@cache
def _insert(rows: int) -> str:
    values = ",".join(["(?,?,?,?)"] * rows)
    return (
        f"INSERT INTO records (key, value, version, lease) VALUES {values}"  # noqa: S608 only marks
        " ON CONFLICT (key) DO UPDATE"
        " SET value = excluded.value, version = excluded.version, lease = excluded.lease"
    )


# No byte of UTF-8 is 0xFF, so this bound is just above all keys with the prefix.
_READ = (
    "SELECT key, value, version FROM records"
    " WHERE key >= ?1 AND key < ?1 || CAST(x'ff' AS TEXT) ORDER BY key"
)


@dataclass(frozen=True, slots=True)
class Written:
    outcomes: list[Outcome]
    changes: tuple[Change, ...]


class Database:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_database(path)
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
        with self._translated():
            rows = self._connection.execute(_READ, (prefix,)).fetchall()
        return Snapshot(self.revision, tuple(Record(*row) for row in rows))

    def commit(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> Written:
        with self._translated():
            found = self._versions(keys_relied_on(units, fence))
            judgement = judge(units, fence, found, revision=self.revision)
            if judgement.changes:
                with self._transaction():
                    self._put(judgement.accepted)
                    self._delete([one.key for one in judgement.changes if one.value is None])
        return Written(judgement.outcomes, judgement.changes)

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

    def remove_lease(self, lease: LeaseId) -> Written:
        """Remove the lease and its records, which is one revision if there are any."""
        with self._translated():
            keys = self._connection.execute(
                "SELECT key FROM records WHERE lease = ? ORDER BY key", (lease,)
            ).fetchall()
            changes = tuple(Change(key, None, self.revision + 1) for (key,) in keys)
            with self._transaction(raises_revision=bool(changes)):
                self._connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
                self._delete([change.key for change in changes])
        return Written([], changes)

    def close(self) -> None:
        with self._translated():
            self._connection.close()

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
        try:
            yield
        except sqlite3.Error as err:
            raise StoreUnavailableError(f"store {self._path}: {reason(err)}") from err
