"""The audit log: who changed what, when, and with what result. A bounded SQLite table and a log line.

Each entry is written before its response is sent; concurrent entries share one transaction. Requests
without an authenticated identity are not recorded: otherwise anyone could fill the table. When the table is
full, the oldest entry of the identity with the most entries is dropped. The refused requests of an identity
are counted separately. So no identity, and no refused request, can displace the entries of others.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import structlog
from msgspec import Struct

from persys.errors import StoreUnavailableError
from persys.gateway.database import Connection, Database
from persys.infra.aio.group_commit import GroupCommit
from persys.infra.aio.owned_work import OwnedWork

log = structlog.get_logger()

# The names in the table are those of the first version, which a gateway may return to.
_TABLE = """
CREATE TABLE IF NOT EXISTS deeds (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL,
    deed TEXT NOT NULL, cluster TEXT NOT NULL, target TEXT NOT NULL, status INTEGER NOT NULL,
    request_id TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS deeds_of_who ON deeds (who, status < 400, number)
"""
_COLUMNS = "at, who, address, deed, cluster, target, status, request_id"
_TEXT_MAX = 512
_REFUSED = 400

# Entries per identity, separately for accepted (True) and refused (False) requests.
Counts = Counter[tuple[str, bool]]


class AuditEntry(Struct, frozen=True):
    at: datetime
    who: str
    address: str
    action: str  # the name of the RPC
    cluster: str
    target: str
    status: int  # HTTP status of the response
    request_id: str


class NumberedEntry(Struct, frozen=True):
    number: int
    entry: AuditEntry


class AuditLog:
    def __init__(self, database: Database, owned: OwnedWork, *, keep: int) -> None:
        self._database = database
        self._owned = owned
        self._keep = keep
        database.prepare(_TABLE)
        self._counts = database.read(_count)  # from here on used on the database thread only
        self._queue: GroupCommit[AuditEntry] = GroupCommit()

    async def record(self, entry: AuditEntry) -> None:
        """Return once the entry is written. It is written even if the caller is cancelled.

        A full disk is logged and does not fail the request.
        """
        log.info(
            "audit.noted",
            who=entry.who,
            action=entry.action,
            deed=entry.action,  # the name in earlier versions
            cluster=entry.cluster,
            target=entry.target,
            status=entry.status,
            request_id=entry.request_id,
        )
        written = self._queue.submit(entry)
        await self._owned.finish(
            "audit", entry.action, partial(self._queue.flush, written, self._write_all)
        )

    async def lines(self, *, limit: int, before: int) -> list[NumberedEntry]:
        """Entries with a number below `before` (0: no bound), newest first. Raises StoreUnavailableError."""
        return await self._database.run(partial(_read, limit, before))

    async def _write_all(self, entries: list[AuditEntry]) -> None:
        try:
            await self._database.run(partial(_write, entries, self._keep, self._counts))
        except StoreUnavailableError as err:
            log.error("audit.failed", reason=str(err), entries=len(entries))


def _write(entries: Sequence[AuditEntry], keep: int, counts: Counts, database: Connection) -> None:
    rows = [
        (
            entry.at.isoformat(),
            entry.who[:_TEXT_MAX],
            entry.address,
            entry.action,
            entry.cluster[:_TEXT_MAX],
            entry.target[:_TEXT_MAX],
            entry.status,
            entry.request_id,
        )
        for entry in entries
    ]
    database.executemany(
        f"INSERT INTO deeds ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        rows,
    )
    after = counts + Counter((row[1], row[6] < _REFUSED) for row in rows)
    surplus = surplus_of(after, keep)
    for (who, was_done), count in surplus.items():
        database.execute(
            "DELETE FROM deeds WHERE number IN (SELECT number FROM deeds"
            " WHERE who = ? AND (status < 400) = ? ORDER BY number LIMIT ?)",
            (who, was_done, count),
        )
    counts.clear()
    counts.update(after - surplus)


def surplus_of(counts: Counts, keep: int) -> Counts:
    """How many entries each identity loses so that `keep` remain; those with the most entries lose first."""
    excess = counts.total() - keep
    if excess <= 0:
        return Counter()
    share = _largest_share(sorted(counts.values()), keep)
    surplus = Counter({key: count - share for key, count in counts.items() if count > share})
    for key in sorted(surplus):  # the division left a remainder of less than one line each
        if surplus.total() <= excess:
            break
        surplus[key] -= 1
    return +surplus


def _largest_share(ascending: Sequence[int], keep: int) -> int:
    """The largest limit per identity that leaves at most `keep` entries in total."""
    left = keep
    for index, count in enumerate(ascending):
        share = left // (len(ascending) - index)
        if count > share:
            return share
        left -= count
    return left


def _count(database: Connection) -> Counts:
    rows = database.execute("SELECT who, status < 400, count(*) FROM deeds GROUP BY 1, 2")
    return Counter({(who, bool(was_done)): count for who, was_done, count in rows})


def _read(limit: int, before: int, database: Connection) -> list[NumberedEntry]:
    rows = database.execute(
        f"SELECT number, {_COLUMNS} FROM deeds WHERE ? = 0 OR number < ?"  # noqa: S608
        " ORDER BY number DESC LIMIT ?",
        (before, before, limit),
    )
    return [
        NumberedEntry(row[0], AuditEntry(datetime.fromisoformat(row[1]), *row[2:])) for row in rows
    ]
