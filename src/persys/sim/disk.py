"""The disk of a node: an agent's journal that outlives its agents, and the thread that writes to it.

A write takes a moment. An agent that dies before that leaves no trace of it; one that dies after it was never
told. A disk that is full or damaged refuses, for its journal or for its volumes.
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

from persys.agent.journal import Burial, Entry
from persys.agent.journal_changes import Change
from persys.agent.state import State
from persys.model.ids import NodeId, WorkloadId
from persys.sim.life import Life
from persys.sim.loop import later
from persys.sim.silence import INJECTED
from persys.wire.records import decode

WRITE_SECONDS = (0.0005, 0.004)
CLUSTER = "sim"

P = ParamSpec("P")
T = TypeVar("T")


_ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.ENOSPC, f"No space left on device ({INJECTED})"),
    lambda: OSError(errno.EIO, f"Input/output error ({INJECTED})"),
)


class Part(StrEnum):
    JOURNAL = "journal"
    VOLUMES = "volumes"


class Disk:
    def __init__(self, node_id: NodeId, random: Random) -> None:
        self.node_id = node_id
        self.slow_seconds = 0.0
        self.errors: dict[Part, float] = {}  # share of operations that fail
        self._random = random
        self._last: State | None = None
        self._connection: sqlite3.Connection | None = None

    def journal(self, life: Life, *, written_by_call: Callable[[], None]) -> State:
        """As the last agent left it, for the next one. `written_by_call`: a write depends on its caller."""
        self._last = _Journal(
            life,
            written_by_call,
            Path(":memory:"),
            cluster_id=CLUSTER,
            node_id=self.node_id,
            thread=_Writer(life, self),
            connection=self._connection,
        )
        self._connection = self._last.connection
        return self._last

    def kept(self, workload_id: WorkloadId) -> Entry | None:
        """What is really written of a workload, whatever an agent remembers."""
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

    def removed(self, workload_id: WorkloadId) -> int:
        """The epoch of the copy that was removed last; 0 if there was none."""
        if self._last is None:
            return 0
        found = self._last.connection.execute(
            "SELECT record FROM burials WHERE id = ?", (workload_id,)
        ).fetchone()
        return decode(found[0], Burial).epoch if found is not None else 0

    def copy(self, random: Random) -> "Disk":
        """A disk with the same content."""
        clone = Disk(self.node_id, random)
        if self._last is not None:
            clone._connection = sqlite3.connect(":memory:", check_same_thread=False)
            self._last.connection.backup(clone._connection)
        return clone

    def check(self, part: Part) -> None:
        """Raises OSError, if that is the disk's trouble now."""
        if self._random.random() < self.errors.get(part, 0.0):
            raise self._random.choice(_ERRORS)()

    def heal(self, part: Part) -> None:
        self.errors.pop(part, None)

    def wipe(self) -> None:
        self._last = None
        self._connection = None

    def delay(self) -> float:
        return self._random.uniform(*WRITE_SECONDS) + self._random.uniform(0, self.slow_seconds)


class _Journal(State):
    """Accepted work belongs to the process: no write is waited for by a call, which its caller can end."""

    def __init__(
        self, life: Life, written_by_call: Callable[[], None], *args: Any, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self._life = life
        self._written_by_call = written_by_call

    async def commit(self, change: Change, *, deadline_seconds: float | None = None) -> None:
        if asyncio.current_task() in self._life.calls:
            self._written_by_call()
        await super().commit(change, deadline_seconds=deadline_seconds)


class _Writer(Executor):
    """Runs at once while there is no loop, as at the start; later, when the disk has had its time."""

    def __init__(self, life: Life, disk: Disk) -> None:
        self._life = life
        self._disk = disk

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        if not self._life.serves:  # still starting: the journal is being read
            done.set_result(fn(*args, **kwargs))
            return done
        later(self._disk.delay(), lambda: self._write(done, lambda: fn(*args, **kwargs)))
        return done

    def _write(self, done: Future[T], work: Callable[[], T]) -> None:
        self._life.passes("disk.write")
        if not self._life.alive:
            return
        try:
            self._disk.check(Part.JOURNAL)
        except OSError as err:
            done.set_exception(err)
            return
        result = work()
        self._life.passes("disk.written")
        if self._life.alive and not done.cancelled():
            done.set_result(result)
