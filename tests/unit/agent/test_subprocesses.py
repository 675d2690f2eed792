"""External programs are limited in time, output and file size."""

import asyncio
import os
from pathlib import Path

import pytest

from faults.virtual_loop import Ended, ProgramLoop
from persys.agent.subprocesses import END_SECONDS, OUTPUT_BYTES_MAX, run

DEADLINE_SECONDS = 30.0


def test_a_program_that_survives_sigkill_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that waits for a server of files that does not answer."""
    loop = ProgramLoop(lambda _command: Ended(), lambda _command: "hang")
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

    ran = await run(["sh", "-c", many], env=os.environ, deadline=DEADLINE_SECONDS)

    assert ran.ok
    assert ran.is_cut
    assert len(ran.out) == OUTPUT_BYTES_MAX
    assert ran.out.endswith("xend")


async def test_output_below_the_limit_is_complete() -> None:
    some = f"head -c {OUTPUT_BYTES_MAX} /dev/zero | tr '\\0' x; echo no >&2; exit 3"

    ran = await run(["sh", "-c", some], env=os.environ, deadline=DEADLINE_SECONDS)

    assert (ran.code, len(ran.out), ran.err, ran.is_cut) == (3, OUTPUT_BYTES_MAX, "no\n", False)


async def test_files_of_a_program_are_limited_in_size(tmp_path: Path) -> None:
    grow = "sleep 0.1; for i in 1 2 3 4; do head -c 65536 /dev/zero; done > big; echo done"

    ran = await run(
        ["sh", "-c", grow],
        env=os.environ,
        cwd=tmp_path,
        deadline=DEADLINE_SECONDS,
        file_bytes_max=100_000,
    )

    assert (tmp_path / "big").stat().st_size == 100_000
    assert ran.out == "done\n"
