"""Runs the commands of docs/how-to/ha.md."""

import os
import subprocess
import sys
from pathlib import Path

from e2e.process import free_ports_in_row

EXAMPLES = Path(__file__).parents[2] / "examples" / "ha"
PORTS_NEEDED = 12


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
        output = run_example("up", directory, "--ports", str(free_ports_in_row(PORTS_NEEDED)))
        assert "leader:" in output
        report = run_example("kill-leader", directory)
        assert "each once" in report
    finally:
        run_example("down", directory)
    assert list((tmp_path / "ha").glob("*.pid")) == []
