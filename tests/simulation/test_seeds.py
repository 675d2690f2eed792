"""A fixed set of seeds, in every run of the tests. Any number more by hand: persys sim --seeds 1..1000."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

DEADLINE_SECONDS = 150


def sim(*arguments: str, cwd: Path, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "persys.cli.persys", "sim", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("seeds", ["1..25", "26..50", "170..190"])
def test_no_seed_breaks_a_promise(seeds: str, tmp_path: Path) -> None:
    done = sim("--seeds", seeds, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("seeds", "streams"), [("1..3", "0"), ("4..6", "1")])
def test_no_seed_breaks_a_promise_of_three_schedulers(
    seeds: str, streams: str, tmp_path: Path
) -> None:
    done = sim("--seeds", seeds, "--schedulers", "3", "--streams", streams, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_three_schedulers_are_the_same_run_in_every_process(tmp_path: Path) -> None:
    first, again = (sim("--seed", "9", "--schedulers", "3", cwd=tmp_path) for _ in range(2))

    assert "fingerprint" in first.stdout
    assert without_last_line(first.stdout) == without_last_line(again.stdout)


def test_a_large_crowded_cluster_keeps_its_promises(tmp_path: Path) -> None:
    done = sim("--seeds", "1..2", "--nodes", "8", "--workloads", "60", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_same_seed_is_the_same_run_in_every_process(tmp_path: Path) -> None:
    """Also in one that was started with another hash seed: the command starts itself anew."""
    first = sim("--seed", "7", "--trace", cwd=tmp_path)
    again = sim("--seed", "7", "--trace", cwd=tmp_path, hash_seed="random")

    assert "fingerprint" in first.stdout
    assert without_last_line(first.stdout) == without_last_line(again.stdout)


def without_last_line(text: str) -> list[str]:
    """The last line says how fast it went."""
    return text.splitlines()[:-1]
