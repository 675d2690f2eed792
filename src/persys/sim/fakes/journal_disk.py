"""The disk of a node: the journal, which survives agent crashes, and the thread that writes to it.

A write takes time. A crash before it completes loses the write; a crash after it loses only the
acknowledgement. A full or damaged disk fails writes to the journal or to volumes.
"""

import asyncio
import errno
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor, Future
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, ParamSpec, TypeVar

from persys.agent.journal.records import DeletionMarker, Entry, JournalChange
from persys.agent.journal.store import Journal
from persys.infra.encryption import KEY_BITS, EncryptionKey, KeyFile
from persys.model.ids import NodeId, WorkloadId
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import INJECTED
from persys.sim.engine.virtual_loop import later
from persys.wire.stored.records import decode

WRITE_SECONDS = (0.0005, 0.004)
CLUSTER = "sim"

_KEY = EncryptionKey(bytes(KEY_BITS // 8))

P = ParamSpec("P")
T = TypeVar("T")


_ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.ENOSPC, f"No space left on device ({INJECTED})"),
    lambda: OSError(errno.EIO, f"Input/output error ({INJECTED})"),
)


class MemoryKey(KeyFile):
    """The encryption key of secrets, without a file."""

    def __init__(self) -> None:
        super().__init__(Path("secrets.key"))

    def key(self) -> EncryptionKey:
        return _KEY

    make = key


class Part(StrEnum):
    JOURNAL = "journal"
    VOLUMES = "volumes"


class Disk:
    def __init__(self, node_id: NodeId, random: Random, *, cluster: str = CLUSTER) -> None:
        self.node_id = node_id
        self.cluster = cluster
        self.slow_seconds = 0.0
        self.errors: dict[Part, float] = {}  # share of operations that fail
        self._random = random
        self._last: Journal | None = None
        self._connection: sqlite3.Connection | None = None

    def journal(self, process: SimProcess, *, written_by_call: Callable[[], None]) -> Journal:
        """The journal for the next agent process. `written_by_call`: an RPC task wrote to the journal."""
        self._last = _Journal(
            process,
            written_by_call,
            Path(":memory:"),
            cluster_id=self.cluster,
            node_id=self.node_id,
            key_file=MemoryKey(),
            thread=_Writer(process, self),
            connection=self._connection,
        )
        self._connection = self._last.connection
        return self._last

    def journal_entry(self, workload_id: WorkloadId) -> Entry | None:
        """The journal entry of a workload as stored on disk."""
        if self._last is None:
            return None
        found = self._last.connection.execute(
            "SELECT record FROM entries WHERE id = ?", (workload_id,)
        ).fetchone()
        return decode(found[0], Entry) if found is not None else None

    def all_kept(self) -> list[Entry]:
        if self._last is None:
            return []
        found = self._last.connection.execute("SELECT record FROM entries ORDER BY id")
        return [decode(record, Entry) for (record,) in found]

    def newest_epoch(self, workload_id: WorkloadId) -> int:
        """The epoch of the entry or of the last removed copy, or 0.

        Only of the cluster that the node has joined: epochs of different clusters do not compare.
        """
        if self._last is None:
            return 0
        if (entry := self.journal_entry(workload_id)) is not None:
            return entry.order.epoch if self._is_own(entry.cluster_uid) else 0
        found = self._last.connection.execute(
            "SELECT record FROM burials WHERE id = ?", (workload_id,)
        ).fetchone()
        if found is None:
            return 0
        marker = decode(found[0], DeletionMarker)
        return marker.epoch if self._is_own(marker.cluster_uid) else 0

    def _is_own(self, cluster_uid: str) -> bool:
        assert self._last is not None
        return cluster_uid in ("", self._last.cluster_uid)

    def copy(self, random: Random) -> "Disk":
        """A disk with the same content."""
        clone = Disk(self.node_id, random, cluster=self.cluster)
        if self._last is not None:
            clone._connection = sqlite3.connect(":memory:", check_same_thread=False)
            self._last.connection.backup(clone._connection)
        return clone

    def check(self, part: Part) -> None:
        """Raises OSError with the current error probability."""
        if self._random.random() < self.errors.get(part, 0.0):
            raise self._random.choice(_ERRORS)()

    def heal(self, part: Part) -> None:
        self.errors.pop(part, None)

    def wipe(self) -> None:
        self._last = None
        self._connection = None

    def delay(self) -> float:
        return self._random.uniform(*WRITE_SECONDS) + self._random.uniform(0, self.slow_seconds)


class _Journal(Journal):
    """Reports writes in the task of an RPC: its caller could cancel them."""

    def __init__(
        self, process: SimProcess, written_by_call: Callable[[], None], *args: Any, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self._process = process
        self._written_by_call = written_by_call

    async def commit(self, change: JournalChange, *, deadline_seconds: float | None = None) -> None:
        if asyncio.current_task() in self._process.calls:
            self._written_by_call()
        await super().commit(change, deadline_seconds=deadline_seconds)


class _Writer(Executor):
    """Runs immediately during start-up, later with the delay of the disk."""

    def __init__(self, process: SimProcess, disk: Disk) -> None:
        self._process = process
        self._disk = disk

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        if not self._process.serves:  # start-up: the journal is being read
            done.set_result(fn(*args, **kwargs))
            return done
        later(self._disk.delay(), lambda: self._write(done, lambda: fn(*args, **kwargs)))
        return done

    def _write(self, done: Future[T], work: Callable[[], T]) -> None:
        self._process.reach_point("disk.write")
        if not self._process.alive:
            return
        try:
            self._disk.check(Part.JOURNAL)
        except OSError as err:
            done.set_exception(err)
            return
        result = work()
        self._process.reach_point("disk.written")
        if self._process.alive and not done.cancelled():
            done.set_result(result)
