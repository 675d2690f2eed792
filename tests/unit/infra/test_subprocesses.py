"""External programs are limited in time, output and file size."""

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from faults.virtual_loop import ExitResult, ProgramLoop
from persys.infra.aio.path_calls import PathTimeoutError, ThreadPathCalls
from persys.infra.subprocesses import END_SECONDS, OUTPUT_BYTES_MAX, ProgramLock, run

DEADLINE_SECONDS = 30.0


def test_a_program_that_survives_sigkill_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that waits for a server of files that does not answer."""
    loop = ProgramLoop(lambda _command: ExitResult(), lambda _command: "hang")
    monkeypatch.setattr(os, "killpg", lambda _pid, _number: None)

    async def ended_at() -> float:
        with pytest.raises(TimeoutError):
            await run(["git", "fetch"], env={}, deadline=DEADLINE_SECONDS)
        return asyncio.get_running_loop().time()

    try:
        assert loop.run_until_complete(ended_at()) == DEADLINE_SECONDS + END_SECONDS
    finally:
        loop.close()


async def test_excess_output_is_cut_to_its_tail() -> None:
    many = f"head -c {3 * OUTPUT_BYTES_MAX} /dev/zero | tr '\\0' x; printf end"

    result = await run(["sh", "-c", many], env=os.environ, deadline=DEADLINE_SECONDS)

    assert result.ok
    assert result.is_cut
    assert len(result.out) == OUTPUT_BYTES_MAX
    assert result.out.endswith("xend")


async def test_output_below_the_limit_is_complete() -> None:
    some = f"head -c {OUTPUT_BYTES_MAX} /dev/zero | tr '\\0' x; echo no >&2; exit 3"

    result = await run(["sh", "-c", some], env=os.environ, deadline=DEADLINE_SECONDS)

    assert (result.code, len(result.out), result.err, result.is_cut) == (
        3,
        OUTPUT_BYTES_MAX,
        "no\n",
        False,
    )


async def test_files_of_a_program_are_limited_in_size(tmp_path: Path) -> None:
    big = tmp_path / "big"
    grow = f"sleep 0.1; for i in 1 2 3 4; do head -c 65536 /dev/zero; done > {big}; echo done"

    result = await run(
        ["sh", "-c", grow],
        env=os.environ,
        deadline=DEADLINE_SECONDS,
        file_bytes_max=100_000,
    )

    assert big.stat().st_size == 100_000
    assert result.out == "done\n"


async def test_a_lock_file_that_cannot_be_opened_in_time_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, responds, plain_open = tmp_path / "lock", threading.Event(), os.open

    def slow_open(name: Any, *arguments: Any, **options: Any) -> int:
        if name == path:
            assert responds.wait(DEADLINE_SECONDS)
        return plain_open(name, *arguments, **options)

    monkeypatch.setattr(os, "open", slow_open)
    lock = ProgramLock(path, ThreadPathCalls(deadline_seconds=0.1))

    with pytest.raises(PathTimeoutError, match="did not respond within"):
        await run(["true"], env=os.environ, deadline=DEADLINE_SECONDS, lock=lock)

    responds.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not path.exists() or _is_open(path):  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.01)


def _is_open(path: Path) -> bool:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it is closed meanwhile
            if descriptor.readlink() == path:
                return True
    return False
