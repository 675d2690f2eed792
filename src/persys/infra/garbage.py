"""Python's search for garbage in cycles, made of short pauses.

Almost nothing here is in cycles, and what is dies young. Python on its own looks at once through all that was
made since it looked last, which in a process that holds thousands of streams is hundreds of thousands of
objects: everybody waits for it. So what is new is looked at often, while it is little; what was read from a
store is set aside; and everything is looked at only when memory has grown by half since the last time.
"""

import asyncio
import gc
import resource
from collections.abc import Callable

YOUNG_SECONDS = 0.1
# So many new objects that are still alive are no garbage: something large was read.
READ_COUNT_MIN = 100_000
GROWTH_MAX = 1.5


def most_memory() -> int:
    """That this process ever had. What it has now would take long to count."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def sweep(memory: Callable[[], int] = most_memory) -> None:
    """Until cancelled. Then Python looks on its own again."""
    gc.disable()
    try:
        kept = memory()
        while True:
            await asyncio.sleep(YOUNG_SECONDS)
            if gc.get_count()[0] > READ_COUNT_MIN:
                gc.freeze()
                kept = memory()
            gc.collect(0)
            if memory() > kept * GROWTH_MAX:
                _look_at_all()
                kept = memory()
    finally:
        gc.unfreeze()
        gc.enable()


def _look_at_all() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()
