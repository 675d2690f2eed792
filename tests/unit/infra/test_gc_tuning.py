"""Garbage collection: frequent for new objects, never for loaded ones."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from persys.infra.gc_tuning import READ_COUNT_MIN, peak_memory, tune_garbage_collector


class ReferenceCycle:
    """Refers to itself, so only the cyclic collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@asynccontextmanager
async def with_gc_tuning(memory: Callable[[], int] = peak_memory) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(tune_garbage_collector(memory))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    deadline = monotonic() + 10
    while not holds():
        assert monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_new_cycle_is_collected_soon() -> None:
    async with with_gc_tuning():
        gone = weakref.ref(ReferenceCycle())
        await until(lambda: gone() is None)


async def test_loaded_objects_are_not_scanned_again() -> None:
    async with with_gc_tuning():
        before = gc.get_freeze_count()
        read = [[ReferenceCycle] for _ in range(2 * READ_COUNT_MIN)]
        await until(lambda: gc.get_freeze_count() >= before + READ_COUNT_MIN)
        assert read


async def test_a_cycle_among_loaded_objects_is_collected_when_memory_has_grown() -> None:
    most = peak_memory()
    async with with_gc_tuning(lambda: most):
        knots = [ReferenceCycle() for _ in range(READ_COUNT_MIN)]
        await until(lambda: gc.get_freeze_count() >= len(knots))
        gone = weakref.ref(knots[0])
        knots.clear()
        assert gone() is not None
        most *= 2
        await until(lambda: gone() is None)


async def test_the_default_collector_is_enabled_again_afterwards() -> None:
    async with with_gc_tuning():
        assert not gc.isenabled()

    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
