"""Who changed what, when, and what came of it: a bounded SQLite file, and a line in the log.

Each deed is written before its answer goes out; those that come at once share one transaction. What would
surprise: who was not let in at all is not here, because anybody could fill it.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct

from persys.errors import SettingsError, StoreUnavailableError
from persys.gateway.sharing import Shared

log = structlog.get_logger()

MEMORY = "memory"  # instead of a path: nothing outlives the process
_TABLE = """
CREATE TABLE IF NOT EXISTS deeds (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL,
    deed TEXT NOT NULL, cluster TEXT NOT NULL, target TEXT NOT NULL, status INTEGER NOT NULL,
    request_id TEXT NOT NULL)
"""
_COLUMNS = "at, who, address, deed, cluster, target, status, request_id"
_TEXT_MAX = 512


class Deed(Struct, frozen=True):
    at: datetime
    who: str
    address: str
    deed: str  # the name of the call
    cluster: str
    target: str
    status: int  # of HTTP
    request_id: str


class Line(Struct, frozen=True):
    number: int
    deed: Deed


class Audit:
    def __init__(self, where: str, *, keep: int) -> None:
        """Raises SettingsError for a file that cannot be used."""
        self._keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit")
        try:
            self._connection = _open(where)
        except (sqlite3.Error, OSError) as err:
            raise SettingsError(f"PERSYS_GATEWAY_AUDIT_DB={where}: {err}") from err
        self._waiting: list[Deed] = []
        self._rounds: Shared[None] = Shared()

    async def note(self, deed: Deed) -> None:
        """Returns when it is written. A disk that is full is said in the log, and ends nobody's work."""
        log.info(
            "audit.noted",
            who=deed.who,
            deed=deed.deed,
            cluster=deed.cluster,
            target=deed.target,
            status=deed.status,
            request_id=deed.request_id,
        )
        self._waiting.append(deed)
        await self._rounds.ask("write", self._write_all)

    async def lines(self, *, limit: int, before: int) -> list[Line]:
        """The newest first; `before` 0: from the newest on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(self._read, limit, before))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        taken, self._waiting = self._waiting, []
        try:
            await loop.run_in_executor(self._thread, partial(self._write, taken))
        except StoreUnavailableError as err:
            log.error("audit.failed", reason=str(err), deeds=len(taken))

    def _write(self, deeds: Sequence[Deed]) -> None:
        """On the thread."""
        rows = [
            (
                deed.at.isoformat(),
                deed.who[:_TEXT_MAX],
                deed.address,
                deed.deed,
                deed.cluster[:_TEXT_MAX],
                deed.target[:_TEXT_MAX],
                deed.status,
                deed.request_id,
            )
            for deed in deeds
        ]
        try:
            with self._connection:
                self._connection.executemany(
                    f"INSERT INTO deeds ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    rows,
                )
                self._connection.execute(
                    "DELETE FROM deeds WHERE number <= (SELECT max(number) FROM deeds) - ?",
                    (self._keep,),
                )
        except sqlite3.Error as err:
            raise StoreUnavailableError(str(err)) from err

    def _read(self, limit: int, before: int) -> list[Line]:
        """On the thread."""
        try:
            rows = self._connection.execute(
                f"SELECT number, {_COLUMNS} FROM deeds WHERE ? = 0 OR number < ?"  # noqa: S608
                " ORDER BY number DESC LIMIT ?",
                (before, before, limit),
            ).fetchall()
        except sqlite3.Error as err:
            raise StoreUnavailableError(str(err)) from err
        return [Line(row[0], Deed(datetime.fromisoformat(row[1]), *row[2:])) for row in rows]


def _open(where: str) -> sqlite3.Connection:
    if where == MEMORY:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
    else:
        path = Path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(_TABLE)
    return connection
