"""docs: permissions are generated from the code; every attack has a test."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_permission_tables_match_the_code(root: Path, documents: dict[str, str]) -> None:
    created = subprocess.run(
        [sys.executable, root / "scripts" / "permissions"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert created.stdout.strip() in documents["docs/reference/permissions.md"], (
        "run scripts/permissions --write"
    )


def test_every_test_that_the_document_names_is_there(root: Path, documents: dict[str, str]) -> None:
    named = set(re.findall(r"`(test_\w+)`", documents["docs/explanation/security.md"]))
    there = {
        name
        for path in (root / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
    }

    assert len(named) > 20
    assert named - there == set()
