"""Start-up time of the command line, over `python -c pass`.

python -m bench.startup
"""

import os
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter

from bench.processes import BIN, scheduler
from bench.verdict import Verdict, report

ROUNDS = 25


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/s.db") as (port, _, _),
    ):
        commands = {
            "bare": [sys.executable, "-c", "pass"],
            "help": [str(BIN / "persysctl"), "--help"],
            "list": [str(BIN / "persysctl"), "node", "list"],
        }
        env = {
            **os.environ,
            "PERSYS_GRPC_ENDPOINT": f"127.0.0.1:{port}",
            "PERSYS_INSECURE": "true",
            "HOME": directory,  # without the contexts of the user
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):  # in turn, so that what else the machine does weighs on all
            for name, command in commands.items():
                seconds[name].append(_timed(command, env))
    bare = median(seconds["bare"])
    report(
        Verdict(
            "start-up: persysctl --help over bare Python", median(seconds["help"]) / bare, at_most=5
        ),
        Verdict(
            "start-up: persysctl node list over bare Python",
            median(seconds["list"]) / bare,
            at_most=10,
        ),
    )


def _timed(command: list[str], env: dict[str, str]) -> float:
    started_at = perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - started_at


if __name__ == "__main__":
    main()
