"""How long a fuzzer runs, and from which seed: PERSYS_FUZZ_SECONDS and PERSYS_FUZZ_SEED.

`make test` gives each fuzzer a few seconds from a fixed seed; `make fuzz` gives all of them hours from a new
one. A failure names the seed of its input: run the test with that seed and one second to see it again.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

SECONDS = float(os.environ.get("PERSYS_FUZZ_SECONDS", "6"))
FIRST_SEED = int(os.environ.get("PERSYS_FUZZ_SEED", "1"))
INPUTS_MIN = 20


def inputs() -> Iterator[tuple[int, Random]]:
    """Seeds with their random numbers, until the time is over."""
    until = time.monotonic() + SECONDS
    seed = FIRST_SEED
    while seed < FIRST_SEED + INPUTS_MIN or time.monotonic() < until:
        yield seed, Random(seed)
        seed += 1


@contextmanager
def quickly(seed: int, *, seconds: float = 5.0) -> Iterator[None]:
    """No input takes this long on any machine."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"seed {seed} took {took:.1f} s"
