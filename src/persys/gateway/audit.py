"""Who changed what, when, and what came of it: a bounded table, and a line in the log.

Each deed is written before its answer goes out; those that come at once share one transaction. What would
surprise: who was not let in at all is not here, because anybody could fill it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import structlog
from msgspec import Struct

from persys.errors import StoreUnavailableError
from persys.gateway.database import Connection, Database
from persys.gateway.sharing import Shared

log = structlog.get_logger()

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
    def __init__(self, database: Database, *, keep: int) -> None:
        self._database = database
        self._keep = keep
        database.prepare(_TABLE)
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
        """The newest first; `before` 0: from the newest on. Raises StoreUnavailableError."""
        return await self._database.run(partial(_read, limit, before))

    async def _write_all(self) -> None:
        taken, self._waiting = self._waiting, []
        try:
            await self._database.run(partial(_write, taken, self._keep))
        except StoreUnavailableError as err:
            log.error("audit.failed", reason=str(err), deeds=len(taken))


def _write(deeds: Sequence[Deed], keep: int, database: Connection) -> None:
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
    database.executemany(
        f"INSERT INTO deeds ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        rows,
    )
    database.execute(
        "DELETE FROM deeds WHERE number <= (SELECT max(number) FROM deeds) - ?", (keep,)
    )


def _read(limit: int, before: int, database: Connection) -> list[Line]:
    rows = database.execute(
        f"SELECT number, {_COLUMNS} FROM deeds WHERE ? = 0 OR number < ?"  # noqa: S608
        " ORDER BY number DESC LIMIT ?",
        (before, before, limit),
    )
    return [Line(row[0], Deed(datetime.fromisoformat(row[1]), *row[2:])) for row in rows]
