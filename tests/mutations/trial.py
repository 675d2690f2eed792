"""Tries one mutation: in a copy of the tree, suite after suite, until a test fails.

On a busy machine a test can fail for other reasons. It has found the mutation only if it fails with it and
passes without it each time; else it is left out, and its suite continues.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mutations.mutation import Mutation
from mutations.rules import ROOT
from mutations.suites import NEAREST, SEEDS, SIMULATION, Suite, suite_of, suites_for

TEST_SECONDS_MAX = 180
SUITE_SECONDS_MAX = 3600
LEFT_OUT_MAX = 5
TIMES = 3  # a failure is tried again, with the mutation and without it
MISSED = "missed"
STALE = "stale"

# The environment of `make install`, also if another interpreter runs this program.
_PYTHON = str(ROOT / ".venv/bin/python")
_PYTEST = (
    *(_PYTHON, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
    *("--timeout", str(TEST_SECONDS_MAX), "--hypothesis-seed", "0", "--durations", "0"),
)
_SIMULATE = (_PYTHON, "-m", "mutations.seeds")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
_BROKEN = re.compile(r"^seed \d+: .*$", re.MULTILINE)


class Result(NamedTuple):
    """`found_by` is a suite, or MISSED or STALE."""

    id: int
    found_by: str
    test: str
    seconds: int


class Worktree:
    """A copy of the tree, in which mutations are applied and reverted one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")
        shutil.copytree(ROOT, folder, ignore=ignored, dirs_exist_ok=True)
        for shared in (".venv", ".cache"):
            if (ROOT / shared).exists():
                (folder / shared).symlink_to(ROOT / shared)

    def trial(self, mutation: Mutation) -> Result:
        started_at = time.monotonic()
        found_by, test = self._search(mutation)
        return Result(mutation.id, found_by, test, round(time.monotonic() - started_at))

    def verify(self, mutation: Mutation, known: Result) -> Result:
        """The known result, or MISSED if its test passes with the mutation or fails without it."""
        started_at = time.monotonic()
        found_by = STALE
        mutated = mutation.applied_to((ROOT / mutation.file).read_text("utf-8"))
        if mutated is not None:
            suite = Suite(known.found_by, ())
            with self._mutated(mutation.file, mutated):
                survives = self._passes(suite, known.test)
            found_by = (
                known.found_by if not survives and self._passes(suite, known.test) else MISSED
            )
        seconds = round(time.monotonic() - started_at)
        return Result(mutation.id, found_by, known.test, seconds)

    def _search(self, mutation: Mutation) -> tuple[str, str]:
        mutated = mutation.applied_to((ROOT / mutation.file).read_text("utf-8"))
        if mutated is None:
            return STALE, ""
        for suite in suites_for(mutation.file):
            test = self._failure(suite, mutation.file, mutated)
            if test is not None:
                return (suite_of(test) if suite.name == NEAREST else suite.name), test
        return MISSED, ""

    def _failure(self, suite: Suite, file: str, mutated: str) -> str | None:
        """What fails with the mutation and not without it; None if nothing does."""
        left_out: list[str] = []
        while len(left_out) <= LEFT_OUT_MAX:
            with self._mutated(file, mutated):
                failed = self._run(suite, left_out)
            if failed is None:
                return None
            if self._is_due(suite, failed, file, mutated):
                return failed
            print(f"not due to the mutation: {failed}", file=sys.stderr, flush=True)
            left_out.append(failed)
        return None

    def _is_due(self, suite: Suite, failed: str, file: str, mutated: str) -> bool:
        """Whether it passes without the mutation and fails with it, each time."""
        for _ in range(TIMES):
            if not self._passes(suite, failed):
                return False
            with self._mutated(file, mutated):
                if self._passes(suite, failed):
                    return False
        return True

    @contextmanager
    def _mutated(self, file: str, text: str) -> Iterator[None]:
        (self._folder / file).write_text(text, "utf-8")
        try:
            yield
        finally:  # with its time, so that what was compiled from it holds again
            shutil.copy2(ROOT / file, self._folder / file)

    def _run(self, suite: Suite, left_out: list[str]) -> str | None:
        """The first failure; None if all pass."""
        if suite.name == SIMULATION:
            return self._first_broken(seed for seed in SEEDS if seed not in map(_seed_of, left_out))
        deselected = [f"--deselect={test}" for test in left_out]
        code, output = self._call((*_PYTEST, *deselected, *_files_left(suite, left_out)))
        if code in (0, 5):  # passed, or none was selected
            return None
        named = _FAILED.search(output)
        return named[1] if named else suite.files[0]

    def _first_broken(self, seeds: Iterable[int]) -> str | None:
        code, output = self._call((*_SIMULATE, *map(str, seeds)), {"PYTHONHASHSEED": "0"})
        if code == 0:
            return None
        broken = _BROKEN.search(output)
        return broken[0] if broken else f"seed {SEEDS[0]}: {output.strip().rpartition(chr(10))[2]}"

    def _passes(self, suite: Suite, failed: str) -> bool:
        """With the tree as it is now."""
        if suite.name == SIMULATION:
            return self._first_broken([_seed_of(failed)]) is None
        return self._call((*_PYTEST, failed))[0] == 0

    def _call(
        self, command: tuple[str, ...], variables: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        environment = os.environ | {
            "PYTHONPATH": f"{self._folder}/src:{self._folder}/tests",
            **(variables or {}),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            result = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SUITE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return 1, f"does not end within {SUITE_SECONDS_MAX} s"
        return result.returncode, result.stdout + result.stderr


def _files_left(suite: Suite, left_out: list[str]) -> tuple[str, ...]:
    """All before the test that was left out last have passed."""
    last = left_out[-1].partition("::")[0] if left_out else suite.files[0]
    return suite.files[suite.files.index(last) :]


def _seed_of(failed: str) -> int:
    """Of `seed 3: what it broke`."""
    return int(failed.removeprefix("seed ").partition(":")[0])
