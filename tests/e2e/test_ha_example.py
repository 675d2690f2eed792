"""Runs the commands of docs/operate/ha.md."""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "ha"
PORTS_NEEDED = 12


def free_ports() -> int:
    """The first of a range of free ports of the size that the example needs."""
    while True:
        first = random.randrange(15_000, 31_000)
        if not any(is_taken(port) for port in range(first, first + PORTS_NEEDED)):
            return first


def is_taken(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def run_example(name: str, *arguments: str) -> str:
    search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        [str(EXAMPLES / name), *arguments],
        env={**os.environ, "PATH": search},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_example_starts_fails_over_and_stops(tmp_path: Path) -> None:
    directory = str(tmp_path / "ha")
    try:
        output = run_example("up", directory, "--ports", str(free_ports()))
        assert "leader:" in output
        report = run_example("kill-leader", directory)
        assert "each once" in report
    finally:
        run_example("down", directory)
    assert list((tmp_path / "ha").glob("*.pid")) == []
