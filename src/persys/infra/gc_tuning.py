"""Tuning of memory: short pauses of Python's cyclic garbage collector, and no freed memory that is kept.

Few objects are in cycles, and these are short-lived. By default a collection scans all objects that were
created since the last one: in a process with thousands of streams that is hundreds of thousands, and it
blocks the event loop. So new objects are collected often, while they are few; objects loaded from a store are
frozen; and a full collection runs only when memory has grown by half since the last one.
"""

import asyncio
import ctypes
import gc
import resource
from collections.abc import Callable

YOUNG_SECONDS = 0.1
# This many new live objects were loaded from a store: they are not garbage.
READ_COUNT_MIN = 100_000
GROWTH_MAX = 1.5


def peak_memory() -> int:
    """The peak memory of this process. Its current memory would be slow to measure."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def settle_memory() -> None:
    """Call it when what stays in memory has been loaded: modules, or the records of a store.

    What is loaded is not garbage, and is no longer visited. Reading it has left freed memory between the
    objects that stay, which the C library would keep: it is returned to the system.
    """
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


async def tune_garbage_collector(memory: Callable[[], int] = peak_memory) -> None:
    """Collect until cancelled; then the default collector is enabled again."""
    gc.disable()
    try:
        baseline = memory()
        while True:
            await asyncio.sleep(YOUNG_SECONDS)
            if gc.get_count()[0] > READ_COUNT_MIN:
                gc.freeze()
                baseline = memory()
            gc.collect(0)
            if memory() > baseline * GROWTH_MAX:
                _collect_all()
                baseline = memory()
    finally:
        gc.unfreeze()
        gc.enable()


def _collect_all() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()
