"""The run time and first seed of each fuzzer: one total time, divided by SHARES.

`make test` takes about a minute in total from a fixed seed, `make fuzz` hours from a new one:

    PERSYS_FUZZ_SECONDS   total time of all fuzzers
    PERSYS_FUZZ_SEED      seed of the first input
    PERSYS_FUZZ_INPUTS    run exactly this many inputs instead

One seed is one input. Fuzzers of a service restart it for each round of inputs, so that a failure that needs
several inputs has few of them. A failure prints the command that repeats it.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

SECONDS_IN_MAKE_TEST = 40.0
# Shares of the total time. A fuzzer that is not listed fails.
SHARES = {
    "compose_file": 2,
    "compose_policy": 2,
    "spec_file": 3,
    "control_spec": 2,
    "agent_spec": 2,
    "cloud_init": 2,
    "disk_head": 1,
    "disk_head_of_qemu": 1,
    "certificate_request": 1,
    "record": 1,
    "snapshot_file": 1,
    "scheduler_calls": 6,
    "control_stream": 4,
    "tunnelled_answers": 4,
    "direct_answers": 3,
    "agent_calls": 6,
    "agent_on_docker": 5,
    "agent_stream": 5,
    "gateway": 8,
    "gateway_sockets": 2,
    "webhooks": 1,
    "ca": 4,
    "stored_records": 8,
    "followed_records": 3,
    "store_file": 2,
    "journal_file": 2,
    "book_file": 2,
    "audit_file": 1,
}
INPUTS_MIN = 10  # also on a busy machine
SECONDS_PER_INPUT_MAX = 5.0

_seconds = float(os.environ.get("PERSYS_FUZZ_SECONDS", SECONDS_IN_MAKE_TEST))
_first_seed = int(os.environ.get("PERSYS_FUZZ_SEED", "1"))
_count = int(os.environ.get("PERSYS_FUZZ_INPUTS", "0"))


@dataclass(slots=True)
class Input:
    """One input. Used with `with`, it adds the command that repeats it to an error."""

    seed: int
    first_seed: int  # of the inputs since the service was started
    seconds_max: float
    random: Random = field(init=False)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def __enter__(self) -> Random:
        self._began = time.thread_time()
        return self.random

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        err: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        if err is not None:
            err.add_note(repeat_command(self.first_seed, self.seed))
            return
        took = time.thread_time() - self._began  # CPU time, independent of the load
        how = repeat_command(self.first_seed, self.seed)
        assert took < self.seconds_max, f"took {took:.1f} s, expected {self.seconds_max:g}\n{how}"


@dataclass(slots=True)
class Round:
    """The inputs of one run of a service. With `with`, an error after the last input is repeatable too."""

    first_seed: int
    _until: float
    _size: int
    _least: int
    _seconds_max: float
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        self.seed = self.first_seed

    def __iter__(self) -> Iterator[Input]:
        while self._has_more():
            yield Input(self.seed, self.first_seed, self._seconds_max)
            self.seed += 1

    def _has_more(self) -> bool:
        done = self.seed - self.first_seed
        return done < self._least or (done < self._size and time.monotonic() < self._until)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        err: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        if err is not None and not getattr(err, "__notes__", None):
            err.add_note(repeat_command(self.first_seed, self.seed - 1))


def inputs(fuzzer: str, *, seconds_max: float = SECONDS_PER_INPUT_MAX) -> Iterator[Input]:
    """Inputs of a fuzzer without state, until its share of the time is over."""
    for one in rounds(fuzzer, size=1, seconds_max=seconds_max):
        yield from one


def rounds(
    fuzzer: str,
    *,
    size: int,
    least: int = INPUTS_MIN,
    seconds_max: float = SECONDS_PER_INPUT_MAX,
) -> Iterator[Round]:
    """Rounds of at most `size` inputs, until the fuzzer's share of the time is over."""
    until = time.monotonic() + seconds_of(fuzzer)
    seed = _first_seed
    if _count:
        yield Round(seed, until, _count, _count, seconds_max)
        return
    while seed < _first_seed + least or time.monotonic() < until:
        one = Round(seed, until, size, min(least, size), seconds_max)
        yield one
        seed = max(one.seed, seed + 1)


def seconds_of(fuzzer: str) -> float:
    return _seconds * SHARES[fuzzer] / sum(SHARES.values())


def repeat_command(first_seed: int, last_seed: int) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/fuzz").rpartition(" (")[0]
    count = last_seed - first_seed + 1
    return (
        "repeat with: "
        f"PERSYS_FUZZ_SEED={first_seed} PERSYS_FUZZ_INPUTS={count} .venv/bin/pytest '{test}'"
    )
