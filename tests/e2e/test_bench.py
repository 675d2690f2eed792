"""`persys bench` on this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def test_bench_prints_ratios_and_writes_a_page_with_a_plot(tmp_path: Path, demo_image: str) -> None:
    page = tmp_path / "report.html"
    command = [str(Path(sys.executable).parent / "persys"), "bench", "--output", str(page)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert ended.returncode == 0, ended.stderr
    for figure in ("10,000 nodes", "apply, stored", "container, apply to Running", "RATIO"):
        assert figure in ended.stdout
    assert "Processor:" in ended.stdout
    assert "<polyline" in page.read_text()
