"""The persistent queue of accepted pushes, and the result of the last push for each workload.

A push is stored for every cluster before the webhook is answered, with the ids that identify a duplicate
delivery. It stays until it is processed, across outages of a cluster and restarts. A newer push to the same
branch replaces a waiting one, because both redeploy the head of the branch.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Struct

from persys.core.intent.gitops import Push
from persys.gateway.database import Connection, Database
from persys.gateway.http.problems import ProblemError
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.clock import Clock

WAITING_MAX = 1_000  # in all clusters together
MARKS_MAX = 20_000
OUTCOMES_MAX = 10_000
_TABLES = """
CREATE TABLE IF NOT EXISTS taken (
    mark TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS pushes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, cluster TEXT NOT NULL, repository TEXT NOT NULL,
    branch TEXT NOT NULL, push BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, cluster TEXT NOT NULL, workload_id TEXT NOT NULL,
    outcome BLOB NOT NULL, UNIQUE (cluster, workload_id));
"""


class PushOutcome(Struct, frozen=True):
    """The result of the last push for a workload."""

    delivery: str
    commit: str
    at: datetime
    status: int  # HTTP status
    detail: str = ""


class QueuedPush(Struct, frozen=True):
    number: int
    push: Push


class PushQueue:
    def __init__(
        self, database: Database, clock: Clock, clusters: Iterable[str], owned: OwnedWork
    ) -> None:
        self._database = database
        self._owned = owned
        self._clock = clock
        self._arrived = {name: asyncio.Event() for name in clusters}
        database.prepare(_TABLES)

    async def enqueue(self, push: Push | None, marks: tuple[str, ...], keep_seconds: float) -> None:
        """Store a push, or only its delivery ids (`push` None).

        Raises ProblemError, 409 for a duplicate delivery and 503 for a full queue, and StoreUnavailableError.
        A stored push is processed even if the caller disconnects.
        """
        now = self._clock.now().timestamp()
        write = partial(self._write, push, marks, now, now + keep_seconds)
        await self._owned.finish("webhook", marks[0], partial(self._take, write))

    async def _take(self, write: Callable[[Connection], None]) -> None:
        await self._database.run(write)
        for arrived in self._arrived.values():
            arrived.set()

    async def next(self, cluster: str) -> QueuedPush:
        """The oldest waiting push; waits for one. Raises StoreUnavailableError."""
        while True:
            self._arrived[cluster].clear()
            found = await self._database.run(partial(_oldest, cluster))
            if found is not None:
                return found
            await self._arrived[cluster].wait()

    async def followed(self, waiting: QueuedPush) -> None:
        await self._database.run(partial(_remove, waiting.number))

    async def record(self, cluster: str, workload_id: str, outcome: PushOutcome) -> None:
        await self._database.run(partial(_audit_if_changed, cluster, workload_id, outcome))

    async def outcomes(self, cluster: str) -> Mapping[str, PushOutcome]:
        """By workload. Raises StoreUnavailableError."""
        return await self._database.run(partial(_outcomes, cluster))

    def _write(
        self,
        push: Push | None,
        marks: tuple[str, ...],
        now: float,
        until: float,
        database: Connection,
    ) -> None:
        database.execute("DELETE FROM taken WHERE until <= ?", (now,))
        for mark in marks:
            if database.execute("SELECT 1 FROM taken WHERE mark = ?", (mark,)).fetchone():
                raise ProblemError(409, "duplicate delivery: it was already accepted")
        if push is not None:
            self._insert(push, database)
        database.executemany("INSERT INTO taken VALUES (?, ?)", [(mark, until) for mark in marks])
        database.execute(
            "DELETE FROM taken WHERE mark IN (SELECT mark FROM taken ORDER BY until DESC LIMIT -1 OFFSET ?)",
            (MARKS_MAX,),
        )

    def _insert(self, push: Push, database: Connection) -> None:
        # Also drop the pushes of clusters that were removed from the configuration.
        here = msgspec.json.encode(list(self._arrived)).decode()
        database.execute(
            "DELETE FROM pushes WHERE (repository = ? AND branch = ?)"
            " OR cluster NOT IN (SELECT value FROM json_each(?))",
            (push.repository, push.branch, here),
        )
        (count,) = database.execute("SELECT count(*) FROM pushes").fetchone()
        if count + len(self._arrived) > WAITING_MAX:
            raise ProblemError(503, "too many pushes are waiting")
        stored = msgspec.json.encode(push)
        database.executemany(
            "INSERT INTO pushes (cluster, repository, branch, push) VALUES (?, ?, ?, ?)",
            [(name, push.repository, push.branch, stored) for name in self._arrived],
        )


def _oldest(cluster: str, database: Connection) -> QueuedPush | None:
    row = database.execute(
        "SELECT number, push FROM pushes WHERE cluster = ? ORDER BY number LIMIT 1", (cluster,)
    ).fetchone()
    return None if row is None else QueuedPush(row[0], msgspec.json.decode(row[1], type=Push))


def _remove(number: int, database: Connection) -> None:
    database.execute("DELETE FROM pushes WHERE number = ?", (number,))


def _audit_if_changed(
    cluster: str, workload_id: str, outcome: PushOutcome, database: Connection
) -> None:
    database.execute(
        "INSERT OR REPLACE INTO outcomes (cluster, workload_id, outcome) VALUES (?, ?, ?)",
        (cluster, workload_id, msgspec.json.encode(outcome)),
    )
    database.execute(
        "DELETE FROM outcomes WHERE number <= (SELECT max(number) FROM outcomes) - ?",
        (OUTCOMES_MAX,),
    )


def _outcomes(cluster: str, database: Connection) -> Mapping[str, PushOutcome]:
    rows = database.execute(
        "SELECT workload_id, outcome FROM outcomes WHERE cluster = ?", (cluster,)
    )
    return {name: msgspec.json.decode(stored, type=PushOutcome) for name, stored in rows}
