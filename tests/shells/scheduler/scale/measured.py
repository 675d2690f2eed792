"""What an operation costs: the longest step of the event loop, and the largest transaction.

A step is one callback of the loop. Its CPU time is measured, which does not
depend on what else the machine does.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from persys.store.limits import check
from persys.store.port import Outcome, Unit
from shells.scheduler.stores import FaultyStore

OPERATIONS_MAX = 128
REQUEST_BYTES_MAX = 1536 * 1024
# In which heartbeats, lease renewals and other requests wait.
STEP_SECONDS_MAX = 0.25


class MeasuredStore(FaultyStore):
    """Records the largest unit. Real etcd enforces its limits; SQLite has none."""

    largest_operations = 0
    largest_bytes = 0

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        for unit, size in zip(units, check(units), strict=True):
            operations = max(len(unit.puts) + len(unit.deletes), len(unit.guards) + 1)
            self.largest_operations = max(self.largest_operations, operations)
            self.largest_bytes = max(self.largest_bytes, size)
        return await super().commit(units, fence=fence)


@dataclass
class Steps:
    longest_seconds: float = 0.0
    longest: str = ""


@contextmanager
def measured_steps() -> Iterator[Steps]:
    """Every step of this thread's loop until the end of the block.

    Without garbage collection: it would also visit the objects of the test. A real scheduler process excludes
    its records from it.
    """
    steps = Steps()
    run = asyncio.Handle._run
    began = collected = 0.0

    def note_collection(phase: str, _info: dict[str, int]) -> None:
        nonlocal began, collected
        if phase == "start":
            began = time.thread_time()
        else:
            collected += time.thread_time() - began

    def timed(handle: asyncio.Handle) -> None:
        nonlocal collected
        collected = 0.0
        step_began = time.thread_time()
        run(handle)
        took = time.thread_time() - step_began - collected
        if took > steps.longest_seconds:
            steps.longest_seconds, steps.longest = took, repr(handle)

    gc.callbacks.append(note_collection)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", timed)
            yield steps
    finally:
        gc.callbacks.remove(note_collection)


@contextmanager
def bounded(store: MeasuredStore | None = None) -> Iterator[None]:
    """Fails when a step of the block took too long, or a transaction was too large."""
    if store is not None:
        store.largest_operations = store.largest_bytes = 0
    with measured_steps() as steps:
        yield
    if store is not None:
        assert store.largest_operations <= OPERATIONS_MAX
        assert store.largest_bytes <= REQUEST_BYTES_MAX
    assert steps.longest_seconds <= STEP_SECONDS_MAX, steps.longest
