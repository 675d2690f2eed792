"""Imports point down. The contracts are in pyproject.toml; here they are checked, and seen to bite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the tree in `folder` in a process of its own, which imports from that tree."""
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_tree_keeps_the_import_contracts(root: Path) -> None:
    done = lint(root)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        ("core/planted.py", "import asyncio", "Decisions and nouns"),
        ("model/planted.py", "from time import monotonic", "Decisions and nouns"),
        ("core/planted.py", "import persys.wire", "Imports point down"),
        ("store/planted.py", "from persys import infra", "Imports point down"),
        ("agent/planted.py", "import persys.scheduler", "Imports point down"),
        ("cli/planted.py", "import persys.scheduler", "The command line reaches"),
        ("planted.py", "", "Imports point down"),
    ],
)
def test_a_planted_breach_is_found(
    root: Path, tmp_path: Path, path: str, line: str, contract: str
) -> None:
    shutil.copy(root / "pyproject.toml", tmp_path)
    package = shutil.copytree(
        root / "src" / "persys",
        tmp_path / "src" / "persys",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (package / path).write_text(f"{line}\n")

    done = lint(tmp_path)

    assert done.returncode == 1
    assert f"{contract}" in done.stdout
    assert "planted" in done.stdout
