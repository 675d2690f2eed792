import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
from persys.infra.failpoints import failpoint
for count in range(1, 4):
    print(count, flush=True)
    failpoint("commit.done")
"""


def passes(failpoint: str) -> tuple[int, list[str]]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PERSYS_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stdout.split()


@pytest.mark.parametrize("failpoint", ["", "other.place"])
def test_a_failpoint_that_is_not_set_does_nothing(failpoint: str) -> None:
    assert passes(failpoint) == (0, ["1", "2", "3"])


def test_a_failpoint_kills_at_the_first_call() -> None:
    assert passes("commit.done") == (-signal.SIGKILL, ["1"])


def test_a_counted_failpoint_kills_at_that_call() -> None:
    assert passes("commit.done:3") == (-signal.SIGKILL, ["1", "2", "3"])
